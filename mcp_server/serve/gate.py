"""Checks that callers are members of a team's workspace and have the needed role; records and counts each call.

This process opens a workspace at its first call, and closes it when it has been idle. Memberships are read at each
call, so that a revoked membership is refused from the next call on.
"""

from __future__ import annotations

import contextlib
import logging
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import anyio
import prometheus_client
from anyio.abc import TaskGroup
from anyio.to_thread import run_sync
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.mcpserver.tools import Tool
from mcp.server.subscriptions import ServerEvent
from mcp.shared.exceptions import MCPError
from mcp.types import INTERNAL_ERROR, INVALID_REQUEST

from mcp_server.connection import Opening
from mcp_server.errors import ContextManagerError, Refused
from mcp_server.serve.instructions import TEAM
from mcp_server.serve.oauth import signed_in
from mcp_server.serve.server import Subscriptions
from mcp_server.storage.members import AuditEntry, Members, Principal, Role, includes
from mcp_server.text.destinations import OWN

if TYPE_CHECKING:
    from mcp_server.memory import Memory

log = logging.getLogger(__name__)
calls_log = logging.getLogger("mcp_server.calls")

CALLS = prometheus_client.Counter("context_manager_calls", "Calls.", ["method", "tool", "outcome"])
CALL_SECONDS = prometheus_client.Histogram("context_manager_call_seconds", "Duration of calls.", ["method"])
OPEN = prometheus_client.Gauge("context_manager_open_workspaces", "Workspaces that are open in this process.")

COUNTED = frozenset(
    {
        *("initialize", "server/discover", "ping", "tools/list", "tools/call", "resources/list", "resources/read"),
        *("resources/templates/list", "prompts/list", "prompts/get", "completion/complete", "subscriptions/listen"),
    }
)
"""Methods with their own label in the metrics. All others share one, because callers could invent any number."""

RECHECK_SECONDS = 10.0
"""Seconds between checks whether a client that listens to changes is still a member."""

OWNERS_TOOLS = frozenset({"forget"})
WRITING_ACTIONS = frozenset({"anchor", "unanchor", "prune"})
"""Actions of the prompt `clarity` that change the memory."""

AUDITED = frozenset({"tools/call", "resources/read", "prompts/get", "completion/complete", "subscriptions/listen"})

TARGETS = ("path", "session", "id", "turn", "uri")
"""Arguments that name a file, a session or a checkpoint."""

LONGEST_TARGET, MOST_TARGETS = 200, 50

_SESSION = re.compile(r"session: (\S+)")
_TRANSCRIPT = re.compile(r"(raw/conversations/\d+/\d+/\d+/\d+)-((?:ses_[0-9a-f]{12})?)\S*")

_ADDRESS = re.compile(r"postgresql://\S*\?workspace=")
"""The address of the database in an error message. Such a message goes only to the log; members get FAILED."""

FAILED = "the database of this memory failed; try again later, and tell the operator if it keeps failing"

addressed: ContextVar[str | None] = ContextVar("addressed", default=None)
"""The workspace in the address of the request; None for the personal one."""


IDLE_SECONDS = 300.0
"""Seconds after which a workspace that nobody uses is closed in this process."""

MOST_OPEN = 32
"""Above this number of open workspaces, the longest idle ones are closed: each has its own connections and threads."""


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


@dataclass(slots=True)
class Call:
    """A member's call: the caller, the workspace, the caller's role in it, and the workspaces that the call uses."""

    principal: Principal
    workspace: str
    role: Role
    workspaces: Workspaces
    used: dict[str, Workspace] = field(default_factory=dict)

    def use(self, name: str) -> Workspace:
        if name not in self.used:
            self.used[name] = self.workspaces.hold(name)
        return self.used[name]

    @property
    def here(self) -> Workspace:
        return self.use(self.workspace)

    @contextmanager
    def current(self) -> Iterator[None]:
        """Makes this the current call of `memory`, `personal`, `instructions` and `Bus` during the block."""
        token = _call.set(self)
        try:
            yield
        finally:
            _call.reset(token)
            for one in self.used.values():
                self.workspaces.release(one)


_call: ContextVar[Call] = ContextVar("call")


async def memory() -> Memory:
    """Returns the memory of the current call's workspace."""
    return await _call.get().here.opening.memory()


async def personal() -> Memory | None:
    """Returns the memory of the caller's own workspace; None if the caller has none, or the call is in it."""
    call = _call.get()
    own = call.principal.personal
    if call.workspace == own or own not in call.principal.roles:
        return None
    return await call.use(own).opening.memory()


def instructions() -> str:
    """Returns the instructions for a client's model, with the workspace's name and the user's rights in it."""
    call = _call.get()
    if call.workspace == call.principal.personal:
        return f"{TEAM}\n\nWorkspace: your user's own."
    where = (
        f"Workspace: {call.workspace}, shared. search also searches the user's own workspace, and compile_context "
        "adds the user's identity and rules from there. Those paths begin with ~/; read accepts them."
    )
    if call.role == "reader":
        where += " The user may read here, but not write: do not call observe, remember, anchor or checkpoint."
    return f"{TEAM}\n\n{where}"


class Bus:
    """Passes events and subscriptions on to the bus of the current call's workspace."""

    async def publish(self, event: ServerEvent) -> None:
        await _call.get().here.subscriptions.bus.publish(event)

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        """Adds a listener in the current call's workspace, and returns a function that removes it."""
        return _call.get().here.subscriptions.bus.subscribe(listener)


async def watch(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """Middleware that tells the workspace which resources its clients listen to."""
    if ctx.method != "subscriptions/listen":
        return await call_next(ctx)
    await memory()  # opens the workspace, which then follows its changes
    return await _call.get().here.subscriptions.watch(ctx, call_next)


class Gate:
    """Middleware that refuses callers who are not members or lack the needed role, and records each call."""

    def __init__(self, members: Members, workspaces: Workspaces) -> None:
        self._members = members
        self._workspaces = workspaces
        self.tools: Mapping[str, Tool] = {}
        """The tools that are offered, by name."""

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Passes a call on and returns its result, or refuses it with an explanation."""
        if ctx.request_id is None:  # a notification: none of our handlers acts on it
            return await call_next(ctx)
        tool = "" if ctx.method != "tools/call" else _named(ctx) if _named(ctx) in self.tools else "unknown"
        began, outcome, who, where = time.perf_counter(), "error", None, addressed.get()
        try:
            principal = await self._principal()
            who, where = principal.id, where or principal.personal
            role = principal.roles.get(where)
            if role is None:  # the answer must not reveal whether the workspace exists
                outcome = "refused"
                raise MCPError(INVALID_REQUEST, NO_MEMBER.format(name=where, subject=principal.subject))
            call = Call(principal, where, role, self._workspaces)
            with call.current():
                try:
                    self._check_role(call, ctx)
                    listens = ctx.method == "subscriptions/listen"
                    result = await (self._while_member(ctx, call_next) if listens else call_next(ctx))
                except Refused as error:
                    outcome = "refused"
                    await self._record(call, ctx, None, outcome)
                    if ctx.method != "tools/call":
                        raise MCPError(INVALID_REQUEST, str(error)) from error
                    said = [{"type": "text", "text": str(error)}]
                    return {"content": said, "isError": True, "resultType": "complete"}
                # If the client disconnects, its call is canceled, but may have changed something: record it too.
                except BaseException as error:
                    with anyio.CancelScope(shield=True), contextlib.suppress(MCPError):
                        await self._record(call, ctx, None, outcome)
                    if isinstance(error, MCPError) and _ADDRESS.search(error.error.message):
                        log.warning("%s failed: %s", ctx.method, error.error.message)
                        raise MCPError(INTERNAL_ERROR, FAILED) from error
                    raise
                outcome = "ok"
                if isinstance(result, dict) and result.get("isError"):
                    outcome = "error"
                    for block in result["content"]:
                        if _ADDRESS.search(block.get("text", "")):
                            log.warning("%s failed: %s", ctx.method, block["text"])
                            block["text"] = FAILED
                await self._record(call, ctx, result, outcome)
                return result
        finally:
            _count(ctx.method, tool, outcome, time.perf_counter() - began, workspace=where, principal=who)

    async def _principal(self) -> Principal:
        who = signed_in()
        try:
            return await run_sync(self._members.sign_in, who.issuer, who.subject, who.name)
        except ContextManagerError as error:
            log.warning("a sign-in failed: %s", error)
            raise MCPError(INTERNAL_ERROR, FAILED) from error

    def _check_role(self, call: Call, ctx: ServerRequestContext[Any, Any]) -> None:
        """Raises Refused for a tool or prompt that needs a role with more rights."""
        needed: Role = "reader"
        if ctx.method == "tools/call":
            tool = self.tools.get(_named(ctx))
            reads = tool is not None and tool.annotations is not None and tool.annotations.read_only_hint
            needed = "reader" if reads else "owner" if _named(ctx) in OWNERS_TOOLS else "writer"
        elif ctx.method == "prompts/get":
            arguments = (ctx.params or {}).get("arguments")
            action = arguments.get("action") if isinstance(arguments, dict) else None
            needed = "writer" if str(action).strip().lower() in WRITING_ACTIONS else "reader"
        if not includes(call.role, needed):
            raise Refused(
                f"{_named(ctx)} changes the memory and needs the role {needed}, but your role in the workspace "
                f"{call.workspace} is {call.role}. An operator can give you that role. Searching and reading work."
            )

    async def _while_member(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Serves a stream of changes until the client leaves, its token expires, or its membership ends."""
        until, where = signed_in().expires, _call.get().workspace

        async def check() -> None:
            while time.time() < until:
                await anyio.sleep(RECHECK_SECONDS)
                if where not in (await self._principal()).roles:
                    break
            tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(check)
            result = await call_next(ctx)
            tasks.cancel_scope.cancel()
            return result
        raise MCPError(INVALID_REQUEST, "you are no longer a member of this workspace, or your token has expired")

    async def _record(
        self, call: Call, ctx: ServerRequestContext[Any, Any], result: HandlerResult, outcome: str
    ) -> None:
        if ctx.method not in AUDITED:
            return
        params = ctx.session.client_params
        # Leave out targets in the caller's own memory, and shorten the names of transcripts: they contain the first
        # words of the conversation.
        shared = (target for target in _targets(ctx.params or {}, result) if not target.startswith(OWN))
        shown = (_TRANSCRIPT.sub(r"\1-\2", target)[:LONGEST_TARGET] for target in shared)
        entry = AuditEntry(
            at=datetime.now(UTC),
            principal=call.principal.id,
            client=params.client_info.name[:100] if params else "",
            action=f"{ctx.method} {_named(ctx)}".strip()[:100],
            targets=list(dict.fromkeys(shown))[:MOST_TARGETS],
            outcome=outcome,
        )
        try:
            await run_sync(self._members.record, call.workspace, entry)
        except ContextManagerError as error:
            log.warning("a call could not be written to the audit log: %s", error)
            raise MCPError(
                INTERNAL_ERROR, "the call could not be written to the audit log; check what it did"
            ) from error


NO_MEMBER = (
    "you are not a member of the workspace {name!r}; an operator adds you with: context-manager --workspace "
    "'postgresql://…?workspace={name}' members add {subject!r}"
)


def _count(method: str, tool: str, outcome: str, seconds: float, **who: str | None) -> None:
    method = method if method in COUNTED else "other"
    CALLS.labels(method, tool, outcome).inc()
    if method != "subscriptions/listen":  # it lasts until the client leaves
        CALL_SECONDS.labels(method).observe(seconds)
    fields = {"method": method, "tool": tool, "outcome": outcome, "ms": round(seconds * 1000, 1), **who}
    calls_log.info("call", extra={"fields": fields})


def _named(ctx: ServerRequestContext[Any, Any]) -> str:
    name = (ctx.params or {}).get("name")
    return name if isinstance(name, str) else ""


def _targets(params: Mapping[str, Any], result: HandlerResult) -> Iterator[str]:
    """Yields the files, sessions and checkpoints in a call's arguments, and the paths and sessions in its result."""
    arguments = params.get("arguments")
    arguments = arguments if isinstance(arguments, dict) else {}
    more = arguments.get("more")
    for source in (params, arguments, more if isinstance(more, dict) else {}):
        yield from (value for name in TARGETS if isinstance(value := source.get(name), str))
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
