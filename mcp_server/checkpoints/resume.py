"""Resume: continues a conversation in an empty window, in another client or after a crash."""

from __future__ import annotations

from dataclasses import dataclass

from mcp_server.checkpoints import stored
from mcp_server.checkpoints.checkpoint import make
from mcp_server.checkpoints.document import Checkpoint
from mcp_server.checkpoints.left_off import of_checkpoint
from mcp_server.context.compile import CompileRequest, compile_context
from mcp_server.context.compiler import Compiled
from mcp_server.conversations import sessions
from mcp_server.conversations.as_of import as_of
from mcp_server.conversations.projects import project_of
from mcp_server.errors import NotFound
from mcp_server.memory import Memory
from mcp_server.model import Caller
from mcp_server.storage.checkpoint_files import PREFIX
from mcp_server.storage.values import Change, SessionRow

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
    caller's project is resumed. If the session has turns after its last checkpoint, makes a new one first.

    Raises:
        NotFound: there is no such session or checkpoint, or no conversation in the project.
    """
    await sessions.ready(memory)
    if what is not None and what.startswith(PREFIX):
        checkpoint = await stored.read(memory, what)
        row = await sessions.require(memory, checkpoint.session)
        last = await as_of(memory, row.session) or row.turns
    else:
        row = await sessions.require(memory, what) if what else await _last(memory, caller)
        last = await as_of(memory, row.session) or row.turns
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
