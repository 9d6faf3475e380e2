"""Compares the present state with a checkpoint's: what `restore` would change, in words, and what it would leave."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from difflib import SequenceMatcher

from anyio.to_thread import run_sync

from mcp_server.checkpoints import stored
from mcp_server.checkpoints.document import Checkpoint
from mcp_server.checkpoints.kept import snapshot, topic_names
from mcp_server.errors import Unavailable
from mcp_server.knowledge.anchor import anchors
from mcp_server.knowledge.anchors import Anchor
from mcp_server.memory import Memory
from mcp_server.model import Caller
from mcp_server.relevance.live_set import live_set
from mcp_server.storage.checkpoint_files import FOLDERS, CheckpointTrees
from mcp_server.text.destinations import is_for_own_hand
from mcp_server.text.prose import counted

MOST_LISTED = 20
"""At most this many names of a kind are listed; the others are counted."""

NOTHING = "Nothing would change."


@dataclass(frozen=True, slots=True)
class State:
    """The state that a recovery restores. `knowledge` maps paths to texts; None leaves knowledge out of the
    comparison."""

    anchors: tuple[Anchor, ...] = ()
    topics: tuple[str, ...] = ()
    live: tuple[str, ...] = ()
    knowledge: Mapping[str, str] | None = None


def difference(now: State, then: State) -> str:
    """Returns what would change if `then` replaced `now`, a line per kind; one sentence if nothing would.

    An anchor counts as changed if its note or kind differs, not if its time does.
    """
    here, there = ({anchor.item: (anchor.kind, anchor.note) for anchor in state.anchors} for state in (now, then))
    lines = [
        *_listed("anchors set again", there.keys() - here.keys()),
        *_listed("anchors taken away", here.keys() - there.keys()),
        *_listed("anchors changed", {item for item in here.keys() & there.keys() if here[item] != there[item]}),
        *_listed("topics active again", {*then.topics} - {*now.topics}),
        *_listed("topics no longer active", {*now.topics} - {*then.topics}),
        *_counted("live again", {*then.live} - {*now.live}),
        *_counted("no longer live", {*now.live} - {*then.live}),
    ]
    if now.knowledge is not None and then.knowledge is not None:
        lines += _changed_files(now.knowledge, then.knowledge)
    return "\n".join(lines) or NOTHING


def _changed_files(now: Mapping[str, str], then: Mapping[str, str]) -> list[str]:
    files: list[str] = []
    added = removed = 0
    for path in sorted(now.keys() | then.keys()):
        if now.get(path) != then.get(path):
            kind = "added" if path not in now else "removed" if path not in then else "changed"
            came, went = line_changes(now.get(path, ""), then.get(path, ""))
            files.append(f"  {path}: {kind}, +{came:,} −{went:,}")
            added, removed = added + came, removed + went
    head = [f"knowledge: {counted(len(files), 'file')}, +{added:,} −{removed:,} lines"] if files else []
    rest = [f"  and {counted(len(files) - MOST_LISTED, 'file')} more"] if len(files) > MOST_LISTED else []
    return [*head, *files[:MOST_LISTED], *rest]


def line_changes(before: str, after: str) -> tuple[int, int]:
    """Returns (lines added, lines removed) between two texts."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    start = 0
    while start < min(len(old), len(new)) and old[start] == new[start]:
        start += 1
    end = 0
    while end < min(len(old), len(new)) - start and old[-1 - end] == new[-1 - end]:
        end += 1
    old, new = old[start : len(old) - end], new[start : len(new) - end]
    same = sum(match.size for match in SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks())
    return len(new) - same, len(old) - same


def _listed(what: str, names: Collection[str]) -> list[str]:
    more = f" and {len(names) - MOST_LISTED:,} more" if len(names) > MOST_LISTED else ""
    return [f"{what}: {', '.join(sorted(names)[:MOST_LISTED])}{more}"] if names else []


def _counted(what: str, names: Collection[str]) -> list[str]:
    return [f"{what}: {counted(len(names), 'chunk')}"] if names else []


NO_UNDO = "its undo could not bring it back"


async def diff_text(memory: Memory, number: str, other: str | None) -> str:
    """Returns what restoring a checkpoint with its knowledge would change, compared with now or with checkpoint
    `other`. Raises as `restore` does."""
    then = await stored.read(memory, number)
    if other is None:
        return await describe_changes(memory, then, True, {})
    trees = CheckpointTrees(memory.files, memory.git)
    since = await stored.read(memory, other)
    before = replace(_state_of(since), knowledge=await run_sync(_texts, memory, trees, since))
    after = replace(_state_of(then), knowledge=await run_sync(_texts, memory, trees, then))
    return difference(before, after)


async def describe_changes(memory: Memory, then: Checkpoint, knowledge: bool, stays: Collection[str]) -> str:
    """Returns what restoring would change, in words, without the files in `stays`."""
    trees = CheckpointTrees(memory.files, memory.git)
    here = there = None
    if knowledge:
        out = {*stays, *dict(then.left_out)}
        here, there = (
            {path: text for path, text in texts.items() if path not in out}
            for texts in (await run_sync(_texts_now, trees), await run_sync(_texts, memory, trees, then))
        )
    now = await _now(memory, then.session, here)
    return difference(now, replace(_state_of(then), knowledge=there))


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
    """Returns a checkpoint's knowledge files, without text that was forgotten on request since."""
    if of.knowledge_tree is None:
        raise Unavailable(f"checkpoint {of.id} holds no knowledge; go back to it without")
    names = [path for path in trees.names(of.knowledge_tree) if path.startswith(FOLDERS)]
    found = trees.read(of.knowledge_tree, names).items()
    clean = ((path, without_forgotten(memory, path, data)) for path, data in found)
    return {path: data.decode("utf-8", "replace") for path, data in clean if data is not None}


def _texts_now(trees: CheckpointTrees) -> dict[str, str]:
    return {path: data.decode("utf-8", "replace") for path, data in trees.current(trees.paths()).items()}


def unchanged_files(memory: Memory, then: Checkpoint, caller: Caller) -> dict[str, str]:
    """Returns the files that restoring would not change, each with the reason: the checkpoint lacks them, its undo
    would lack them, or only the user may change them."""
    trees = CheckpointTrees(memory.files, memory.git)
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
    """Returns the bytes without forgotten text; None for a file that was forgotten as a whole."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return data
    clean = memory.forgotten.document(path, text)
    return None if clean is None else clean.encode("utf-8") if clean != text else data
