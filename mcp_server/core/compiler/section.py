"""Section: what a slot shows; Slot: how it is filled. The table of all slots is in `slots.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from mcp_server.core.compiler.budget import UNLIMITED_BYTES, Meter, Room
from mcp_server.core.compiler.inputs import CompileInputs
from mcp_server.core.compiler.receipt import Considered


@dataclass(frozen=True, slots=True)
class Section:
    """What a slot has to show: its blocks, each with its label, and the account of everything it looked at.

    `lines` says how far files are shown (path → last line), `turns` which turns of the session's own are, so that
    nothing is said twice.
    """

    text: str = ""
    considered: tuple[Considered, ...] = ()
    lines: Mapping[str, int] = field(default_factory=dict)
    turns: frozenset[int] = frozenset()


NOTHING = Section()


@dataclass(frozen=True, slots=True)
class Filling:
    """What a slot may look at while it fills: the inputs, the whole allowance in tokens, and the sections before it."""

    inputs: CompileInputs
    allowance: int
    meter: Meter
    before: Mapping[str, Section]

    def share(self, part: float) -> int:
        """A share of the allowance (0..1) in tokens."""
        return int(self.allowance * part)

    def shown_to(self, path: str) -> int:
        """The last line of a file that is already shown, 0 for none."""
        return max((section.lines.get(path, 0) for section in self.before.values()), default=0)


Fill = Callable[[Filling, Room], Section]


@dataclass(frozen=True, slots=True)
class Slot:
    """One kind of content. Slots of one `group` share its cap; caps and floors depend on the compilation."""

    name: str
    group: str
    fill: Fill
    cap: Callable[[Filling], int] = lambda filling: filling.allowance
    floor: Callable[[Filling], int] = lambda filling: 0
    most_bytes: Callable[[Filling], int] = lambda filling: UNLIMITED_BYTES
