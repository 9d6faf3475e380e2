"""Restores the state of a session, and on request the knowledge files, from a checkpoint.

    plan: the changes as text (a dry run ends here)
      → a new checkpoint, which is the undo → the intent, on disk → files → commit → the session's state → done

After the intent is written, every step can be repeated: after a crash the next process continues (`finish`). A file
that another program changed meanwhile is left unchanged and reported. Conversations never change: turns after the
checkpoint stay in their transcript, go to cold storage, and are hidden until the next message.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from posixpath import commonprefix

from anyio.to_thread import run_sync

from mcp_server.checkpoints import checkpoint, stored
from mcp_server.checkpoints.document import Checkpoint
from mcp_server.checkpoints.kept import replace_state, snapshot, topic_names, verify
from mcp_server.conversations import sessions
from mcp_server.conversations.closed_sessions import LIVE_ITEMS, LIVE_PAGES
from mcp_server.errors import Conflict, ContextManagerError, NotFound, Unavailable
from mcp_server.knowledge.anchor import anchors
from mcp_server.knowledge.anchors import Anchor, with_entries
from mcp_server.memory import Memory
from mcp_server.model import Caller
from mcp_server.relevance.chunks import ColdRecord, DropReason, LiveChunk, original_of
from mcp_server.relevance.live_set import live_set
from mcp_server.storage.checkpoint_files import ANCHORS, FOLDERS, CheckpointTrees
from mcp_server.storage.journal import RecoveryIntent, RecoveryIntents
from mcp_server.storage.values import Change, SessionRow, SessionState
from mcp_server.text.destinations import is_for_own_hand
from mcp_server.text.prose import counted

TAG = "memory/before/"
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Restored:
    """The changes of a restoration, in words. `applied` is False for a dry run. `undo` is the checkpoint that reverses
    it; `paths` are the files that were written or deleted."""

    checkpoint: Checkpoint
    knowledge: bool
    difference: str
    applied: bool = False
    undo: str | None = None
    paths: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


async def restore(
    memory: Memory, number: str, caller: Caller, *, apply: bool, knowledge: bool | None = None
) -> Restored:
    """Returns the changes that restoring a checkpoint would make; with `apply` makes them, durably and with an undo.

    `knowledge` says whether the knowledge files are restored too. By default they are only if the checkpoint is the
    undo of a restoration that included them.

    Raises:
        NotFound: the checkpoint or its conversation does not exist.
        Unavailable: its knowledge is not on this machine, or the disk refuses.
    """
    await sessions.ready(memory)
    await finish(memory)
    then = await stored.read(memory, number)
    if knowledge is None:
        undoes = (then.state or {}).get("recovery")
        knowledge = isinstance(undoes, Mapping) and bool(undoes.get("knowledge"))
    if knowledge and then.state is None:
        raise Unavailable(
            f"the knowledge of checkpoint {then.id} is not on this machine; it was made on another machine; "
            f"`recover {then.id}` without it goes back to its turn and its anchors"
        )
    stays = await run_sync(unchanged_files, memory, then, caller) if knowledge else {}
    row = await sessions.require(memory, then.session)
    if not apply:
        text = await describe_changes(memory, then, knowledge, stays)
        return Restored(then, knowledge, text, notes=_notes(row, then, stays))
    async with memory.locks.transcript(then.session):
        row = await sessions.require(memory, then.session)
        text = await describe_changes(memory, then, knowledge, stays)
        about = {"of": then.id, "knowledge": knowledge}
        own = await checkpoint.make_locked(memory, row, "recovery", f"before going back to {then.id}", about)
        if knowledge:
            stays = {**{path: f"{NO_UNDO}, it {why}" for path, why in own.left_out}, **stays}
        intent = RecoveryIntent(then.id, own.id, then.session, row.turns, knowledge, tuple(sorted(stays)))
        await run_sync(RecoveryIntents(memory.files).write, intent)
        paths, notes = await _carry_out(memory, intent, then, own)
    _publish_changes(memory, then.session, paths)
    checked = await verify(memory, then)
    return Restored(then, knowledge, text, True, own.id, paths, (*_notes(row, then, stays), *notes, checked.sentence))


async def finish(memory: Memory) -> int:
    """Finishes recoveries that a crash interrupted; returns their number. Skips one that another process is running."""
    intents = RecoveryIntents(memory.files)
    done = 0
    for intent in await run_sync(intents.all):
        async with memory.locks.transcript(intent.session):
            if intent not in await run_sync(intents.all):  # its own process has finished it
                continue
            try:
                then, own = await stored.read(memory, intent.target), await stored.read(memory, intent.undo)
            except NotFound:  # a checkpoint was deleted by hand: the recovery cannot be finished
                await run_sync(intents.erase, intent)
                continue
            try:
                paths, _ = await _carry_out(memory, intent, then, own)
            except ContextManagerError as error:  # `status` says so, and the next start tries again
                log.warning("going back to %s is still unfinished: %s", intent.target, error)
                continue
        _publish_changes(memory, intent.session, paths)
        done += 1
    return done


def unfinished_sentences(memory: Memory) -> list[str]:
    """Returns a sentence per unfinished recovery, for `status` and `doctor`."""
    return [
        f"going back to checkpoint {intent.target} was interrupted; the next server or `context-manager recover` "
        f"carries it on (undo: {intent.undo})"
        for intent in RecoveryIntents(memory.files).all()
    ]


async def _carry_out(
    memory: Memory, intent: RecoveryIntent, then: Checkpoint, own: Checkpoint
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Does every step under the caller's lock on the transcript; returns the changed files, and notes."""
    notes: list[str] = []
    async with memory.locks.files():
        paths, left, known = await run_sync(_restore_files, memory, intent, then, own)
        notes += [f"{path} was changed by another program meanwhile and was not restored" for path in left]
        if intent.knowledge:
            # Later changes are compared with the restored pages: the user did not delete items that they lack.
            await memory.state.remove(LIVE_PAGES, *paths)
            await memory.state.remove(LIVE_ITEMS, *await memory.state.keys_of(LIVE_ITEMS))
            notes += await _commit_files(memory, intent, then, known)
    await restore_session(memory, intent, then)
    await run_sync(RecoveryIntents(memory.files).erase, intent)
    return paths, tuple(notes)


def _publish_changes(memory: Memory, session: str, paths: Sequence[str]) -> None:
    memory.changes.publish(Change("session", None, session))
    for path in paths:
        memory.changes.publish(Change("file", path))


def _notes(row: SessionRow, then: Checkpoint, stays: Mapping[str, str]) -> tuple[str, ...]:
    notes = [f"{path} stays as it is; {why}" for path, why in sorted(stays.items())]
    if then.turn < row.turns:
        notes.append(
            f"turns {then.turn + 1} to {row.turns} stay in the transcript and move to cold storage; they are hidden "
            "until the next message"
        )
    return tuple(notes)


def _restore_files(
    memory: Memory, intent: RecoveryIntent, then: Checkpoint, own: Checkpoint
) -> tuple[tuple[str, ...], tuple[str, ...], frozenset[str]]:
    """Restores anchors, and on request the knowledge. Returns the paths that were written or deleted, those that were
    left unchanged because another program changed them meanwhile, and those of all files of both checkpoints."""
    trees = CheckpointTrees(memory.files, memory.git)
    before, after = _contents(memory, trees, own, intent), _contents(memory, trees, then, intent)
    wanted = [path for path in sorted(before.keys() | after.keys()) if before.get(path) != after.get(path)]
    done: list[str] = []
    left: list[str] = []
    for path in sorted(wanted, key=lambda path: path not in after):  # files are written before others are deleted
        now, shall = trees.current((path,)).get(path), after.get(path)
        if now not in (shall, before.get(path)):
            left.append(path)
            continue
        try:
            if now != shall and shall is not None:
                memory.files.write_bytes_atomic(path, shall, now, new=now is None)
            elif now != shall:
                memory.files.remove(path)
            done.append(path)
        except (Conflict, NotFound):
            left.append(path)
    return tuple(done), tuple(left), frozenset((*before, *after))


def _contents(memory: Memory, trees: CheckpointTrees, of: Checkpoint, intent: RecoveryIntent) -> dict[str, bytes]:
    """Returns the checkpoint's files that this recovery restores, without text that was forgotten on request since."""
    try:
        names = trees.names(of.knowledge_tree) if of.knowledge_tree else {}
    except Unavailable:
        if intent.knowledge:
            raise
        names = {}
    if of.knowledge_tree is None or not names:
        return {ANCHORS: with_entries("", of.anchors).encode()} if of.anchors else {}
    restored = [path for path in names if intent.knowledge and path.startswith(FOLDERS) and path not in intent.skipped]
    found = trees.read(of.knowledge_tree, [ANCHORS, *restored])
    return {path: data for path, raw in found.items() if (data := without_forgotten(memory, path, raw)) is not None}


async def _commit_files(memory: Memory, intent: RecoveryIntent, then: Checkpoint, known: Collection[str]) -> list[str]:
    """Tags the last commit, and commits the changes; a change that cannot be committed stays in the work tree."""
    if not memory.git.available() or not memory.settings.git.auto_commit:
        why = "git.auto_commit is off" if memory.git.available() else "git is not installed here"
        return [f"{why}: nothing was committed; the files were restored"]
    tag = f"{TAG}{intent.undo}"
    message = (
        f"recovery: back to checkpoint {then.id}\n\nSession: {then.session}, turn {then.turn}\n"
        f"Undo: context-manager recover {intent.undo} --apply"
    )
    async with memory.locks.git():
        try:
            head = await run_sync(memory.git.head)
            tagged = head is not None and not await run_sync(memory.git.tags.all, tag)
            if head is not None and tagged:
                await run_sync(memory.git.tags.create, tag, head)
            commit = (await run_sync(memory.git.commit_files, sorted(known), message)).commit
            if commit is None and tagged:
                await run_sync(memory.git.tags.remove, tag)
        except ContextManagerError as error:
            return [f"not committed: {error}; the files were restored"]
    return [f"committed as {commit[:10]}; the commit before is tagged {tag}"] if commit else []


async def restore_session(memory: Memory, intent: RecoveryIntent, then: Checkpoint) -> None:
    """Restores the session's own state: writes the cold records that it needs to disk, then replaces all rows in one
    transaction, then deletes the records that are no longer needed."""
    session, count = then.session, memory.tokens.count
    stored = SessionState.from_json(then.state or {})
    there = await live_set(memory, session)
    chunks = stored.chunks or [chunk for chunk in there if chunk.turn <= then.turn]
    known = {chunk.id for chunk in chunks}
    turns = {turn.number: turn for turn in await sessions.session_turns(memory, session)}
    later = [chunk for chunk in there if chunk.id not in known and chunk.turn > then.turn]
    new = [chunk for chunk in later if chunk.turn > intent.turns]
    records = {record.chunk_id: record for record in await run_sync(memory.cold.of, session)}

    def original(chunk: LiveChunk) -> str:
        """Returns a chunk's text; empty for a file that a client only named."""
        return original_of(chunk, turns.get(chunk.turn)) or ""

    def record(chunk: LiveChunk, reason: DropReason) -> ColdRecord:
        text, days = original(chunk), memory.settings.context.recoverable_for_days
        tokens = count(text) if text else chunk.tokens
        return ColdRecord.of(chunk, session, text, reason, memory.clock(), days, tokens=tokens)

    def kept() -> list[LiveChunk]:
        """Writes the missing records. Returns the chunks of the hidden turns, which go cold."""
        hidden = []
        for chunk in later:
            if chunk.turn <= intent.turns:
                tokens = chunk.tokens if chunk.form == "whole" else count(original(chunk))
                hidden.append(replace(chunk, form="cold", shown=None, tokens=tokens, immune=0))
        there = {number: (one.form, one.shown) for number, one in records.items()}
        missing = [one for one in chunks if one.form != "whole" and there.get(one.id) != (one.form, one.shown)]
        made = [record(chunk, "asked") for chunk in missing]
        memory.cold.put_all([*made, *(record(chunk, "wound_back") for chunk in hidden)])
        return hidden

    hidden = await run_sync(kept)
    await replace_state(memory, session, stored, [*chunks, *hidden, *new], then.turn, intent.turns)
    whole = {one.id for one in chunks if one.form == "whole"}
    stale = [one for number, one in records.items() if number in whole and one.form != "whole"]
    await run_sync(memory.cold.remove_all, stale)


MOST_LISTED = 20  # at most this many names of a kind are listed; the others are counted
NOTHING, NOTHING_CHANGED = "Nothing would change.", "Nothing was changed."


@dataclass(frozen=True, slots=True)
class State:
    """The state that a recovery restores. `knowledge` maps paths to texts; None leaves knowledge out of the
    comparison."""

    anchors: tuple[Anchor, ...] = ()
    topics: tuple[str, ...] = ()
    live: tuple[str, ...] = ()
    knowledge: Mapping[str, str] | None = None


def difference(now: State, then: State) -> str:
    """Returns what would change if `then` replaced `now`, a line per kind; one sentence if nothing would. An anchor
    counts as changed if its note or kind differs, not if its time does."""
    here, there = ({anchor.item: (anchor.kind, anchor.note) for anchor in state.anchors} for state in (now, then))
    named: dict[str, Collection[str]] = {
        "anchors set again": there.keys() - here.keys(),
        "anchors taken away": here.keys() - there.keys(),
        "anchors changed": {item for item in here.keys() & there.keys() if here[item] != there[item]},
        "topics active again": {*then.topics} - {*now.topics},
        "topics no longer active": {*now.topics} - {*then.topics},
    }
    lines = []
    for what, names in named.items():
        more = f" and {len(names) - MOST_LISTED:,} more" if len(names) > MOST_LISTED else ""
        lines += [f"{what}: {', '.join(sorted(names)[:MOST_LISTED])}{more}"] if names else []
    came, went = len({*then.live} - {*now.live}), len({*now.live} - {*then.live})
    lines += [f"live again: {counted(came, 'chunk')}"] if came else []
    lines += [f"no longer live: {counted(went, 'chunk')}"] if went else []
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
    start = len(commonprefix([old, new]))
    old, new = old[start:], new[start:]
    end = len(commonprefix([old[::-1], new[::-1]]))
    old, new = old[: len(old) - end], new[: len(new) - end]
    same = sum(match.size for match in SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks())
    return len(new) - same, len(old) - same


NO_UNDO = "its undo could not bring it back"


async def diff_text(memory: Memory, number: str, other: str | None) -> str:
    """Returns what restoring a checkpoint with its knowledge would change, compared with now or with checkpoint
    `other`. Raises as `restore` does."""
    then = await stored.read(memory, number)
    if other is None:
        return await describe_changes(memory, then, True, {})
    since = await stored.read(memory, other)
    states = [State(one.anchors, one.topics, one.live, await run_sync(_texts, memory, one)) for one in (since, then)]
    return difference(*states)


async def describe_changes(memory: Memory, then: Checkpoint, knowledge: bool, stays: Collection[str]) -> str:
    """Returns what restoring would change, in words, without the files in `stays`."""
    here = there = None
    if knowledge:
        out = {*stays, *dict(then.left_out)}
        here, there = (
            {path: text for path, text in texts.items() if path not in out}
            for texts in (await run_sync(_texts_now, memory), await run_sync(_texts, memory, then))
        )
    session, state = then.session, await snapshot(memory, then.session)
    now = State(
        anchors=tuple(await run_sync(anchors, memory)),
        topics=topic_names(state.entries, session),
        live=tuple(chunk.id for chunk in await live_set(memory, session) if chunk.form != "cold"),
        knowledge=here,
    )
    return difference(now, State(then.anchors, then.topics, then.live, there))


def _texts(memory: Memory, of: Checkpoint) -> dict[str, str]:
    """Returns a checkpoint's knowledge files, without text that was forgotten on request since."""
    if of.knowledge_tree is None:
        raise Unavailable(f"checkpoint {of.id} has no knowledge files; restore it without them")
    trees = CheckpointTrees(memory.files, memory.git)
    names = [path for path in trees.names(of.knowledge_tree) if path.startswith(FOLDERS)]
    found = trees.read(of.knowledge_tree, names).items()
    clean = ((path, without_forgotten(memory, path, data)) for path, data in found)
    return {path: data.decode("utf-8", "replace") for path, data in clean if data is not None}


def _texts_now(memory: Memory) -> dict[str, str]:
    found = CheckpointTrees(memory.files, memory.git).contents().items()
    return {path: data.decode("utf-8", "replace") for path, data in found if path.startswith(FOLDERS)}


def unchanged_files(memory: Memory, then: Checkpoint, caller: Caller) -> dict[str, str]:
    """Returns the files that restoring would not change, each with the reason: the checkpoint lacks them, its undo
    would lack them, or only the user may change them."""
    trees = CheckpointTrees(memory.files, memory.git)
    found = {path: f"{NO_UNDO}, it {why}" for path, why in trees.refused().items()}
    found |= {path: f"the checkpoint does not hold it, it {why}" for path, why in then.left_out}
    if caller.source == "cli" or not memory.settings.knowledge.approve:
        return found
    there, here = _texts(memory, then), _texts_now(memory)
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
