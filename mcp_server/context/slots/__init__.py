"""Slots of a compiled context: a `Slot` says how one kind of content is filled, a `Section` is its text.

A new slot is a `fill` function, and an entry in `compiler.FILL` and `compiler.SHOWN`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from mcp_server.context.inputs import CompileInputs
from mcp_server.context.receipt import Considered
from mcp_server.tokens import Meter, Room


@dataclass(frozen=True, slots=True)
class Section:
    """The text of a slot, and the receipt's lines for everything that it considered.

    `lines` are the shown line numbers of files and `turns` the shown turns of the session, so that nothing is repeated.
    """

    text: str = ""
    considered: tuple[Considered, ...] = ()
    lines: Mapping[str, frozenset[int]] = field(default_factory=dict)
    turns: frozenset[int] = frozenset()


NOTHING = Section()


@dataclass(frozen=True, slots=True)
class Filling:
    """The arguments of `fill`: the inputs, the whole allowance in tokens, and the sections filled before."""

    inputs: CompileInputs
    allowance: int
    meter: Meter
    before: Mapping[str, Section]

    def share(self, part: float) -> int:
        """Returns a share of the allowance (0..1) in tokens."""
        return int(self.allowance * part)

    def shown_lines(self, path: str) -> frozenset[int]:
        """Returns the line numbers of a file that are already shown."""
        return frozenset[int]().union(*(section.lines.get(path, ()) for section in self.before.values()))


Fill = Callable[[Filling, Room], Section]


@dataclass(frozen=True, slots=True)
class Slot:
    """A slot holds one kind of content, such as the journal. Slots of one `group` share its cap.

    `cap` gives the most tokens that the slot may take (default: the whole allowance), `floor` the tokens that earlier
    slots keep free for it (default: 0), `most_bytes` the most bytes of its text (default: any number). Floors depend on
    the inputs and the safety line only. A slot that `grows` may exceed its cap with tokens that no other slot uses.
    """

    name: str
    group: str
    fill: Fill
    cap: Callable[[Filling], int] | None = None
    floor: Callable[[Filling], int] | None = None
    most_bytes: Callable[[Filling], int] | None = None
    grows: bool = False
