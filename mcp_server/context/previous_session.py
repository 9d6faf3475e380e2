"""Finds the previous conversation of a project, for a window whose first prompt only asks to continue it."""

from __future__ import annotations

from anyio.to_thread import run_sync

from mcp_server.context.inputs import LastSession
from mcp_server.conversations.authorship import is_injected
from mcp_server.errors import ContextManagerError
from mcp_server.memory import Memory
from mcp_server.model import Turn
from mcp_server.project import Project
from mcp_server.storage.values import SessionRow

LAST_EXCHANGES = 3
LOOKED_AT = 20
"""Number of conversations that are tried if the newest ones cannot be read."""


async def begins(memory: Memory, session: str) -> bool:
    """Returns whether the session has no answer yet. Later, "continue" means the session itself."""
    return not await memory.state.count_turns(session, "agent")


async def last_session(memory: Memory, project: Project, without: str) -> LastSession | None:
    """Returns the project's newest conversation other than the session `without`, ignoring subagents."""
    keys = project.keys or {project.key}
    rows = await memory.state.sessions()
    own = [row for row in rows if row.project in keys and row.kind != "subagent" and row.session != without]
    for row in sorted(own, key=lambda row: row.last_at or row.last_arrival, reverse=True)[:LOOKED_AT]:
        if (end := await end_of(memory, row)) is not None:
            return end
    return None


async def end_of(memory: Memory, row: SessionRow) -> LastSession | None:
    """Returns the last exchanges of a conversation; None if it has none or cannot be read."""
    try:
        turns = await run_sync(_last_turns, memory, row)
    except ContextManagerError:
        return None
    return LastSession(row.path, row.title, memory.local_date(turns[-1].at), turns) if turns else None


def _last_turns(memory: Memory, row: SessionRow) -> tuple[Turn, ...]:
    """Returns the user turns of the last exchanges and the last agent turn of each."""
    turns = (placed.turn for placed in memory.transcripts.read(row.path).turns)
    said = [one for one in turns if one.content.strip() and one.role != "system" and not is_injected(one.content)]
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
