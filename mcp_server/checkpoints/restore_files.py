"""Restores the files of a checkpoint, anchors and on request the knowledge, and commits them.

Every step can be repeated. A file with neither its old nor its new content was changed by another program meanwhile: it
is left unchanged and reported.
"""

from __future__ import annotations

from anyio.to_thread import run_sync

from mcp_server.checkpoints.document import Checkpoint
from mcp_server.checkpoints.restore_plan import without_forgotten
from mcp_server.errors import Conflict, ContextManagerError, NotFound, Unavailable
from mcp_server.knowledge.anchors_text import with_entry
from mcp_server.memory import Memory
from mcp_server.storage.local.checkpoint_trees import ANCHORS, FOLDERS, CheckpointTrees
from mcp_server.storage.local.recovery_intents import RecoveryIntent

TAG = "memory/before/"


def put_back(
    memory: Memory, intent: RecoveryIntent, then: Checkpoint, own: Checkpoint
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Restores anchors, and on request the knowledge. Returns the paths that were written or deleted, and those that
    were left unchanged because another program changed them meanwhile."""
    trees = CheckpointTrees(memory.files)
    before, after = _contents(memory, trees, own, intent), _contents(memory, trees, then, intent)
    wanted = [path for path in sorted(before.keys() | after.keys()) if before.get(path) != after.get(path)]
    done: list[str] = []
    left: list[str] = []
    for path in sorted(wanted, key=lambda path: path not in after):  # what comes is there before anything goes
        now, shall = trees.current((path,)).get(path), after.get(path)
        if now == shall:
            done.append(path)
        elif now != before.get(path):
            left.append(path)
        else:
            try:
                if shall is not None:
                    memory.files.write_bytes_atomic(path, shall, now, new=now is None)
                else:
                    memory.files.remove(path)
                done.append(path)
            except (Conflict, NotFound):
                left.append(path)
    return tuple(done), tuple(left)


def _contents(memory: Memory, trees: CheckpointTrees, of: Checkpoint, intent: RecoveryIntent) -> dict[str, bytes]:
    """Returns the checkpoint's files that this recovery restores, without text that was forgotten on request since."""
    try:
        names = trees.names(of.knowledge_tree) if of.knowledge_tree else {}
    except Unavailable:
        if intent.knowledge:
            raise
        names = {}
    if of.knowledge_tree is None or not names:
        return {ANCHORS: _anchors_text(of)} if of.anchors else {}
    found = trees.read(of.knowledge_tree, [path for path in names if _is_about(path, intent)])
    return {path: data for path, raw in found.items() if (data := without_forgotten(memory, path, raw)) is not None}


def _is_about(path: str, intent: RecoveryIntent) -> bool:
    return path == ANCHORS or (intent.knowledge and path.startswith(FOLDERS) and path not in intent.skipped)


def _anchors_text(of: Checkpoint) -> bytes:
    text = ""
    for one in of.anchors:
        text = with_entry(text, one)
    return text.encode()


async def committed(memory: Memory, intent: RecoveryIntent, then: Checkpoint, own: Checkpoint) -> list[str]:
    """Tags the last commit, and commits the changes; a change that cannot be committed stays in the work tree."""
    if not memory.git.available() or not memory.settings.git.auto_commit:
        why = "git.auto_commit is off" if memory.git.available() else "git is not installed here"
        return [f"{why}: nothing was committed; the files were restored"]
    trees = CheckpointTrees(memory.files)
    tag = f"{TAG}{intent.undo}"
    message = (
        f"recovery: back to checkpoint {then.id}\n\nSession: {then.session}, turn {then.turn}\n"
        f"Undo: context-manager recover {own.id} --apply"
    )
    async with memory.locks.git():
        try:
            known = await run_sync(
                lambda: [*_contents(memory, trees, own, intent), *_contents(memory, trees, then, intent)]
            )
            head = await run_sync(memory.git.head)
            tagged = head is not None and await run_sync(memory.git.tags.create_new, tag, head)
            commit = await run_sync(memory.git.commit, known, message)
            if commit is None and tagged:
                await run_sync(memory.git.tags.remove, tag)
        except ContextManagerError as error:
            return [f"not committed: {error}; the files are what they were"]
    return [f"committed as {commit[:10]}; the commit before is tagged {tag}"] if commit else []
