"""Serves a team's memory over HTTP: many workspaces on PostgreSQL, for everybody who signed in with OAuth.

    /mcp                the caller's personal workspace
    /mcp/WORKSPACE      a shared workspace that the caller is a member of
    /healthz, /readyz   whether this process runs, and whether the database answers
    /metrics            counts and times of calls, for Prometheus

Any replica answers any request: nothing is kept between the requests of a client. Memberships are read at each call, so
a revoked one has no effect any more from the next call on.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import anyio
import prometheus_client
import uvicorn
from anyio.abc import TaskGroup
from anyio.to_thread import run_sync
from mcp.server import MCPServer
from mcp.server.auth.handlers.metadata import ProtectedResourceMetadataHandler
from mcp.server.auth.routes import cors_middleware
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.subscriptions import ServerEvent
from mcp.shared.auth import ProtectedResourceMetadata
from mcp.shared.exceptions import MCPError
from mcp.types import INTERNAL_ERROR, INVALID_REQUEST
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from mcp_server.connection import Connection
from mcp_server.errors import ContextManagerError, Unavailable
from mcp_server.serve import http
from mcp_server.serve.instructions import TEAM
from mcp_server.serve.oauth import OAuth, Verifier, guarded, signed_in
from mcp_server.serve.server import Opening, Subscriptions, assemble
from mcp_server.storage.members import AuditEntry, Members, Principal, Role, includes

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    import tools
    from mcp_server.memory import Memory
    from tools.rim import Rim

IDLE_SECONDS = 300.0
"""Seconds after which a workspace that nobody uses is closed in this process."""

MOST_OPEN = 32
"""Workspaces that one process keeps open if nobody uses them. Each has connections and threads of its own."""

RECHECK_SECONDS = 10.0
"""Seconds between checks whether a client that listens to changes is still a member."""

RATE_VARIABLE = "CONTEXT_MANAGER_CALLS_PER_MINUTE"
CALLS_PER_MINUTE = 600
BURST_SECONDS = 10
"""Calls of this many seconds may come at once."""

READY_SECONDS = 2.0

calls_log = logging.getLogger("mcp_server.calls")

CALLS = prometheus_client.Counter(
    "context_manager_calls", "Calls by method, tool and outcome.", ["method", "tool", "outcome"]
)
SECONDS = prometheus_client.Histogram("context_manager_call_seconds", "Duration of calls.", ["method"])
REFUSED = prometheus_client.Counter(
    "context_manager_refused_requests", "Requests that were refused by status.", ["status"]
)
OPEN = prometheus_client.Gauge("context_manager_open_workspaces", "Workspaces that are open in this process.")


# ---------------------------------------------------------------- workspaces


@dataclass(slots=True, eq=False)
class Workspace:
    """A workspace that this process serves. `users` counts the calls that use it now."""

    name: str
    opening: Opening
    subscriptions: Subscriptions
    users: int = 0
    since: float = 0.0
    """The time of the last use."""


class Workspaces:
    """The workspaces that this process serves. They open when they are needed, and close when nobody uses them."""

    def __init__(self, enter: Callable[[str], AbstractAsyncContextManager[Memory]]) -> None:
        self._enter = enter
        self._all: dict[str, Workspace] = {}
        self._tasks: TaskGroup | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Opens and closes workspaces during the block."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            tasks.start_soon(self._close_idle)
            try:
                yield
            finally:
                with anyio.CancelScope(shield=True):
                    async with anyio.create_task_group() as closing:
                        for one in self._all.values():
                            closing.start_soon(one.opening.close)
                tasks.cancel_scope.cancel()

    def hold(self, name: str) -> Workspace:
        """Returns a workspace that stays open until `release`."""
        one = self._all.get(name)
        if one is None:
            assert self._tasks is not None
            subscriptions = Subscriptions()

            async def work(memory: Memory) -> None:
                async with memory.changes.listen() as changes:
                    await subscriptions.follow(changes)

            one = self._all[name] = Workspace(name, Opening(lambda: self._enter(name), work), subscriptions)
            OPEN.set(len(self._all))
            self._tasks.start_soon(one.opening.run)
        one.users += 1
        return one

    def release(self, one: Workspace) -> None:
        """Allows a workspace to close when nobody else uses it."""
        one.users -= 1
        one.since = anyio.current_time()

    async def _close_idle(self) -> None:
        while True:
            await anyio.sleep(1)
            idle = sorted((one for one in self._all.values() if not one.users), key=lambda one: one.since)
            late = [one for one in idle if one.since < anyio.current_time() - IDLE_SECONDS]
            for one in late or idle[: max(0, len(self._all) - MOST_OPEN)]:
                del self._all[one.name]
                OPEN.set(len(self._all))
                assert self._tasks is not None
                self._tasks.start_soon(one.opening.close)


# ---------------------------------------------------------------- calls


@dataclass(slots=True)
class Call:
    """A call of a member: who calls, in which workspace and with which role, and the workspaces that it uses."""

    principal: Principal
    workspace: str
    role: Role
    workspaces: Workspaces
    used: dict[str, Workspace] = field(default_factory=dict)

    def use(self, name: str) -> Workspace:
        """Returns a workspace that stays open during this call."""
        if name not in self.used:
            self.used[name] = self.workspaces.hold(name)
        return self.used[name]

    def release(self) -> None:
        """Ends the use of all workspaces."""
        for one in self.used.values():
            self.workspaces.release(one)


_call: ContextVar[Call] = ContextVar("call")
_addressed: ContextVar[str | None] = ContextVar("addressed", default=None)
"""The workspace in the address of the request; None for the personal one."""


async def _memory() -> Memory:
    call = _call.get()
    return await call.use(call.workspace).opening.memory()


async def _personal() -> Memory | None:
    call = _call.get()
    own = call.principal.personal
    if call.workspace == own or own not in call.principal.roles:
        return None
    return await call.use(own).opening.memory()


class _Bus:
    """Passes each subscription to the bus of the workspace that its caller is in."""

    async def publish(self, event: ServerEvent) -> None:
        call = _call.get()
        await call.use(call.workspace).subscriptions.bus.publish(event)

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        call = _call.get()
        return call.use(call.workspace).subscriptions.bus.subscribe(listener)


async def _watch(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """Middleware that lets the workspace know which resources its clients listen to."""
    call = _call.get(None)
    if ctx.method != "subscriptions/listen" or call is None:
        return await call_next(ctx)
    await _memory()  # so that its changes are followed
    return await call.use(call.workspace).subscriptions.watch(ctx, call_next)


def _instructions() -> str:
    call = _call.get()
    own = call.workspace == call.principal.personal
    where = "Workspace: your user's own." if own else f"Workspace: {call.workspace}, shared."
    if not own:
        where += " search also finds passages of the user's own workspace: their paths begin with ~/"
    if call.role == "reader":
        where += "\nThe user may read here, but not write: do not call observe, remember or checkpoint."
    return f"{TEAM}\n\n{where}"


OWNERS_TOOLS = frozenset({"forget"})
WRITING_ACTIONS = frozenset({"anchor", "unanchor", "prune"})
"""Actions of the prompt `clarity` that change the memory."""


class Gate:
    """Middleware that lets members in, within their roles, and records each call."""

    def __init__(
        self, members: Members, workspaces: Workspaces, reading: frozenset[str], all_tools: frozenset[str]
    ) -> None:
        self._members = members
        self._workspaces = workspaces
        self._reading = reading
        self._tools = all_tools

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Answers a call, or refuses it with a sentence."""
        if ctx.request_id is None:  # a notification: no handler of ours acts on one
            return await call_next(ctx)
        began, outcome = time.perf_counter(), "error"
        result: HandlerResult = None
        tool = _named(ctx) if ctx.method == "tools/call" else ""
        tool = tool if tool in self._tools else tool and "unknown"
        call: Call | None = None
        try:
            call = await self._caller()
            needed = self._needed(ctx)
            if not includes(call.role, needed):
                outcome = "refused"
                why = (
                    f"{_named(ctx)!r} changes the memory, and your role in this workspace is {call.role}: "
                    f"ask an owner of the workspace for the role {needed}. You can search and read here."
                )
                if ctx.method != "tools/call":
                    raise MCPError(INVALID_REQUEST, why)
                result = {"content": [{"type": "text", "text": why}], "isError": True, "resultType": "complete"}
            else:
                _call.set(call)
                if ctx.method == "subscriptions/listen":
                    result = await self._while_member(ctx, call_next)
                else:
                    result = await call_next(ctx)
                outcome = "error" if isinstance(result, dict) and result.get("isError") else "ok"
            if ctx.method in AUDITED:
                await self._record(call, ctx, result, outcome)
            return result
        finally:
            seconds = time.perf_counter() - began
            CALLS.labels(ctx.method if ctx.method in KNOWN else "other", tool, outcome).inc()
            if ctx.method != "subscriptions/listen":
                SECONDS.labels(ctx.method if ctx.method in KNOWN else "other").observe(seconds)
            if call is not None:
                call.release()
            calls_log.info(
                "call",
                extra={
                    "fields": {
                        "method": ctx.method if ctx.method in KNOWN else "other",
                        "tool": tool,
                        "workspace": call.workspace if call else None,
                        "principal": call.principal.id if call else None,
                        "outcome": outcome,
                        "ms": round(seconds * 1000, 1),
                    }
                },
            )

    async def _caller(self) -> Call:
        who, addressed = signed_in(), _addressed.get()
        try:
            principal = await run_sync(self._members.sign_in, who.issuer, who.subject, who.name)
        except Unavailable as error:
            raise MCPError(INTERNAL_ERROR, str(error)) from error
        name = addressed or principal.personal
        role = principal.roles.get(name)
        if role is None:  # the same for a workspace that does not exist
            raise MCPError(
                INVALID_REQUEST,
                f"you are not a member of the workspace {name!r}; an operator adds you with: context-manager "
                f"--workspace 'postgresql://…?workspace={name}' members add {principal.subject!r}",
            )
        return Call(principal, name, role, self._workspaces)

    def _needed(self, ctx: ServerRequestContext[Any, Any]) -> Role:
        params = ctx.params or {}
        if ctx.method == "tools/call":
            name = params.get("name")
            return "reader" if name in self._reading else "owner" if name in OWNERS_TOOLS else "writer"
        if ctx.method == "prompts/get":
            action = str((params.get("arguments") or {}).get("action", ""))
            return "writer" if action.strip().lower() in WRITING_ACTIONS else "reader"
        return "reader"

    async def _while_member(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Serves a stream of changes until the client leaves, its token expires, or it is no member any more."""
        until = signed_in().expires

        async def check() -> None:
            while time.time() < until:
                await anyio.sleep(RECHECK_SECONDS)
                try:
                    await self._caller()
                except MCPError:
                    break
            tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(check)
            result = await call_next(ctx)
            tasks.cancel_scope.cancel()
            return result
        raise MCPError(INVALID_REQUEST, "you are not a member of this workspace any more, or your token has expired")

    async def _record(
        self, call: Call, ctx: ServerRequestContext[Any, Any], result: HandlerResult, outcome: str
    ) -> None:
        params = ctx.session.client_params
        entry = AuditEntry(
            datetime.now(UTC),
            call.principal.id,
            params.client_info.name[:100] if params else "",
            f"{ctx.method} {_named(ctx)}".strip()[:100],
            list(dict.fromkeys(_targets(ctx.params or {}, result)))[:MOST_TARGETS],
            outcome,
        )
        try:
            await run_sync(self._members.record, call.workspace, entry)
        except ContextManagerError as error:
            raise MCPError(INTERNAL_ERROR, f"the call could not be entered in the audit log: {error}") from error


KNOWN = frozenset(
    {
        *("initialize", "server/discover", "ping", "tools/list", "tools/call", "resources/list", "resources/read"),
        *("resources/templates/list", "prompts/list", "prompts/get", "completion/complete", "subscriptions/listen"),
    }
)
AUDITED = frozenset({"tools/call", "resources/read", "prompts/get", "completion/complete", "subscriptions/listen"})

TARGETS = ("path", "session", "id", "turn", "uri")
"""Arguments that name a file, a session or a checkpoint."""

LONGEST_TARGET, MOST_TARGETS = 200, 50
_SESSION = re.compile(r"session: (\S+)")


def _named(ctx: ServerRequestContext[Any, Any]) -> str:
    """Returns the name of the tool or prompt of a call."""
    name = (ctx.params or {}).get("name")
    return name if isinstance(name, str) else ""


def _targets(params: Mapping[str, Any], result: HandlerResult) -> Iterable[str]:
    """Yields what a call named, and what its answer shows: paths and sessions."""
    arguments = params.get("arguments")
    arguments = arguments if isinstance(arguments, dict) else {}
    more = arguments.get("more")
    for source in (params, arguments, more if isinstance(more, dict) else {}):
        yield from (value[:LONGEST_TARGET] for name in TARGETS if isinstance(value := source.get(name), str))
    if not isinstance(result, dict):
        return
    data = result.get("structuredContent")
    data = data if isinstance(data, dict) else {}
    hits = data.get("hits")
    for source in (data, *(hits if isinstance(hits, list) else ())):
        yield from (value for name in ("path", "session") if isinstance(value := source.get(name), str))
    for block in result.get("content") or ():
        if isinstance(block, dict) and (found := _SESSION.match(str(block.get("text", "")))):
            yield found[1]


# ---------------------------------------------------------------- HTTP


@dataclass(slots=True)
class Limits:
    """A token bucket for each principal, in this process: `per_minute` calls, of BURST_SECONDS at once."""

    per_minute: int
    _left: dict[tuple[str, str], tuple[float, float]] = field(default_factory=dict)

    def wait(self, who: tuple[str, str], now: float) -> float:
        """Takes a call of `who`. Returns 0, or the seconds until the next call is allowed."""
        most, rate = max(1.0, self.per_minute * BURST_SECONDS / 60), self.per_minute / 60
        left, at = self._left.get(who, (most, now))
        left = min(most, left + (now - at) * rate)
        if len(self._left) > 10_000:  # full buckets are the same as none
            self._left = {
                one: (had, then) for one, (had, then) in self._left.items() if had + (now - then) * rate < most
            }
        self._left[who] = (left - 1 if left >= 1 else left, now)
        return 0.0 if left >= 1 else (1 - left) / rate


def _limited(app: ASGIApp, oauth: OAuth, limits: Limits) -> ASGIApp:
    """Returns an ASGI application that passes requests on within the limits, with the workspace of their address."""
    own = urlsplit(oauth.url)
    origin = f"{own.scheme}://{own.netloc}"

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        who = signed_in()
        given = Request(scope).headers.get("origin")
        if given not in (None, origin):
            await JSONResponse({"error": f"requests of pages of {given} are refused"}, 403)(scope, receive, send)
            return
        wait = limits.wait((who.issuer, who.subject), time.monotonic())
        if wait:
            REFUSED.labels("429").inc()
            said = {"error": f"over {limits.per_minute} calls a minute; try again in {wait:.0f} s"}
            await JSONResponse(said, 429, {"Retry-After": str(int(wait) + 1)})(scope, receive, send)
            return
        _addressed.set(scope["path_params"].get("workspace"))
        await app(scope, receive, send)

    return call


def application(mcp: Rim, oauth: OAuth, members: Members, limits: Limits) -> Starlette:
    """Returns the ASGI application."""
    manager = StreamableHTTPSessionManager(
        mcp._lowlevel_server, stateless=True, max_request_body_size=http.LONGEST_BODY
    )
    mcp_app = guarded(_limited(manager.asgi_app, oauth, limits), oauth, Verifier(oauth))
    described = ProtectedResourceMetadata.model_validate(  # as text: clients compare the issuer exactly
        {
            "resource": oauth.url,
            "authorization_servers": [oauth.issuer],
            "scopes_supported": list(oauth.scopes),
            "resource_name": "Context manager",
        }
    )
    metadata = cors_middleware(ProtectedResourceMetadataHandler(described).handle, ["GET", "OPTIONS"])
    path, well_known = urlsplit(oauth.url).path, urlsplit(oauth.metadata_url).path

    async def healthy(request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def ready(request: Request) -> Response:
        with anyio.move_on_after(READY_SECONDS):
            try:
                await run_sync(members.check, abandon_on_cancel=True)
            except ContextManagerError as error:
                return PlainTextResponse(f"{error}\n", 503)
            return PlainTextResponse("ok\n")
        return PlainTextResponse("the database does not answer\n", 503)

    async def metrics(request: Request) -> Response:
        return Response(prometheus_client.generate_latest(), media_type=prometheus_client.CONTENT_TYPE_LATEST)

    return Starlette(
        routes=[
            Route(path, endpoint=_Endpoint(mcp_app)),
            Route(f"{path}/{{workspace}}", endpoint=_Endpoint(mcp_app)),
            Route(well_known, endpoint=metadata, methods=["GET", "OPTIONS"]),
            Route(f"{well_known}/{{workspace}}", endpoint=metadata, methods=["GET", "OPTIONS"]),
            Route("/healthz", endpoint=healthy),
            Route("/readyz", endpoint=ready),
            Route("/metrics", endpoint=metrics),
        ],
        lifespan=lambda app: manager.run(),
    )


@dataclass(frozen=True, slots=True)
class _Endpoint:
    """An ASGI application as a route's endpoint. (Starlette takes a function for one that answers a `Request`.)"""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(scope, receive, send)


def build(members: Members, enter: Callable[[str], AbstractAsyncContextManager[Memory]], profile: tools.Profile) -> Rim:
    """Returns the server of all workspaces. `enter` opens one."""
    workspaces = Workspaces(enter)

    @asynccontextmanager
    async def life(server: MCPServer[Any]) -> AsyncIterator[None]:
        async with workspaces.running():
            yield

    async def gate(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        return await checked(ctx, call_next)

    mcp = assemble(
        Connection(_memory, "http", personal=_personal),
        life,
        [gate, _watch],
        _Bus(),
        _instructions,
        profile=profile,
        secret=members.secret("request state"),
    )
    offered = mcp._tool_manager.list_tools()
    reading = frozenset(tool.name for tool in offered if tool.annotations and tool.annotations.read_only_hint)
    checked = Gate(members, workspaces, reading, frozenset(tool.name for tool in offered))
    return mcp


# ---------------------------------------------------------------- logs


class JsonLines(logging.Formatter):
    """Writes each record as a line of JSON, without content.

    Of other packages only the message without its values is written, because they may have a part of a request; of an
    exception its type and place.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Returns the line."""
        ours = record.name.startswith("mcp_server")
        line: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage() if ours else str(record.msg)[:200],
            **getattr(record, "fields", {}),
        }
        if record.exc_info and record.exc_info[0] is not None:
            place = record.exc_info[2]
            while place is not None and place.tb_next is not None:
                place = place.tb_next
            line["exception"] = record.exc_info[0].__name__
            if place is not None:
                line["where"] = f"{place.tb_frame.f_code.co_filename}:{place.tb_lineno}"
        return json.dumps(line, ensure_ascii=False)


def log_to_stderr() -> None:
    """Sends all logs to stderr as JSON: warnings, and a line for each call."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    calls_log.setLevel(logging.INFO)


async def serve(
    members: Members,
    enter: Callable[[str], AbstractAsyncContextManager[Memory]],
    oauth: OAuth,
    host: str,
    port: int,
    limits: Limits,
    profile: tools.Profile,
) -> None:
    """Serves until interrupted. Prints the address on stderr; stdout stays empty."""
    mcp = await run_sync(build, members, enter, profile)
    log_to_stderr()
    listening = http.bound(host, port)
    shown = f"[{host}]" if ":" in host else host
    at = f"http://{shown}:{listening.getsockname()[1]}{urlsplit(oauth.url).path}"
    print(f"context-manager: {at}, as {oauth.url}", file=sys.stderr, flush=True)  # noqa: T201
    config = uvicorn.Config(
        application(mcp, oauth, members, limits),
        http=http.Connection,
        log_level="warning",
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=1,
    )
    await uvicorn.Server(config).serve(sockets=[listening])
