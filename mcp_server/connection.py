"""A connection: the memory, the client and the sessions of one MCP server, for its tools and resources. The memory
opens in the background.

In this module, in tools and in resources, each call imports the actions that it needs, so that the first answer does
not wait for all imports.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

from anyio import CancelScope, Event, Lock, create_task_group, move_on_after
from anyio.to_thread import run_sync

from mcp_server.errors import ContextManagerError, Unavailable
from mcp_server.model import Caller
from mcp_server.text.fencing import neutralise

if TYPE_CHECKING:
    from mcp_server.context.compiler import Compiled
    from mcp_server.conversations.observe import Observed
    from mcp_server.memory import Memory
    from mcp_server.model import Project

URI = "context://compiled"
LISTED = 20
"""Most conversations that are listed, the most recently active first; `status` with view=sessions shows the others."""

EXPLICIT_CLIENTS = (
    "claude-ai",
    "claude desktop",
    "cursor",
    "visual studio code",
    "vscode",
    "code - oss",
    "windsurf",
    "devin",
    "zed",
)
"""Lower-case prefixes of the `clientInfo` names of clients that serve many chats through one server process."""

NAMED = "This opened a new conversation under the name that you gave."
HANDLE = "This opened a new session. Pass its ID as `session` in every later call of this conversation."


logger = logging.getLogger(__name__)

GRACE = 0.05
"""Seconds between the first answer and opening the workspace, so that the answer is sent first."""

PATIENCE = 5.0
"""Time limit of closing, in seconds. Acknowledged data is on disk already, and other work can be repeated."""


@dataclass(slots=True)
class Opening:
    """A workspace that opens in the background, after the first answer or when a call needs it.

    `enter` opens it, `work` runs while it is open. If opening fails, all waiting calls get the error, and the next call
    tries again.
    """

    enter: Callable[[], AbstractAsyncContextManager[Memory]]
    work: Callable[[Memory], Coroutine[Any, Any, None]]
    ready: Memory | None = None
    _nudged: Event = field(default_factory=Event)
    _urgent: Event = field(default_factory=Event)
    _tried: Event = field(default_factory=Event)
    _stop: Event = field(default_factory=Event)
    _stopped: Event = field(default_factory=Event)
    _error: ContextManagerError | None = None

    async def memory(self) -> Memory:
        """Waits for the open memory and returns it. Raises a ContextManagerError if it cannot be opened."""
        if self.ready is None:
            tried = self._tried
            self._urgent.set()
            self._nudged.set()
            await tried.wait()
        if self.ready is None:
            raise self._error or Unavailable("the server is shutting down; start it again")
        return self.ready

    def answered(self) -> None:
        """Allows the workspace to open, because the first answer is being sent."""
        self._nudged.set()

    async def run(self) -> None:
        try:
            while not self._stop.is_set():
                await self._nudged.wait()
                with move_on_after(GRACE):
                    await self._urgent.wait()
                if not self._stop.is_set():
                    await self._attempt()
        finally:
            self._tried.set()
            self._stopped.set()

    async def close(self) -> None:
        for event in (self._stop, self._urgent, self._nudged):
            event.set()
        with move_on_after(PATIENCE):
            await self._stopped.wait()

    async def _attempt(self) -> None:
        try:
            async with self.enter() as memory, create_task_group() as tasks:
                self.ready, self._error = memory, None
                self._tried.set()
                tasks.start_soon(self.work, memory)
                await self._stop.wait()
                self.ready = None
                tasks.cancel_scope.cancel()
        except Exception as raised:
            error = raised
            while isinstance(error, ExceptionGroup):
                error = error.exceptions[0]
            if not isinstance(error, ContextManagerError):
                logger.error("the workspace could not be opened", exc_info=raised)
                why = str(error) or type(error).__name__
                error = Unavailable(f"the memory could not be opened: {why} (context-manager doctor)")
            self.ready, self._error = None, error
            self._tried.set()  # all waiting calls get the error, and the next one tries again
            if not self._stop.is_set():
                self._nudged, self._urgent, self._tried = Event(), Event(), Event()


async def _none() -> None:
    return None


@dataclass(slots=True)
class Connection:
    """The state that the tools, resources and prompts of one server share.

    `memory()` waits until the workspace is open, and raises the error if it could not be opened. Over stdio a process
    serves one connection and remembers its sessions. Over HTTP `folder` is None, because the server's folder is not the
    client's, and each call names its session and project. `window` is the client's name of the window that this server
    belongs to; its hooks report the window's session under that name. `personal()` returns the caller's personal memory
    beside a shared one, if there is one: searches include its passages, and contexts include the user's
    identity and rules from it.
    """

    memory: Callable[[], Awaitable[Memory]]
    transport: Literal["stdio", "http"] = "stdio"
    folder: str | None = None
    window: str | None = None
    personal: Callable[[], Awaitable[Memory | None]] = _none
    _hooked: str | None = None
    _seen: dict[str, None] = field(default_factory=dict)
    _own: str | None = None
    _first: Lock = field(default_factory=Lock)

    @property
    def session(self) -> str | None:
        """Returns the session of a call without a session id: the one that the client's hooks reported last, else the
        only one that this connection has used; None if it has used none or several."""
        return self._hooked or (next(iter(self._seen)) if len(self._seen) == 1 else None)

    def saw(self, session: str | None) -> None:
        """Remembers an existing session that a call has named."""
        if session and self.transport == "stdio":
            self._seen[session] = None

    def follow(self, session: str | None) -> None:
        """Remembers the session that the client's hooks reported."""
        self.saw(session)
        if session and self.transport == "stdio":
            self._hooked = session

    async def caller(self, client: str | None = None) -> Caller:
        """Returns the caller of every action except `observe`."""
        if self.window:
            from mcp_server.context.windows import session_in

            self.follow(await session_in(await self.memory(), self.window))
        return self._caller(await self._explicit(client), client, self.session)

    async def project(self, client: str | None = None) -> Project:
        """Returns the project of this connection's session, else of the client's folder."""
        from mcp_server.conversations.projects import project_of

        memory, caller = await self.memory(), await self.caller(client)
        row = await memory.state.session(caller.session) if caller.session else None
        return await project_of(memory, caller, row.project or "global" if row else None)

    @asynccontextmanager
    async def next_turn(
        self, client: str | None, session: str | None
    ) -> AsyncIterator[tuple[Caller, Callable[[Observed], Observed]]]:
        """Yields the caller of a turn that arrives now, and a function that takes and returns the recorded turn.

        A turn without a session goes to the session that this connection opened, else to the only one that it has
        used. Two simultaneous first turns open one session. For a client that serves many chats, each turn without a
        session opens a new one. The turn is recorded even if the client disconnects meanwhile.
        """
        explicit = await self._explicit(client)
        alone = bool(session) or explicit or self.transport == "http"

        def recorded(observed: Observed) -> Observed:
            if not alone:
                self._own = observed.session
            self.saw(observed.session)
            if not alone or (session and not (observed.recorded and observed.turn == 1)):
                return observed
            return replace(observed, notes=(*observed.notes, NAMED if session else HANDLE))

        with CancelScope(shield=True):
            if alone:
                yield self._caller(explicit, client, None), recorded
            else:
                async with self._first:
                    yield self._caller(explicit, client, self._own or self.session), recorded

    async def compiled(self, client: str | None = None) -> Compiled:
        """Returns the compiled context of this connection's session. If it has used none or several, returns the
        context without a session and the URIs of the open sessions, within the same budget."""
        from mcp_server.context.compile import CompileRequest, compile_context
        from mcp_server.conversations.sessions import list_sessions

        memory, caller, personal = await self.memory(), await self.caller(client), await self.personal()
        if caller.session:
            return await compile_context(memory, CompileRequest(session=caller.session), caller, personal)
        rows = await list_sessions(memory, open_only=True, limit=LISTED)
        uris = "".join(f"- {URI}/{quote(row.session, safe='')} — {neutralise(row.title)}\n" for row in rows)
        index = f"\n\n<!-- conversations -->\n{uris}" if uris else ""
        budget = memory.settings.context_compiler.token_budget - await run_sync(memory.tokens.count, index)
        compiled = await compile_context(memory, CompileRequest(budget=max(0, budget)), caller, personal)
        return replace(compiled, text=compiled.text + index)

    def _caller(self, explicit: bool, client: str | None, session: str | None) -> Caller:
        return Caller("tool", client, explicit, self.folder, session)

    async def _explicit(self, client: str | None) -> bool:
        """Returns True if each `observe` of this client without a session id opens a new session."""
        rule = (await self.memory()).settings.server.unnamed_sessions
        if rule != "auto":
            return rule == "explicit"
        return self.transport == "http" or (client or "").lower().startswith(EXPLICIT_CLIENTS)
