"""Which turns a compiled context holds: told by the text itself, and for parts of long turns by the receipt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass

from mcp_server.context.receipt import Receipt
from mcp_server.context.render import file_text, said
from mcp_server.memory import Memory
from mcp_server.text.derived_lines import sources_of


@dataclass(frozen=True, slots=True)
class KnownTurn:
    """A turn of the imported conversation: the unit that search ranks, and its words as a context shows them."""

    turn_id: str
    unit: str
    shown: str


@dataclass(frozen=True, slots=True)
class DerivedLine:
    """A line of knowledge: its words as a context shows them, and the units of the turns that it names as sources."""

    shown: str
    sources: frozenset[str]


async def derived_lines(memory: Memory) -> Mapping[str, DerivedLine]:
    """The lines of knowledge that were derived from turns, by their units."""
    import anyio

    def read() -> dict[str, DerivedLine]:
        found: dict[str, DerivedLine] = {}
        for folder in ("knowledge/", "archive/"):
            for stat in memory.files.walk(folder):
                text = memory.files.text_or_none(stat.path) if stat.path.endswith(".md") else None
                for number, line in enumerate((text or "").splitlines(), start=1):
                    sources = sources_of(line)
                    if sources:
                        shown = one_line(file_text(line))
                        found[f"{stat.path}#{number}"] = DerivedLine(shown, frozenset(map(str, sources)))
        return found

    return await anyio.to_thread.run_sync(read)


async def known_turns(memory: Memory) -> Mapping[str, KnownTurn]:
    """Every turn of the workspace that has an id, by that id, read from the transcripts."""
    import anyio

    def read() -> dict[str, KnownTurn]:
        found: dict[str, KnownTurn] = {}
        for path in memory.transcripts.all():
            for placed in memory.transcripts.read(path).turns:
                turn = placed.turn
                if turn.turn_id is not None:
                    shown = one_line(said(turn.name or turn.role, turn.content))
                    found[turn.turn_id] = KnownTurn(turn.turn_id, f"{path}#{turn.number}", shown)
        return found

    return await anyio.to_thread.run_sync(read)


def one_line(text: str) -> str:
    """`text` with every run of white space as one space: line breaks and indents do not count."""
    return " ".join(text.split())


def whole(turns: Iterable[KnownTurn], text: str) -> frozenset[str]:
    """The ids of those whose words, speaker and all, stand in `text` from the first to the last."""
    line = one_line(text)
    return frozenset(turn.turn_id for turn in turns if turn.shown in line)


def units_of(receipt: Receipt) -> frozenset[str]:
    """Returns the units that a receipt counts as included."""
    return frozenset(one.unit for one in receipt.considered if one.included and one.unit)


def inside(
    turns: Iterable[KnownTurn], text: str, units: Set[str], derived: Mapping[str, DerivedLine] | None = None
) -> frozenset[str]:
    """Returns the ids of the turns that `text` holds: whole, by the part that was found of a long turn, or by a line
    that was derived from them. `units` are those that the text is known to include."""
    wanted = list(turns)
    missing = {turn.unit for turn in wanted} - units
    line = one_line(text)
    for unit, known in (derived or {}).items():
        if known.sources & missing and (unit in units or known.shown in line):
            missing -= known.sources
    return whole(wanted, text) | frozenset(turn.turn_id for turn in wanted if turn.unit not in missing)
