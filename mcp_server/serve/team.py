"""Serves a team's memory over HTTP: many workspaces on PostgreSQL, for everybody who signed in with OAuth.

    /mcp                the caller's personal workspace
    /mcp/WORKSPACE      a shared workspace that the caller is a member of
    /healthz, /readyz   check that this process runs, and that the database answers
    /metrics            counts and times of calls, for Prometheus

Any replica can answer any request, because no state is kept between the requests of a client.
"""

from __future__ import annotations

import json
import logging
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import anyio
import prometheus_client
from anyio.to_thread import run_sync
from mcp.server.auth.handlers.metadata import ProtectedResourceMetadataHandler
from mcp.server.auth.routes import cors_middleware
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.auth import ProtectedResourceMetadata
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from mcp_server.connection import Connection
from mcp_server.errors import ContextManagerError
from mcp_server.serve import gate, http
from mcp_server.serve.oauth import OAuth, Verifier, guarded, signed_in
from mcp_server.serve.server import assemble
from mcp_server.storage.members import Members

if TYPE_CHECKING:
    import tools
    from mcp_server.memory import Memory
    from tools.rim import Rim

RATE_VARIABLE = "CONTEXT_MANAGER_CALLS_PER_MINUTE"
CALLS_PER_MINUTE = 600
BURST_SECONDS = 10
"""A burst may have as many calls as are allowed in this many seconds."""

READY_SECONDS = 2.0
"""Time limit of the database's answer for `/readyz`."""

REFUSED = prometheus_client.Counter(
    "context_manager_refused_requests", "Requests that were refused before a call.", ["status"]
)


@dataclass(slots=True)
class Limits:
    """A token bucket for each principal in this process: `per_minute` calls a minute, in bursts of BURST_SECONDS."""

    per_minute: int
    _left: dict[tuple[str, str], tuple[float, float]] = field(default_factory=dict)

    def wait(self, who: tuple[str, str], now: float) -> float:
        """Counts a call of `who`. Returns 0 if it is allowed, else the seconds until a call is allowed."""
        most, rate = max(1.0, self.per_minute * BURST_SECONDS / 60), self.per_minute / 60
        left, at = self._left.get(who, (most, now))
        left = min(most, left + (now - at) * rate)
        if len(self._left) > 10_000:  # delete full buckets: a missing bucket counts as full
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
            await JSONResponse({"error": f"requests from web pages of {given} are refused"}, 403)(scope, receive, send)
            return
        if scope["method"] != "POST":  # there is no session to end, and no stream without a request
            await Response(status_code=405, headers={"Allow": "POST"})(scope, receive, send)
            return
        wait = limits.wait((who.issuer, who.subject), time.monotonic())
        if wait:
            REFUSED.labels("429").inc()
            said = {"error": f"over {limits.per_minute} calls a minute; try again in {wait:.0f} s"}
            await JSONResponse(said, 429, {"Retry-After": str(int(wait) + 1)})(scope, receive, send)
            return
        gate.addressed.set(scope["path_params"].get("workspace"))
        await app(scope, receive, send)

    return call


def application(mcp: Rim, oauth: OAuth, members: Members, limits: Limits) -> Starlette:
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
    """An ASGI application as a route's endpoint. (Starlette would call a plain function with a `Request`.)"""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(scope, receive, send)


def build(members: Members, enter: Callable[[str], AbstractAsyncContextManager[Memory]], profile: tools.Profile) -> Rim:
    workspaces = gate.Workspaces(enter)
    entrance = gate.Gate(members, workspaces)
    mcp = assemble(
        Connection(gate.memory, "http", personal=gate.personal),
        lambda server: workspaces.running(),
        [entrance, gate.watch],
        gate.Bus(),
        gate.instructions,
        profile=profile,
        secret=members.secret("request state"),
    )
    entrance.tools = {tool.name: tool for tool in mcp._tool_manager.list_tools()}
    return mcp


class JsonLines(logging.Formatter):
    """Writes each record as a line of JSON, without content.

    Other packages' records are written with their place only, exceptions with their type and place, and records of our
    packages that handle stored texts with the message without its values: the rest could contain a part of a text.
    """

    def format(self, record: logging.LogRecord) -> str:
        message = f"{record.filename}:{record.lineno}"
        if record.name.startswith("mcp_server"):
            whole = record.name.startswith(("mcp_server.serve", "mcp_server.storage"))
            message = record.getMessage() if whole else str(record.msg)
        line: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": message,
            **getattr(record, "fields", {}),
        }
        if record.exc_info and record.exc_info[0] is not None:
            line["exception"] = record.exc_info[0].__name__
            if frames := traceback.extract_tb(record.exc_info[2]):
                line["where"] = f"{frames[-1].filename}:{frames[-1].lineno}"
        return json.dumps(line, ensure_ascii=False)


async def serve(
    members: Members,
    enter: Callable[[str], AbstractAsyncContextManager[Memory]],
    oauth: OAuth,
    host: str,
    port: int,
    limits: Limits,
    profile: tools.Profile,
) -> None:
    """Serves until interrupted. Prints the address on stderr, and then the logs as JSON: warnings, and a line for each
    call. stdout stays empty."""
    mcp = await run_sync(build, members, enter, profile)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    gate.calls_log.setLevel(logging.INFO)
    listening = http.bound(host, port)
    shown = f"[{host}]" if ":" in host else host
    at = f"http://{shown}:{listening.getsockname()[1]}{urlsplit(oauth.url).path}"
    print(f"context-manager: {at}, as {oauth.url}", file=sys.stderr, flush=True)  # noqa: T201
    await http.web_server(application(mcp, oauth, members, limits)).serve(sockets=[listening])
