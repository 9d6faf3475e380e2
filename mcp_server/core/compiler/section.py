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

    `lines` holds the line numbers of files that are shown, `turns` the shown turns of the session itself, so that
    nothing is shown twice.
    """

    text: str = ""
    considered: tuple[Considered, ...] = ()
    lines: Mapping[str, frozenset[int]] = field(default_factory=dict)
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

    def shown_lines(self, path: str) -> frozenset[int]:
        """Returns the line numbers of a file that are already shown."""
        return frozenset[int]().union(*(section.lines.get(path, ()) for section in self.before.values()))


Fill = Callable[[Filling, Room], Section]


@dataclass(frozen=True, slots=True)
class Slot:
    """One kind of content. Slots of one `group` share its cap; caps and floors depend on the compilation. A slot that
    `grows` may exceed its caps with tokens that no other slot uses."""

    name: str
    group: str
    fill: Fill
    cap: Callable[[Filling], int] = lambda filling: filling.allowance
    floor: Callable[[Filling], int] = lambda filling: 0
    most_bytes: Callable[[Filling], int] = lambda filling: UNLIMITED_BYTES
    grows: bool = False
