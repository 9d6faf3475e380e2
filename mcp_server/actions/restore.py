"""Restore: a session's state, and if asked the knowledge, become again what a checkpoint holds (SPEC §11).

    plan: what would change, as text (that is the dry run)
      → a checkpoint of its own, which is the undo → the intent, on disk → files → commit → the session's state → done

From the intent on every step can be done twice: what a crash leaves is carried on by the next process (`finish`). What
somebody else has written meanwhile is left alone and named. Conversations are never touched: turns after the checkpoint
stay in their transcript, go to cold storage, and are hidden until the next message.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from anyio.to_thread import run_sync

from mcp_server.actions import checkpoint, checkpoints, sessions
from mcp_server.actions.anchor import anchors
from mcp_server.actions.live_set import live_set
from mcp_server.actions.session_state import put_back, snapshot, topic_names
from mcp_server.actions.stored_inputs import verify
from mcp_server.core.checkpoints.diff import State, difference
from mcp_server.core.checkpoints.diff import text as difference_text
from mcp_server.core.checkpoints.document import Checkpoint
from mcp_server.core.model import Caller, Turn
from mcp_server.core.pressure.chunks import LiveChunk, text_of
from mcp_server.core.pressure.cold import ColdRecord, DropReason
from mcp_server.core.text.remembering import is_for_own_hand
from mcp_server.errors import Conflict, ContextManagerError, NotFound, Unavailable
from mcp_server.memory import Memory
from mcp_server.store.anchors_text import with_entry
from mcp_server.store.changes import Change
from mcp_server.store.checkpoint_trees import ANCHORS, FOLDERS, CheckpointTrees
from mcp_server.store.recovery_intents import RecoveryIntent, RecoveryIntents
from mcp_server.store.session_states import SessionState
from mcp_server.store.state import SessionRow

TAG = "memory/before/"

NO_UNDO = "its undo could not bring it back"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Restored:
    """What going back to a checkpoint changes (`applied`: has changed), in words. `undo` is the checkpoint that takes
    it back, `paths` the files that were written or deleted."""

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
    """Shows what going back to a checkpoint would change; with `apply` does it, durably, and so that it can be undone.
    `knowledge` says whether the files of the knowledge go back too; by default they do in an undo of what took them
    back, and else do not.

    Raises:
        NotFound: no such checkpoint, or its conversation is not there.
        Unavailable: its knowledge is not on this machine, or the disk refuses.
    """
    await sessions.ready(memory)
    await finish(memory)
    then = await checkpoints.read(memory, number)
    knowledge = _took_knowledge(then) if knowledge is None else knowledge
    stays = await run_sync(_stays, memory, then, caller) if knowledge else {}
    row = await sessions.require(memory, then.session)
    if not apply:
        return Restored(then, knowledge, await _told(memory, then, knowledge, stays), notes=_notes(row, then, stays))
    async with memory.locks.transcript(then.session):
        row = await sessions.require(memory, then.session)
        text = await _told(memory, then, knowledge, stays)
        about = {"of": then.id, "knowledge": knowledge}
        own = await checkpoint.made(memory, row, "recovery", f"before going back to {then.id}", about)
        if knowledge:
            stays = {**{path: f"{NO_UNDO}, it {why}" for path, why in own.left_out}, **stays}
        intent = RecoveryIntent(then.id, own.id, then.session, row.turns, knowledge, tuple(sorted(stays)))
        await run_sync(RecoveryIntents(memory.files).write, intent)
        paths, notes = await _carried_out(memory, intent, then, own)
    _tell(memory, then.session, paths)
    checked = await verify(memory, then)
    return Restored(then, knowledge, text, True, own.id, paths, (*_notes(row, then, stays), *notes, checked.sentence))


async def diff(memory: Memory, number: str, other: str | None = None) -> str:
    """What going back to a checkpoint would change, its knowledge too: of things as they are now, or as they were at
    `other`. Raises as `restore` does."""
    then = await checkpoints.read(memory, number)
    if other is None:
        return await _told(memory, then, True, {})
    trees = CheckpointTrees(memory.files)
    since = await checkpoints.read(memory, other)
    before = replace(_state_of(since), knowledge=await run_sync(_texts, memory, trees, since))
    after = replace(_state_of(then), knowledge=await run_sync(_texts, memory, trees, then))
    return difference_text(difference(before, after))


async def finish(memory: Memory) -> int:
    """Carries on recoveries that a crash interrupted; returns how many. One that somebody is just at is left to him."""
    intents = RecoveryIntents(memory.files)
    done = 0
    for intent in await run_sync(intents.all):
        async with memory.locks.transcript(intent.session):
            if intent not in await run_sync(intents.all):  # its own process has finished it
                continue
            try:
                then = await checkpoints.read(memory, intent.target)
                own = await checkpoints.read(memory, intent.undo)
                paths, _ = await _carried_out(memory, intent, then, own)
            except NotFound:  # a checkpoint was deleted by hand: nobody can carry it on
                await run_sync(intents.erase, intent)
                continue
            except ContextManagerError as error:  # `status` says so, and the next start tries again
                log.warning("going back to %s is still unfinished: %s", intent.target, error)
                continue
        _tell(memory, intent.session, paths)
        done += 1
    return done


def unfinished_sentences(memory: Memory) -> list[str]:
    """What `status` and `doctor` say about recoveries that were begun and not finished."""
    return [
        f"going back to checkpoint {intent.target} was interrupted; the next server or `context-manager recover` "
        f"carries it on (undo: {intent.undo})"
        for intent in RecoveryIntents(memory.files).all()
    ]


# ------------------------------------------------------------ doing


async def _carried_out(
    memory: Memory, intent: RecoveryIntent, then: Checkpoint, own: Checkpoint
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Every step, under the caller's lock on the transcript; returns the files that changed, and notes."""
    notes: list[str] = []
    async with memory.locks.files():
        paths, left = await run_sync(_files, memory, intent, then, own)
        notes += [f"{path} was changed by somebody else meanwhile and is left alone" for path in left]
        if intent.knowledge:
            notes += await _committed(memory, intent, then, own)
    await _state(memory, intent, then)
    await run_sync(RecoveryIntents(memory.files).erase, intent)
    return paths, tuple(notes)


def _files(
    memory: Memory, intent: RecoveryIntent, then: Checkpoint, own: Checkpoint
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Anchors, and the knowledge if asked, as they were; returns what was written or deleted, and what was left alone
    because it is neither what it was when the recovery began, nor what it shall be."""
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
    """The files of a checkpoint that this recovery is about, without what was forgotten on request since."""
    try:
        names = trees.names(of.knowledge_tree) if of.knowledge_tree else {}
    except Unavailable:
        if intent.knowledge:
            raise
        names = {}
    if of.knowledge_tree is None or not names:
        return {ANCHORS: _anchors_text(of)} if of.anchors else {}
    found = trees.read(of.knowledge_tree, [path for path in names if _is_about(path, intent)])
    return {path: data for path, raw in found.items() if (data := _without_forgotten(memory, path, raw)) is not None}


def _is_about(path: str, intent: RecoveryIntent) -> bool:
    return path == ANCHORS or (intent.knowledge and path.startswith(FOLDERS) and path not in intent.skipped)


def _without_forgotten(memory: Memory, path: str, data: bytes) -> bytes | None:
    """The bytes, bringing back nothing that was forgotten; None for a file that was forgotten as a whole."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return data
    clean = memory.forgotten.document(path, text)
    return None if clean is None else clean.encode("utf-8") if clean != text else data


def _anchors_text(of: Checkpoint) -> bytes:
    text = ""
    for one in of.anchors:
        text = with_entry(text, one)
    return text.encode()


async def _committed(memory: Memory, intent: RecoveryIntent, then: Checkpoint, own: Checkpoint) -> list[str]:
    """Tags the commit before, and commits what has changed; what cannot be committed stays in the work tree."""
    if not memory.git.available() or not memory.settings.git.auto_commit:
        why = "git.auto_commit is off" if memory.git.available() else "git is not installed here"
        return [f"{why}: nothing was committed; the files are what they were"]
    trees = CheckpointTrees(memory.files)
    tag = f"{TAG}{intent.undo}"
    message = (
        f"recovery: back to checkpoint {then.id}\n\nSession: {then.session}, turn {then.turn}\n"
        f"Undo: context-manager recover --checkpoint {own.id}"
    )
    async with memory.locks.git():
        try:
            known = await run_sync(
                lambda: [*_contents(memory, trees, own, intent), *_contents(memory, trees, then, intent)]
            )
            tagged = await run_sync(memory.git.tag, tag)
            commit = await run_sync(memory.git.commit, known, message)
            if commit is None and tagged:
                await run_sync(memory.git.untag, tag)
        except ContextManagerError as error:
            return [f"not committed: {error}; the files are what they were"]
    return [f"committed as {commit[:10]}; the commit before is tagged {tag}"] if commit else []


async def _state(memory: Memory, intent: RecoveryIntent, then: Checkpoint) -> None:
    """The session's own state: first the cold records that it needs, on disk, then all rows in one transaction, then
    the records that it has no use for."""
    session = then.session
    stored = SessionState.from_json(then.state or {})
    there = await live_set(memory, session)
    chunks = stored.chunks or [chunk for chunk in there if chunk.turn <= then.turn]
    known = {chunk.id for chunk in chunks}
    turns = await sessions.session_turns(memory, session)
    by_number = {turn.number: turn for turn in turns}
    later = [chunk for chunk in there if chunk.id not in known and chunk.turn > then.turn]
    hidden = [await run_sync(_cold, memory, one, by_number) for one in later if one.turn <= intent.turns]
    new = [chunk for chunk in later if chunk.turn > intent.turns]
    wanted = [*chunks, *hidden]
    records = {record.chunk_id: record for record in await run_sync(memory.cold.of, session)}

    def kept() -> None:
        missing = [one for one in chunks if one.form != "whole" and not _says(records.get(one.id), one)]
        made = [_record(memory, one, session, by_number, "asked") for one in missing]
        memory.cold.put_all([*made, *(_record(memory, one, session, by_number, "wound_back") for one in hidden)])

    await run_sync(kept)
    await put_back(memory, session, stored, [*wanted, *new], then.turn, intent.turns)
    whole = {one.id for one in wanted if one.form == "whole"}
    stale = [record for number, record in records.items() if number in whole and record.form != "whole"]
    await run_sync(memory.cold.remove_all, stale)


def _cold(memory: Memory, chunk: LiveChunk, turns: Mapping[int, Turn]) -> LiveChunk:
    tokens = chunk.tokens if chunk.form == "whole" else memory.tokens.count(_original(chunk, turns))
    return replace(chunk, form="cold", shown=None, tokens=tokens, immune=0)


def _says(record: ColdRecord | None, chunk: LiveChunk) -> bool:
    return record is not None and record.form == chunk.form and record.shown == chunk.shown


def _record(
    memory: Memory, chunk: LiveChunk, session: str, turns: Mapping[int, Turn], reason: DropReason
) -> ColdRecord:
    original = _original(chunk, turns)
    now = memory.clock()
    return ColdRecord(
        chunk_id=chunk.id,
        session_id=session,
        timestamp=now,
        content=original,
        tokens=memory.tokens.count(original) if original else chunk.tokens,
        drop_reason=reason,
        relevance_score=0.0,
        prompt_at_drop="",
        recoverable_until=now + timedelta(days=memory.settings.context.recoverable_for_days),
        kind=chunk.kind,
        turn=chunk.turn,
        part=chunk.part,
        name=chunk.name,
        form=chunk.form,
        shown=chunk.shown,
    )


def _original(chunk: LiveChunk, turns: Mapping[int, Turn]) -> str:
    """What a chunk says; nothing for what a client only named."""
    turn = turns.get(chunk.turn)
    known = turn is not None and chunk.has_text and chunk.part <= len(turn.tool_calls)
    return text_of(turn, chunk.part) if turn is not None and known else ""


def _tell(memory: Memory, session: str, paths: Sequence[str]) -> None:
    memory.changes.publish(Change("session", None, session))
    for path in paths:
        memory.changes.publish(Change("file", path))


# ------------------------------------------------------------ comparing


async def _told(memory: Memory, then: Checkpoint, knowledge: bool, stays: Collection[str]) -> str:
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
    clean = ((path, _without_forgotten(memory, path, data)) for path, data in found)
    return {path: data.decode("utf-8", "replace") for path, data in clean if data is not None}


def _texts_now(trees: CheckpointTrees) -> dict[str, str]:
    paths = [path for path in trees.paths() if path.startswith(FOLDERS)]
    return {path: data.decode("utf-8", "replace") for path, data in trees.current(paths).items()}


# ------------------------------------------------------------ what stays


def _stays(memory: Memory, then: Checkpoint, caller: Caller) -> dict[str, str]:
    """Files that stay as they are, each with the reason: the checkpoint does not hold them, its undo could not, or only
    the user's own hand may change them."""
    trees = CheckpointTrees(memory.files)
    stays = {path: f"{NO_UNDO}, it {why}" for path, why in trees.refused().items()}
    stays |= {path: f"the checkpoint does not hold it, it {why}" for path, why in then.left_out}
    if caller.source == "cli" or not memory.settings.knowledge.approve:
        return stays
    there, here = _texts(memory, trees, then), _texts_now(trees)
    by_hand = f"it is for the user's own hand: `context-manager recover --checkpoint {then.id} --knowledge`"
    for path in sorted(there.keys() | here.keys()):
        if is_for_own_hand(path) and there.get(path) != here.get(path):
            stays.setdefault(path, by_hand)
    return stays


def _notes(row: SessionRow, then: Checkpoint, stays: Mapping[str, str]) -> tuple[str, ...]:
    notes = [f"{path} stays as it is; {why}" for path, why in sorted(stays.items())]
    if then.turn < row.turns:
        notes.append(
            f"turns {then.turn + 1} to {row.turns} stay in the transcript and go cold; views hide them until the next "
            "message"
        )
    return tuple(notes)


def _took_knowledge(of: Checkpoint) -> bool:
    """Whether a checkpoint is the undo of a recovery that took the knowledge back too."""
    about = (of.state or {}).get("recovery")
    return isinstance(about, Mapping) and bool(about.get("knowledge"))
