"""Checkpoints: the ones that are kept, read and listed. `checkpoint` makes one, `restore` goes back to one."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from anyio.to_thread import run_sync

from mcp_server.actions import sessions
from mcp_server.core.checkpoints import noted as notes
from mcp_server.core.checkpoints.document import Checkpoint, without_counts
from mcp_server.core.checkpoints.threads import key_exchanges, summary
from mcp_server.errors import ContextManagerError, Invalid
from mcp_server.memory import Memory
from mcp_server.store.changes import Change
from mcp_server.store.checkpoint_files import CheckpointFiles, Head

__all__ = ["Head", "forget", "latest", "listed", "named_chunks", "read", "rewrite"]


async def read(memory: Memory, number: str) -> Checkpoint:
    """The checkpoint of this id. Raises NotFound with the nearest one, Invalid for a file that is broken."""
    files = CheckpointFiles(memory.files)
    return await run_sync(lambda: files.read(files.find(number.strip())))


async def listed(memory: Memory, session: str | None = None) -> list[Head]:
    """What is kept of a session or of all, the newest first."""
    return await run_sync(CheckpointFiles(memory.files).heads, session)


async def latest(memory: Memory, session: str) -> Checkpoint | None:
    """The last checkpoint of a session, None if it has none."""
    files = CheckpointFiles(memory.files)

    def newest() -> Checkpoint | None:
        heads = files.heads(session)
        return files.read(heads[0].path) if heads else None

    return await run_sync(newest)


async def rewrite(memory: Memory, before: Checkpoint, after: Checkpoint) -> None:
    """Puts `after` in the place of `before`. Raises Conflict if that does not stand so any more."""
    async with memory.locks.files():
        path = await run_sync(CheckpointFiles(memory.files).write, after, before)
    memory.changes.publish(Change("file", path))


async def forget(memory: Memory, session: str) -> None:
    """Makes what a session's checkpoints say of its words anew from the transcript, after something of it was deleted
    there. What was counted, and the compile inputs, go: a recovery counts again. Call it under the transcript's lock,
    when the state knows the transcript as it is now."""
    files = CheckpointFiles(memory.files)
    turns = await sessions.session_turns(memory, session)

    def clean() -> None:
        for head in files.heads(session):
            with suppress(Invalid):  # one that cannot be read is cleaned as a file among files
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
    """The cold chunks that checkpoints name which somebody asked for: those do not expire. The automatic ones name all
    that was ever cold, and going back to one makes records again that are missing."""
    files = CheckpointFiles(memory.files)
    found: set[str] = set()
    for head in files.heads():
        if head.reason != "asked":
            continue
        with suppress(ContextManagerError):  # a broken one names nothing; git has it whole
            found.update(files.read(head.path).cold)
    return frozenset(found)
