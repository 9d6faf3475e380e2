"""What a closed conversation still waits for: its commit, and to become knowledge. Both outlast a crash."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from anyio.to_thread import run_sync

from mcp_server.errors import ContextManagerError
from mcp_server.memory import Memory
from mcp_server.storage.checkpoint_files import folder_of
from mcp_server.storage.history_values import Committed
from mcp_server.text.transcript_head import slug_in

PENDING_COMMITS = "pending_commits"
"""Namespace of the state: path of a closed transcript → its session."""

PENDING_EXTRACTION = "pending_extraction"
"""Namespace of the state: path of a closed transcript that extractors are still to read → its session."""

LIVE_ITEMS = "live_items"
"""Namespace of the state: path of an open transcript → its items that its project's page shows already."""

LIVE_PAGES = "live_pages"
"""Namespace of the state: path of a page that shows such items → `core.lifecycle.live_pages.LivePage`."""

MOST_ALONE = 10
"""Up to so many that wait get a commit each: more than end at once on any day, and half a second of one core. More of
them have piled up (git was missing, `git.auto_commit` was off), and are one commit."""

MOST_REASONS = 3
"""Reasons that are told why files were left out."""


async def queue_extraction(memory: Memory, path: str, session: str) -> None:
    """Notes that a closed transcript is to become knowledge; `extract_pending` does it."""
    if memory.settings.lifecycle.extraction_trigger != "manual":
        await memory.state.put(PENDING_EXTRACTION, path, session)


async def commit_pending(memory: Memory) -> tuple[str | None, str]:
    """Commits every closed transcript that is not committed yet, with its checkpoints; returns the last commit, and
    what was left out. A failure is told, and tried again later."""
    waiting = await memory.state.entries(PENDING_COMMITS)
    if len(waiting) > MOST_ALONE:
        return await commit_together(memory, f"{len(waiting)} that waited")
    committed, note = None, ""
    try:
        for path, session in waiting.items():
            message = f"conversation: {slug_in(path, session)}\n\nSession: {path}"
            one, said = await _commit(memory, message, {path: session}, [])
            committed, note = one or committed, said or note
    except ContextManagerError as error:
        return committed, f"not committed yet: {error}"
    return committed, note


async def commit_together(memory: Memory, what: str, paths: Iterable[str] = ()) -> tuple[str | None, str]:
    """As `commit_pending`, but all that waits, and `paths` with it, is one commit; `what` is for its message."""
    waiting = await memory.state.entries(PENDING_COMMITS)
    files = sorted({*paths, *waiting})
    if not files:
        return None, "nothing to commit"
    try:
        return await _commit(memory, f"conversation: {what}\n\n{len(files)} files", waiting, files)
    except ContextManagerError as error:
        return None, f"not committed yet: {error}"


async def _commit(
    memory: Memory, message: str, waiting: Mapping[str, str], paths: Iterable[str]
) -> tuple[str | None, str]:
    """One commit of these transcripts, which no longer wait then, their checkpoints, and other files."""
    if not memory.settings.git.auto_commit:
        return None, "git.auto_commit is off"

    def commit() -> Committed:
        folders = {folder_of(session) for session in waiting.values()}
        checkpoints = [stat.path for folder in folders for stat in memory.files.walk(f"{folder}/")]
        return memory.git.commit_files([*paths, *waiting, *checkpoints], message, redacted=True)

    async with memory.locks.git():
        done = await run_sync(commit)
    await memory.state.remove(PENDING_COMMITS, *waiting)
    reasons = list(dict.fromkeys(done.left_out.values()))[:MOST_REASONS]
    return done.commit, f"left out of the commit: {'; '.join(reasons)}" if reasons else ""
