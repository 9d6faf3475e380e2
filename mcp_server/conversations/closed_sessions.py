"""Queues the commit and the extraction of closed conversations, and makes the queued commits. The queues survive a
crash."""

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
"""Namespace of the state: path of a closed transcript that was not extracted yet → its session."""

LIVE_ITEMS = "live_items"
"""Namespace of the state: path of an open transcript → its items on its project's page."""

LIVE_PAGES = "live_pages"
"""Namespace of the state: path of a page with such items → `knowledge.live_pages.LivePage`."""

MOST_ALONE = 10
"""Up to this number of queued transcripts, each gets its own commit, which takes half a second. If more are queued,
because git was missing or `git.auto_commit` was off, they become one commit."""

MOST_REASONS = 3
"""Maximum number of reasons in the note about files that were left out."""


async def queue_extraction(memory: Memory, path: str, session: str) -> None:
    """Queues a closed transcript for `extract_pending`."""
    if memory.settings.lifecycle.extraction_trigger != "manual":
        await memory.state.put(PENDING_EXTRACTION, path, session)


async def commit_pending(memory: Memory) -> tuple[str | None, str]:
    """Commits every queued transcript with its checkpoints. Returns the last commit, and a note about what was left out
    or failed. A failed commit stays queued."""
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
    """Commits all queued transcripts and `paths` at once; `what` is for the message. Returns the same as
    `commit_pending`."""
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
    """Commits these queued transcripts, their checkpoints and other files, and removes them from the queue."""
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
