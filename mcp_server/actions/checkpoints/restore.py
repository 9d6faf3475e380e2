"""Restores the state of a session, and on request the knowledge files, from a checkpoint.

    plan: the changes as text (a dry run ends here)
      → a new checkpoint, which is the undo → the intent, on disk → files → commit → the session's state → done

After the intent is written, every step can be repeated: after a crash the next process continues (`finish`). A file
that another program changed meanwhile is left unchanged and reported. Conversations never change: turns after the
checkpoint stay in their transcript, go to cold storage, and are hidden until the next message.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from anyio.to_thread import run_sync

from mcp_server.actions import sessions
from mcp_server.actions.checkpoints import checkpoint, checkpoints
from mcp_server.actions.checkpoints.restore_files import committed, put_back
from mcp_server.actions.checkpoints.restore_plan import NO_UNDO, diff, told
from mcp_server.actions.checkpoints.restore_plan import stays as what_stays
from mcp_server.actions.checkpoints.restore_session import restore_session
from mcp_server.actions.checkpoints.stored_inputs import verify
from mcp_server.actions.closed_sessions import LIVE_ITEMS, LIVE_PAGES
from mcp_server.core.checkpoints.document import Checkpoint
from mcp_server.core.model import Caller
from mcp_server.errors import ContextManagerError, NotFound
from mcp_server.memory import Memory
from mcp_server.store.changes import Change
from mcp_server.store.recovery_intents import RecoveryIntent, RecoveryIntents
from mcp_server.store.state import SessionRow

__all__ = ["Restored", "diff", "finish", "restore", "unfinished_sentences"]

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
        NotFound: no such checkpoint, or its conversation is not there.
        Unavailable: its knowledge is not on this machine, or the disk refuses.
    """
    await sessions.ready(memory)
    await finish(memory)
    then = await checkpoints.read(memory, number)
    knowledge = _took_knowledge(then) if knowledge is None else knowledge
    stays = await run_sync(what_stays, memory, then, caller) if knowledge else {}
    row = await sessions.require(memory, then.session)
    if not apply:
        return Restored(then, knowledge, await told(memory, then, knowledge, stays), notes=_notes(row, then, stays))
    async with memory.locks.transcript(then.session):
        row = await sessions.require(memory, then.session)
        text = await told(memory, then, knowledge, stays)
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


async def finish(memory: Memory) -> int:
    """Finishes recoveries that a crash interrupted; returns their number. Skips one that another process is running."""
    intents = RecoveryIntents(memory.files)
    done = 0
    for intent in await run_sync(intents.all):
        async with memory.locks.transcript(intent.session):
            if intent not in await run_sync(intents.all):  # its own process has finished it
                continue
            try:
                then = await checkpoints.read(memory, intent.target)
                own = await checkpoints.read(memory, intent.undo)
            except NotFound:  # a checkpoint was deleted by hand: nobody can carry it on
                await run_sync(intents.erase, intent)
                continue
            try:
                paths, _ = await _carried_out(memory, intent, then, own)
            except ContextManagerError as error:  # `status` says so, and the next start tries again
                log.warning("going back to %s is still unfinished: %s", intent.target, error)
                continue
        _tell(memory, intent.session, paths)
        done += 1
    return done


def unfinished_sentences(memory: Memory) -> list[str]:
    """Returns a sentence per unfinished recovery, for `status` and `doctor`."""
    return [
        f"going back to checkpoint {intent.target} was interrupted; the next server or `context-manager recover` "
        f"carries it on (undo: {intent.undo})"
        for intent in RecoveryIntents(memory.files).all()
    ]


async def _carried_out(
    memory: Memory, intent: RecoveryIntent, then: Checkpoint, own: Checkpoint
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Does every step under the caller's lock on the transcript; returns the changed files, and notes."""
    notes: list[str] = []
    async with memory.locks.files():
        paths, left = await run_sync(put_back, memory, intent, then, own)
        notes += [f"{path} was changed by another program meanwhile and is left unchanged" for path in left]
        if intent.knowledge:
            # The pages that came back are new bases: nobody deleted the items that they lack.
            await memory.state.remove(LIVE_PAGES, *paths)
            await memory.state.remove(LIVE_ITEMS, *await memory.state.keys_of(LIVE_ITEMS))
            notes += await committed(memory, intent, then, own)
    await restore_session(memory, intent, then)
    await run_sync(RecoveryIntents(memory.files).erase, intent)
    return paths, tuple(notes)


def _tell(memory: Memory, session: str, paths: Sequence[str]) -> None:
    memory.changes.publish(Change("session", None, session))
    for path in paths:
        memory.changes.publish(Change("file", path))


def _notes(row: SessionRow, then: Checkpoint, stays: Mapping[str, str]) -> tuple[str, ...]:
    notes = [f"{path} stays as it is; {why}" for path, why in sorted(stays.items())]
    if then.turn < row.turns:
        notes.append(
            f"turns {then.turn + 1} to {row.turns} stay in the transcript and go cold; views hide them until the next "
            "message"
        )
    return tuple(notes)


def _took_knowledge(of: Checkpoint) -> bool:
    """Returns whether a checkpoint is the undo of a recovery that included the knowledge files."""
    about = (of.state or {}).get("recovery")
    return isinstance(about, Mapping) and bool(about.get("knowledge"))
