"""Goes on from a checkpoint: in an empty window, in another client, or after the client compacted its window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from anyio.to_thread import run_sync

from mcp_server.checkpoints import stored
from mcp_server.checkpoints.checkpoint import make
from mcp_server.checkpoints.document import Checkpoint
from mcp_server.context.compile import CompileRequest, compile_context
from mcp_server.context.compiler import Compiled
from mcp_server.context.inputs import LeftOff
from mcp_server.context.slots.checkpoint import is_news
from mcp_server.conversations import sessions
from mcp_server.conversations.projects import project_of
from mcp_server.conversations.sessions import last_visible_turn
from mcp_server.errors import NotFound
from mcp_server.knowledge import notes
from mcp_server.memory import Memory
from mcp_server.model import Caller, Turn
from mcp_server.storage.checkpoint_files import PREFIX, CheckpointFiles, folder_of
from mcp_server.storage.values import Change, SessionRow
from mcp_server.text.markdown import minute_text

SURE = {"rule": 0.4, "open": 0.4}
"""Probability from which on an item counts as sure, by kind; 1 for the other kinds. With 1 for all of them fewer rules
and open items fit (`benchmarks continuity`: after a compaction rules .78 instead of .82, open items .74, .80)."""


async def left_off(
    memory: Memory, row: SessionRow, turns: Sequence[Turn], in_window: int | None, until: int | None
) -> LeftOff | None:
    """Returns the state of a session before its window was compacted, from its last checkpoint.

    It is without the sentences that may state further items. None if the window was not compacted, if that is more than
    `EXCHANGES` exchanges ago, or without a checkpoint.

    `turns` are the session's newest turns, `in_window` is the number of the first turn in the client's window. Turns
    after number `until`, and checkpoints made after it, are ignored.
    """
    ours = row.delivery == "replace"  # then we compact the window, otherwise only the client does
    kept = [head for head in await stored.listed(memory, row.session) if until is None or head.turn <= until]
    compacted = [head.turn + 1 for head in kept if ours and head.reason == "compaction"]
    emptied = max([*compacted, in_window or 0])
    if not kept or not emptied or not is_news(turns, emptied):
        return None
    last = of_checkpoint(await run_sync(CheckpointFiles(memory.files).read, kept[0].path))
    return replace(last, possible=())  # such a context has better use for the room: what search finds for its message


async def last_checkpoint(memory: Memory, session: str) -> LeftOff | None:
    """Returns the state of a session at its last checkpoint; None without a checkpoint."""
    kept = await stored.latest(memory, session)
    return None if kept is None else of_checkpoint(kept)


def of_checkpoint(checkpoint: Checkpoint) -> LeftOff:
    """Returns the parts of a checkpoint that a context shows."""
    said = notes.from_dict((checkpoint.state or {}).get("entries", {}).get(notes.NAMESPACE, {}).get(checkpoint.session))
    return LeftOff(
        id=checkpoint.id,
        path=f"{folder_of(checkpoint.session)}/{checkpoint.id}.md",
        at=minute_text(checkpoint.at),
        turn=checkpoint.turn,
        thread=checkpoint.thread,
        decisions=checkpoint.decisions,
        open_items=checkpoint.open_items,
        last_tool_call=checkpoint.last_tool_call,
        files=checkpoint.files,
        rules=checkpoint.rules,
        next_step=checkpoint.next_step,
        probabilities=(
            *((item.text, min(1.0, item.probability / SURE.get(item.kind, 1.0))) for item in said.items),
            *((one.text, one.probability) for one in said.likely),
        ),
        possible=tuple(one.text for one in said.likely),
    )


NOTE = "before it was resumed elsewhere"


@dataclass(frozen=True, slots=True)
class Resumed:
    """The context of the new window. `earlier`: the checkpoint is of an earlier turn than the session's last one."""

    session: str
    title: str
    checkpoint: Checkpoint
    compiled: Compiled
    earlier: bool


async def resume(memory: Memory, what: str | None, caller: Caller, budget: int | None = None) -> Resumed:
    """Returns the context with which a conversation continues in an empty window.

    `what` is a session's id, or a checkpoint's id for an earlier state; without it, the last conversation of the
    caller's project is resumed. If the session has turns after its last checkpoint, makes a new one first. Raises
    NotFound if there is no such session or checkpoint, or no conversation in the project.
    """
    await sessions.ready(memory)
    checkpoint = await stored.read(memory, what) if what is not None and what.startswith(PREFIX) else None
    session = checkpoint.session if checkpoint else what
    row = await sessions.require(memory, session) if session else await _last(memory, caller)
    last = await last_visible_turn(memory, row) or row.turns
    if checkpoint is None:
        known = await stored.latest(memory, row.session)
        checkpoint = known if known and known.turn == last else await make(memory, row.session, "asked", NOTE)
    request = CompileRequest(session=row.session, budget=budget, resumed=of_checkpoint(checkpoint))
    compiled = await compile_context(memory, request, caller)
    await memory.state.put(sessions.RESUMED, row.session, row.turns)
    memory.changes.publish(Change("session", None, row.session))
    return Resumed(row.session, row.title, checkpoint, compiled, earlier=checkpoint.turn < last)


async def _last(memory: Memory, caller: Caller) -> SessionRow:
    project = await project_of(memory, caller)
    rows = [
        row
        for row in await memory.state.sessions()
        if row.project in (project.keys or {project.key}) and row.kind != "subagent" and row.session != caller.session
    ]
    if not rows:
        raise NotFound("no conversation to resume in this project; name one (`session list` shows them)")
    return max(rows, key=lambda row: row.last_arrival)
