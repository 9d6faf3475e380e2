"""Reads the live context of a session for a compilation: its turns as they are now, and the dropped chunks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from anyio.to_thread import run_sync

from mcp_server.context.inputs import Dropped, Shortened
from mcp_server.memory import Memory
from mcp_server.model import Turn
from mcp_server.relevance.chunks import LiveChunk, Standing, as_shown, text_of

MOST_DROPPED = 40
"""Number of dropped chunks that a compilation receives: more never fit into its list."""

WORDS = 160
"""Characters of a dropped text in its line."""


@dataclass(frozen=True, slots=True)
class Live:
    """The turns as they are now, oldest first; those that are `shortened`, and the `dropped` chunks, newest first."""

    turns: tuple[Turn, ...] = ()
    shortened: tuple[Shortened, ...] = ()
    dropped: tuple[Dropped, ...] = ()


async def live_context(memory: Memory, session: str, turns: Sequence[Turn]) -> Live:
    """Returns the live context of a session's `turns`, without later ones. The last user turn is always whole.

    If there is no live set (the session has ended, or its state was lost), it is read from cold storage.
    """
    standing = await memory.live.shortened_chunks(session)
    if standing is None:
        standing = await run_sync(_by_records, memory, session)
    return await run_sync(_shown, turns, standing) if standing else Live(tuple(turns))


def _by_records(memory: Memory, session: str) -> list[Standing]:
    return [
        Standing(one.chunk_id, one.kind, one.turn, one.part, one.form, one.shown, one.name)
        for one in memory.cold.of(session)
        if one.form != "whole"
    ]


def _shown(turns: Sequence[Turn], standing: Sequence[Standing]) -> Live:
    by_turn: dict[int, dict[int, LiveChunk | Standing]] = {}
    for one in standing:
        if one.kind in ("message", "tool"):
            by_turn.setdefault(one.turn, {})[one.part] = one
    last = next((turn.number for turn in reversed(turns) if turn.role == "user"), None)
    shown: list[Turn] = []
    shortened: list[Shortened] = []
    for turn in turns:
        chunks = by_turn.get(turn.number)
        if not chunks or turn.number == last:
            shown.append(turn)
        elif (stands := as_shown(turn, chunks)) is not None:
            shown.append(stands)
            shortened.append(Shortened(turn.number, tuple(chunks[part].id for part in sorted(chunks))))
    by_number = {turn.number: turn for turn in turns}
    until = turns[-1].number if turns else 0
    gone = [one for one in reversed(standing) if one.form == "cold" and one.turn != last and one.turn <= until]
    dropped = [Dropped(one.id, one.turn, _line(one, by_number.get(one.turn))) for one in gone]
    return Live(tuple(shown), tuple(shortened), tuple(dropped))


def _line(one: Standing, turn: Turn | None) -> str:
    if turn is None or one.kind not in ("message", "tool") or one.part > len(turn.tool_calls):
        return f"{one.kind} {one.name}"
    said = text_of(turn, one.part)[:WORDS]
    return f"{turn.name or turn.role}: {said}" if one.part == 0 else said
