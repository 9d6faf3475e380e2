"""Checkpoint: the state of a session as a file that a person can read and that `restore` can go back to.

    the session's state (under the transcript's lock) → the compile inputs → the tree of knowledge files, on disk
      → the file, on disk: now the checkpoint exists → old automatic checkpoints are deleted

A crash in between leaves a tree that no file names; housekeeping deletes it.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from anyio import sleep
from anyio.to_thread import run_sync

from mcp_server.checkpoints.document import Checkpoint, Reason
from mcp_server.checkpoints.session_state import snapshot, topic_names
from mcp_server.checkpoints.stored_inputs import Stored, stored
from mcp_server.checkpoints.threads import Exchange, key_exchanges, summary
from mcp_server.context.compile import CompileRequest, gather
from mcp_server.conversations import sessions
from mcp_server.conversations.as_of import as_of
from mcp_server.errors import ContextManagerError
from mcp_server.knowledge.anchor import anchors
from mcp_server.knowledge.notes import Noted, Outcome
from mcp_server.knowledge.session_notes import noted, outcome_of
from mcp_server.memory import Memory
from mcp_server.model import Caller
from mcp_server.relevance.chunks import LiveChunk
from mcp_server.relevance.gauges import Gauges
from mcp_server.relevance.live_set import gauges, live_set
from mcp_server.storage.checkpoint_files import CheckpointFiles, new_id
from mcp_server.storage.checkpoint_trees import CheckpointTrees
from mcp_server.storage.live_values import SessionState
from mcp_server.storage.values import Change, SessionRow
from mcp_server.text.prose import clipped
from mcp_server.text.redaction import redact

LOCK = "checkpoints"
"""Held, shared, while a checkpoint is made, so that `sweep` does not delete its tree."""

LONGEST_NOTE = 500
ENRICHING = "enriching"
"""Namespace of the state: checkpoint → its session, for checkpoints that an LLM has yet to review."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Seen:
    """The session at one moment."""

    row: SessionRow
    turn: int
    state: SessionState
    chunks: list[LiveChunk]
    gauges: Gauges
    noted: Noted
    outcome: Outcome
    thread: str
    exchanges: tuple[Exchange, ...]
    inputs: Stored | None


async def make(memory: Memory, session: str, reason: Reason, note: str = "") -> Checkpoint:
    """Makes a checkpoint of a session; it is on disk when this returns.

    Raises:
        NotFound: no such session; the nearest is named.
        Unavailable: the disk refuses it.
    """
    await sessions.ready(memory)
    async with memory.locks.transcript(session):
        seen = await _seen(memory, await sessions.require(memory, session))
    return await _kept(memory, seen, reason, note)


async def made(
    memory: Memory, row: SessionRow, reason: Reason, note: str = "", recovery: Mapping[str, Any] | None = None
) -> Checkpoint:
    """Makes a checkpoint under the caller's lock on the transcript. `recovery` describes the recovery that follows."""
    return await _kept(memory, await _seen(memory, row), reason, note, recovery)


async def before(memory: Memory, session: str, reason: Reason, since: int | None = None) -> None:
    """Makes a checkpoint before the caller changes a session, under the caller's lock on its transcript.

    Makes none if the last checkpoint already covers turn number `since`. Logs a failure instead of raising it.
    """
    try:
        if since is not None:
            heads = await run_sync(CheckpointFiles(memory.files).heads, session)
            if heads and heads[0].turn >= since:
                return
        row = await sessions.current_row(memory, session)
        if row is not None and row.turns:
            await made(memory, row, reason)
    except (ContextManagerError, OSError) as error:
        log.warning("no checkpoint was made of %s: %s", session, error)


async def sweep(memory: Memory) -> int:
    """Deletes trees without a checkpoint and returns how many. Does nothing while a checkpoint is being made."""
    held = await run_sync(memory.locks.try_exclusive, LOCK)
    if held is None:
        return 0
    try:
        kept = frozenset(head.id for head in await run_sync(CheckpointFiles(memory.files).heads))
        return await run_sync(CheckpointTrees(memory.files, memory.git).sweep, kept)
    finally:
        held.release()


async def _seen(memory: Memory, row: SessionRow) -> _Seen:
    """Reads a session up to its last turn, or to the turn that it was wound back to."""
    session = row.session
    hidden = await as_of(memory, session)
    turn = row.turns if hidden is None else hidden
    shown = await sessions.show_session(memory, session)
    turns = [one for one in shown.turns if one.number <= turn]
    inputs = None
    try:
        request = CompileRequest(session=session, as_of=turn)
        gathered = await gather(memory, request, Caller(source="checkpoint", session=session))
        inputs = await stored(memory, gathered.inputs, shown.paths_by_turn)
    except (ContextManagerError, OSError) as error:  # a broken index: keep the rest of the state
        log.warning("the checkpoint of %s keeps no compile inputs: %s", session, error)
    notes = await noted(memory, session, turn)
    outcome = await outcome_of(memory, notes)
    return _Seen(
        row=row,
        turn=turn,
        chunks=await live_set(memory, session),
        state=await snapshot(memory, session),
        gauges=await gauges(memory, session),
        noted=notes,
        outcome=outcome,
        thread=await run_sync(summary, turns),
        exchanges=await run_sync(key_exchanges, turns, outcome.settled),
        inputs=inputs,
    )


async def _kept(
    memory: Memory, seen: _Seen, reason: Reason, note: str, recovery: Mapping[str, Any] | None = None
) -> Checkpoint:
    """Writes the checkpoint to disk: the tree, then the file."""
    number, session = new_id(), seen.row.session
    state = seen.state.with_chunks(seen.chunks).to_json()
    async with _making(memory):
        trees = CheckpointTrees(memory.files, memory.git)
        taken = await run_sync(trees.take, number, seen.inputs.files if seen.inputs else ())
        checkpoint = Checkpoint(
            id=number,
            session=session,
            at=_milliseconds(memory.clock()),
            turn=seen.turn,
            project=seen.row.project,
            reason=reason,
            note=clipped(redact(note).text, LONGEST_NOTE),
            thread=seen.thread,
            decisions=seen.outcome.decisions,
            open_items=seen.outcome.open_items,
            exchanges=seen.exchanges,
            last_tool_call=seen.noted.last_tool_call,
            files=seen.noted.files,
            topics=topic_names(seen.state.entries, session),
            anchors=tuple(replace(one, place=-1) for one in await run_sync(anchors, memory)),
            gauges=seen.gauges,
            live=tuple(chunk.id for chunk in seen.chunks if chunk.form != "cold"),
            cold=tuple(chunk.id for chunk in seen.chunks if chunk.form == "cold"),
            compile_inputs=seen.inputs.document if seen.inputs else None,
            compiled_sha256=seen.inputs.sha256 if seen.inputs else None,
            knowledge_tree=taken.tree,
            left_out=taken.left_out,
            state=state if recovery is None else {**state, "recovery": dict(recovery)},
        )
        path = await run_sync(CheckpointFiles(memory.files).write, checkpoint)
    if reason != "recovery":
        await _thinned(memory, session)
        if memory.llm is not None:
            await memory.state.put(ENRICHING, number, {"session": session})
    memory.changes.publish(Change("file", path))
    return checkpoint


def _milliseconds(moment: datetime) -> datetime:
    """Returns the moment with the precision of a checkpoint file."""
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


@asynccontextmanager
async def _making(memory: Memory) -> AsyncIterator[None]:
    """Holds the lock that keeps `sweep` from deleting trees."""
    while (held := await run_sync(memory.locks.share, LOCK)) is None:  # noqa: ASYNC110 - another process may sweep
        await sleep(0.005)
    try:
        yield
    finally:
        held.release()


async def _thinned(memory: Memory, session: str) -> None:
    """Deletes a session's old automatic checkpoints. Checkpoints that were asked for stay."""

    def thin() -> list[str]:
        files, trees = CheckpointFiles(memory.files), CheckpointTrees(memory.files, memory.git)
        automatic = [head for head in files.heads(session) if head.reason != "asked"]
        old = automatic[memory.settings.checkpoints.keep :]
        for head in old:
            files.remove(head.path)
            trees.remove(head.id)
        return [head.path for head in old]

    try:
        for path in await run_sync(thin):
            memory.changes.publish(Change("file", path))
    except ContextManagerError as error:  # the next checkpoint tries again
        log.warning("old checkpoints of %s were not deleted: %s", session, error)
