"""What going back to a checkpoint would change, in words, and what would stay as it is: the dry run of `restore`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from anyio.to_thread import run_sync

from mcp_server.checkpoints import stored
from mcp_server.checkpoints.diff import State, difference
from mcp_server.checkpoints.diff import text as difference_text
from mcp_server.checkpoints.document import Checkpoint
from mcp_server.checkpoints.session_state import snapshot, topic_names
from mcp_server.errors import Unavailable
from mcp_server.knowledge.anchor import anchors
from mcp_server.memory import Memory
from mcp_server.model import Caller
from mcp_server.relevance.live_set import live_set
from mcp_server.storage.local.checkpoint_trees import FOLDERS, CheckpointTrees
from mcp_server.text.destinations import is_for_own_hand

NO_UNDO = "its undo could not bring it back"


async def diff(memory: Memory, number: str, other: str | None = None) -> str:
    """What going back to a checkpoint would change, its knowledge too: of things as they are now, or as they were at
    `other`. Raises as `restore` does."""
    then = await stored.read(memory, number)
    if other is None:
        return await told(memory, then, True, {})
    trees = CheckpointTrees(memory.files)
    since = await stored.read(memory, other)
    before = replace(_state_of(since), knowledge=await run_sync(_texts, memory, trees, since))
    after = replace(_state_of(then), knowledge=await run_sync(_texts, memory, trees, then))
    return difference_text(difference(before, after))


async def told(memory: Memory, then: Checkpoint, knowledge: bool, stays: Collection[str]) -> str:
    """What going back would change, in words."""
    trees = CheckpointTrees(memory.files)
    here = there = None
    if knowledge:
        out = {*stays, *dict(then.left_out)}
        here, there = (
            {path: text for path, text in texts.items() if path not in out}
            for texts in (await run_sync(_texts_now, trees), await run_sync(_texts, memory, trees, then))
        )
    now = await _now(memory, then.session, here)
    return difference_text(difference(now, replace(_state_of(then), knowledge=there)))


async def _now(memory: Memory, session: str, knowledge: Mapping[str, str] | None) -> State:
    state = await snapshot(memory, session)
    return State(
        anchors=tuple(await run_sync(anchors, memory)),
        topics=topic_names(state.entries, session),
        live=tuple(chunk.id for chunk in await live_set(memory, session) if chunk.form != "cold"),
        knowledge=knowledge,
    )


def _state_of(of: Checkpoint) -> State:
    return State(anchors=of.anchors, topics=of.topics, live=of.live)


def _texts(memory: Memory, trees: CheckpointTrees, of: Checkpoint) -> dict[str, str]:
    """The knowledge of a checkpoint, without what was forgotten on request since."""
    if of.knowledge_tree is None:
        raise Unavailable(f"checkpoint {of.id} holds no knowledge; go back to it without")
    names = [path for path in trees.names(of.knowledge_tree) if path.startswith(FOLDERS)]
    found = trees.read(of.knowledge_tree, names).items()
    clean = ((path, without_forgotten(memory, path, data)) for path, data in found)
    return {path: data.decode("utf-8", "replace") for path, data in clean if data is not None}


def _texts_now(trees: CheckpointTrees) -> dict[str, str]:
    paths = [path for path in trees.paths() if path.startswith(FOLDERS)]
    return {path: data.decode("utf-8", "replace") for path, data in trees.current(paths).items()}


def stays(memory: Memory, then: Checkpoint, caller: Caller) -> dict[str, str]:
    """Files that stay as they are, each with the reason: the checkpoint does not hold them, its undo could not, or only
    the user's own hand may change them."""
    trees = CheckpointTrees(memory.files)
    found = {path: f"{NO_UNDO}, it {why}" for path, why in trees.refused().items()}
    found |= {path: f"the checkpoint does not hold it, it {why}" for path, why in then.left_out}
    if caller.source == "cli" or not memory.settings.knowledge.approve:
        return found
    there, here = _texts(memory, trees, then), _texts_now(trees)
    by_hand = f"it is for the user's own hand: `context-manager recover {then.id} --knowledge --apply`"
    for path in sorted(there.keys() | here.keys()):
        if is_for_own_hand(path) and there.get(path) != here.get(path):
            found.setdefault(path, by_hand)
    return found


def without_forgotten(memory: Memory, path: str, data: bytes) -> bytes | None:
    """The bytes, bringing back nothing that was forgotten; None for a file that was forgotten as a whole."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return data
    clean = memory.forgotten.document(path, text)
    return None if clean is None else clean.encode("utf-8") if clean != text else data
