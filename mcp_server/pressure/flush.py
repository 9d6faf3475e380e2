"""Flush: before something leaves the live context, what it decided, taught or left to do goes into the journal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anyio.to_thread import run_sync

from mcp_server.conversations import sessions
from mcp_server.conversations.projects import project_of
from mcp_server.errors import ContextManagerError
from mcp_server.knowledge import remember
from mcp_server.knowledge.flush import FlushLine, lines
from mcp_server.memory import Memory
from mcp_server.model import Caller, Turn
from mcp_server.relevance.chunks import LiveChunk, original_of
from mcp_server.storage.values import Change
from mcp_server.text.destinations import place_for
from mcp_server.text.redaction import secrets


async def before_drop(
    memory: Memory, session: str, chunks: Sequence[LiveChunk], turns: Mapping[int, Turn]
) -> tuple[str, ...]:
    """Writes what `chunks` hold for the journal, each line once, of the day on which it was said, with its source;
    returns the new lines. A line that cannot be written (a secret in it, a full disk) stays in the transcript alone.

    Call it under the transcript's lock; `turns` are the session's, by their number.
    """
    found = await run_sync(_lines, chunks, turns)
    row = await memory.state.session(session) if found else None
    if row is None:
        return ()
    project = await project_of(memory, Caller(), row.project or "global")
    paths = (await sessions.show_session(memory, session)).paths_by_turn
    written: list[str] = []
    for line in found:
        day = memory.local_date(turns[line.turn].at)
        entry = line.entry(paths[line.turn])
        try:
            place = place_for("journal", entry, project.slug, day, None)
            done = await remember.write_entry(memory, entry, place, session)
        except ContextManagerError:
            continue
        if done.diff:
            written.append(entry)
            memory.changes.publish(Change("file", done.path, session))
    return tuple(written)


def _lines(chunks: Sequence[LiveChunk], turns: Mapping[int, Turn]) -> list[FlushLine]:
    texts = []
    for chunk in sorted(chunks, key=lambda one: (one.turn, one.part)):
        said = original_of(chunk, turns.get(chunk.turn)) if chunk.form == "whole" else None
        if said is not None:
            texts.append((chunk.turn, said))
    return [line for line in lines(texts) if not secrets(line.text)]
