"""Checkpoints: reads, lists and rewrites stored ones. `checkpoint` makes one, `restore` goes back to one."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from anyio.to_thread import run_sync

from mcp_server.checkpoints.document import Checkpoint, without_counts
from mcp_server.checkpoints.threads import key_exchanges, summary
from mcp_server.conversations import sessions
from mcp_server.errors import ContextManagerError, Invalid
from mcp_server.knowledge import notes
from mcp_server.memory import Memory
from mcp_server.storage.checkpoint_files import CheckpointFiles, Head
from mcp_server.storage.values import Change

__all__ = ["Head", "forget", "latest", "listed", "named_chunks", "read", "rewrite"]


async def read(memory: Memory, number: str) -> Checkpoint:
    """Returns the checkpoint of this id. Raises NotFound with the nearest id, Invalid if its file is broken."""
    files = CheckpointFiles(memory.files)
    return await run_sync(lambda: files.read(files.find(number.strip())))


async def listed(memory: Memory, session: str | None = None) -> list[Head]:
    """Returns the checkpoints of a session, or of all sessions, newest first."""
    return await run_sync(CheckpointFiles(memory.files).heads, session)


async def latest(memory: Memory, session: str) -> Checkpoint | None:
    """Returns the last checkpoint of a session, or None if it has none."""
    files = CheckpointFiles(memory.files)

    def newest() -> Checkpoint | None:
        heads = files.heads(session)
        return files.read(heads[0].path) if heads else None

    return await run_sync(newest)


async def rewrite(memory: Memory, before: Checkpoint, after: Checkpoint) -> None:
    """Replaces `before` with `after`. Raises Conflict if the stored checkpoint no longer equals `before`."""
    async with memory.locks.files():
        path = await run_sync(CheckpointFiles(memory.files).write, after, before)
    memory.changes.publish(Change("file", path))


async def forget(memory: Memory, session: str) -> None:
    """Rewrites the words in a session's checkpoints from the transcript, after words were deleted there.

    Counts and compile inputs are removed: a recovery counts again. Call it under the transcript's lock, after the state
    was updated from the transcript.
    """
    files = CheckpointFiles(memory.files)
    turns = await sessions.session_turns(memory, session)

    def clean() -> None:
        for head in files.heads(session):
            with suppress(Invalid):  # an unreadable one is cleaned as any other file
                before = files.read(head.path)
                seen = [turn for turn in turns if turn.number <= before.turn]
                said = notes.noted(seen, memory.recognizer())
                came_to = notes.outcome(said, memory.recognizer())
                after = replace(
                    without_counts(before),
                    thread=summary(seen),
                    exchanges=key_exchanges(seen, came_to.settled),
                    decisions=came_to.decisions,
                    open_items=came_to.open_items,
                    last_tool_call=said.last_tool_call,
                    files=said.files,
                )
                files.replace(head.path, after)

    async with memory.locks.files():
        await run_sync(clean)


def named_chunks(memory: Memory) -> frozenset[str]:
    """Returns the cold chunks that must not expire, because a checkpoint that was asked for names them.

    Automatic checkpoints do not count: they name all chunks that were ever cold, and going back to one recreates
    missing records.
    """
    files = CheckpointFiles(memory.files)
    found: set[str] = set()
    for head in files.heads():
        if head.reason != "asked":
            continue
        with suppress(ContextManagerError):  # a broken checkpoint names no chunks
            found.update(files.read(head.path).cold)
    return frozenset(found)
