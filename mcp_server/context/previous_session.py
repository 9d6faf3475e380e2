"""Going on: what the conversation before this one was about, for a window whose first prompt only asks to go on.

It is told to nobody else: what was said in one conversation comes into another where a prompt bears on it.
"""

from __future__ import annotations

from anyio.to_thread import run_sync

from mcp_server.context.inputs import LastSession
from mcp_server.errors import ContextManagerError
from mcp_server.memory import Memory
from mcp_server.model import Turn
from mcp_server.project import Project
from mcp_server.storage.values import SessionRow

LAST_EXCHANGES = 3
LOOKED_AT = 20
"""So many conversations back, where those after it cannot be read."""


async def begins(memory: Memory, session: str) -> bool:
    """Whether nobody has answered in this session yet: later, going on means its own conversation."""
    return not await memory.state.count_turns(session, "agent")


async def last_session(memory: Memory, project: Project, without: str) -> LastSession | None:
    """The project's conversation that was last worked in, other than the session `without`; no subagent's."""
    keys = project.keys or {project.key}
    rows = await memory.state.sessions()
    own = [row for row in rows if row.project in keys and row.kind != "subagent" and row.session != without]
    for row in sorted(own, key=lambda row: row.last_at or row.last_arrival, reverse=True)[:LOOKED_AT]:
        try:
            turns = await run_sync(_last_turns, memory, row)
        except ContextManagerError:
            continue
        if turns:
            return LastSession(row.path, row.title, memory.local_date(turns[-1].at), turns)
    return None


def _last_turns(memory: Memory, row: SessionRow) -> tuple[Turn, ...]:
    """The last exchanges, of each what the user said and how the answer ended."""
    said = [placed.turn for placed in memory.transcripts.read(row.path).turns if placed.turn.content.strip()]
    kept: list[Turn] = []
    users = 0
    for position in range(len(said) - 1, -1, -1):
        turn = said[position]
        follows = said[position + 1].role if position + 1 < len(said) else "user"
        if turn.role == "user" or (turn.role == "agent" and follows != "agent"):
            kept.insert(0, turn)
        users += turn.role == "user"
        if users == LAST_EXCHANGES:
            break
    return tuple(kept)
