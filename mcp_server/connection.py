"""One MCP connection as the actions see it: whose memory, which client, which sessions (SPEC §2 "Which session").

Here and in the tools and resources, actions are imported by the calls that need them: the first answer must not wait.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal
from urllib.parse import quote

from anyio import CancelScope, Lock
from anyio.to_thread import run_sync

from mcp_server.model import Caller
from mcp_server.text.fencing import neutralise

if TYPE_CHECKING:
    from mcp_server.conversations.observe import NewTurn, Observed
    from mcp_server.memory import Memory
    from mcp_server.project import Project

URI = "context://compiled"
LISTED = 20
"""Conversations that are listed, the last heard of first; `status` with view=sessions knows the others."""

HANDLE = "This opened a new session. Pass its ID as `session` in every later call of this conversation."


@dataclass(slots=True)
class Connection:
    """What every tool, resource and prompt of one server gets.

    `memory()` waits until the workspace is open, and raises what went wrong if it could not be opened. Over stdio a
    process serves one connection, whose sessions are remembered here; over HTTP nothing is: there every call names its
    session, and its project too, since the server's folder says nothing about the client's (`folder` is None).
    `window` is what the client calls the window that this server belongs to: hooks tell by it which session it is in.
    """

    memory: Callable[[], Awaitable[Memory]]
    transport: Literal["stdio", "http"] = "stdio"
    folder: str | None = None
    window: str | None = None
    _hooked: str | None = None
    _seen: dict[str, None] = field(default_factory=dict)
    _own: str | None = None
    _first: Lock = field(default_factory=Lock)

    @property
    def session(self) -> str | None:
        """What an unnamed call means: the session that the client's hooks last gave, else the one that this connection
        has seen; None with none or several."""
        return self._hooked or (next(iter(self._seen)) if len(self._seen) == 1 else None)

    def saw(self, session: str | None) -> None:
        """Remembers a session that a call has named and that exists."""
        if session and self.transport == "stdio":
            self._seen[session] = None

    def follow(self, session: str | None) -> None:
        """The client's hooks say that it is in this session now."""
        self.saw(session)
        if session and self.transport == "stdio":
            self._hooked = session

    async def caller(self, client: str | None = None) -> Caller:
        """The caller of every action but `observe`."""
        if self.window:
            from mcp_server.context.windows import session_in

            self.follow(await session_in(await self.memory(), self.window))
        return self._caller(await self._explicit(client), client, self.session)

    async def project(self, client: str | None = None) -> Project:
        """The project that a call looks in: that of this connection's session, else that of the client's folder."""
        from mcp_server.conversations.projects import project_of

        memory, caller = await self.memory(), await self.caller(client)
        row = await memory.state.session(caller.session) if caller.session else None
        return await project_of(memory, caller, row.project or "global" if row else None)

    async def observe(self, client: str | None, turn: NewTurn) -> Observed:
        """Records a turn.

        Unnamed, it goes to the session that this connection opened, or to the only one it has seen; two first turns at
        once open one session. A client that serves many chats gets a new session for each unnamed turn.
        """
        from mcp_server.conversations.observe import observe

        memory = await self.memory()
        explicit = await self._explicit(client)
        with CancelScope(shield=True):  # a client that goes away in the middle has said it all the same
            if turn.session or explicit or self.transport == "http":
                observed = await observe(memory, turn, self._caller(explicit, client, None))
                if not turn.session:
                    observed = replace(observed, notes=(*observed.notes, HANDLE))
            else:
                async with self._first:
                    observed = await observe(memory, turn, self._caller(explicit, client, self._own or self.session))
                    self._own = observed.session
            self.saw(observed.session)
        return observed

    async def compiled(self, client: str | None = None) -> str:
        """The compiled context of this connection's session; where it has none or several, what all share and the URIs
        of the open ones, within the same budget."""
        from mcp_server.context.compile import CompileRequest, compile_context
        from mcp_server.conversations.sessions import list_sessions

        memory, caller = await self.memory(), await self.caller(client)
        if caller.session:
            return (await compile_context(memory, CompileRequest(session=caller.session), caller)).text
        rows = await list_sessions(memory, open_only=True, limit=LISTED)
        uris = "".join(f"- {URI}/{quote(row.session, safe='')} — {neutralise(row.title)}\n" for row in rows)
        index = f"\n\n<!-- conversations -->\n{uris}" if uris else ""
        budget = memory.settings.context_compiler.token_budget - await run_sync(memory.tokens.count, index)
        return (await compile_context(memory, CompileRequest(budget=max(0, budget)), caller)).text + index

    def _caller(self, explicit: bool, client: str | None, session: str | None) -> Caller:
        return Caller("tool", client, explicit, self.folder, session)

    async def _explicit(self, client: str | None) -> bool:
        from mcp_server.conversations.sessions import names_sessions_explicitly

        return names_sessions_explicitly(client, self.transport, (await self.memory()).settings)
