"""Session state: the entries of a session that a checkpoint stores and a recovery puts back.

A feature that stores entries by session needs one line in `KEPT`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mcp_server.conversations import as_of, sessions
from mcp_server.knowledge import notes as session_notes
from mcp_server.knowledge.notes import Noted, from_dict, noted, with_texts, without_texts
from mcp_server.memory import Memory
from mcp_server.model import Turn
from mcp_server.relevance import clarity
from mcp_server.relevance.chunks import LiveChunk
from mcp_server.storage.values import READINGS, STEPS, Place, SessionState
from mcp_server.understanding.model import Model

TOPICS = "topics"
"""Namespace of the state: session → its active topics by name."""


@dataclass(frozen=True, slots=True)
class Kept:
    """An entry of the state, with the key `prefix` + session.

    `last_turn` is the field of its value, if any, with the number of the last processed turn. Later turns are processed
    when the entry is read.
    """

    namespace: str
    prefix: str = ""
    last_turn: str | None = None

    def place(self, session: str) -> Place:
        return self.namespace, self.prefix + session


KEPT = (
    Kept(clarity.NAMESPACE, f"{clarity.STATE}:", "lastTurnNumber"),
    Kept(clarity.NAMESPACE, f"{clarity.PRUNED}:"),
    Kept(session_notes.NAMESPACE, "", "turn"),
    Kept(TOPICS),
    Kept(READINGS),
    Kept(STEPS),
)


async def snapshot(memory: Memory, session: str) -> SessionState:
    """Returns the session's state as of this moment."""
    return await memory.live.read_state(session, [kept.place(session) for kept in KEPT])


def without_notes_texts(state: SessionState, session: str) -> SessionState:
    """Returns the state as a checkpoint stores it: its notes refer to turns and do not repeat their texts."""
    return replace(state, entries=_with_notes(state.entries, session, without_texts))


def notes_of(state: SessionState, session: str, turn: int, turns: Sequence[Turn], recognizer: Model) -> Noted:
    """Returns the session's notes after turn number `turn`; `turns` are all turns up to it."""
    before = from_dict(state.entries.get(session_notes.NAMESPACE, {}).get(session))
    return noted(turns, recognizer, before if before.turn <= turn else None)


async def replace_state(
    memory: Memory, session: str, stored: SessionState, chunks: list[LiveChunk], turn: int, turns: int
) -> None:
    """Replaces a session's state and live chunks in one transaction.

    `turn` is the last turn of the stored state; of the session's `turns` turns the later ones are hidden.
    """
    places = [kept.place(session) for kept in KEPT] + [(as_of.NAMESPACE, session)]
    said = await sessions.session_turns(memory, session)
    entries = _with_notes(stored.entries, session, lambda notes: with_texts(notes, said))
    if turn < turns:
        entries[as_of.NAMESPACE] = {session: as_of.entry(turn, turns)}
    await memory.live.replace_state(session, places, entries, chunks)


def _with_notes(
    entries: Mapping[str, Mapping[str, Any]], session: str, change: Callable[[object], object]
) -> dict[str, dict[str, Any]]:
    changed = {namespace: dict(values) for namespace, values in entries.items()}
    if session in changed.get(session_notes.NAMESPACE, {}):
        changed[session_notes.NAMESPACE][session] = change(changed[session_notes.NAMESPACE][session])
    return changed


async def end_rewind(memory: Memory, session: str, turns: Sequence[Turn]) -> None:
    """Ends the rewound state of a session, which continues with `turns`: the hidden turns are never processed.

    Call it under the transcript's lock, before the turns are processed.
    """
    hidden = await memory.state.get(as_of.NAMESPACE, session)
    if hidden is None:
        return
    last = turns[0].number - 1
    for kept in KEPT:
        namespace, key = kept.place(session)
        value = await memory.state.get(namespace, key) if kept.last_turn else None
        if isinstance(value, Mapping) and kept.last_turn and int(value.get(kept.last_turn, last)) < last:
            await memory.state.put(namespace, key, {**value, kept.last_turn: last})
    await memory.state.remove(as_of.NAMESPACE, session)


def topic_names(stored: Mapping[str, Mapping[str, Any]], session: str) -> tuple[str, ...]:
    """Returns the sorted names of the active topics in a session's entries."""
    value = stored.get(TOPICS, {}).get(session)
    if isinstance(value, Mapping):
        return tuple(sorted(str(name) for name, state in value.items() if isinstance(state, Mapping)))
    return ()
