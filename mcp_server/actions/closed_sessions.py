"""What a closed conversation still waits for: its commit, and to become knowledge. Both outlast a crash."""

from __future__ import annotations

from functools import partial

from anyio.to_thread import run_sync

from mcp_server.errors import ContextManagerError
from mcp_server.memory import Memory
from mcp_server.store.checkpoint_files import folder_of

PENDING_COMMITS = "pending_commits"
"""Namespace of the state: path of a closed transcript → the slug for its commit's message."""

PENDING_EXTRACTION = "pending_extraction"
"""Namespace of the state: path of a closed transcript that extractors are still to read → its session."""


async def queue_extraction(memory: Memory, path: str, session: str) -> None:
    """Notes that a closed transcript is to become knowledge; `extract_pending` does it."""
    if memory.settings.lifecycle.extraction_trigger != "manual":
        await memory.state.put(PENDING_EXTRACTION, path, session)


async def commit_pending(memory: Memory) -> tuple[str | None, str]:
    """Commits every closed transcript that is not committed yet. A failure is told, and tried again later."""
    if not memory.settings.git.auto_commit:
        return None, "git.auto_commit is off"
    committed: str | None = None
    note = ""
    for path, slug in (await memory.state.entries(PENDING_COMMITS)).items():
        try:
            async with memory.locks.git():
                message = f"conversation: {slug}\n\nSession: {path}"
                paths = [path, *await run_sync(_checkpoints_of, memory, path)]
                done = await run_sync(partial(memory.git.commit_files, paths, message, redacted=True))
                committed = done.commit or committed
        except ContextManagerError as error:
            return committed, f"not committed yet: {error}"
        await memory.state.remove(PENDING_COMMITS, path)
        note = "".join(f"left out of the commit: {reason}" for reason in done.left_out.values()) or note
    return committed, note


def _checkpoints_of(memory: Memory, path: str) -> list[str]:
    """The checkpoints of a transcript's session: they are committed with it."""
    try:
        folder = folder_of(memory.transcripts.read(path).head.session_id)
    except ContextManagerError:
        return []
    return [stat.path for stat in memory.files.walk(f"{folder}/")]
