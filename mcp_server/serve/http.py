"""Streamable HTTP: on loopback by default, with a bearer token, and with Host and Origin checked.

If the setting `watchers.webhooks` is on, other programs may post to `/webhook/SOURCE/EVENT`, with a token of their own
that gives access to nothing else; the event activates the topics that listen to it.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import re
import secrets
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import h11
import uvicorn
from mcp.server.transport_security import (
    RequestBodyLimitMiddleware,
    TransportSecurityMiddleware,
    TransportSecuritySettings,
)
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from mcp_server.errors import Conflict, ContextManagerError, Invalid, NotFound, Refused, Unavailable
from mcp_server.page import site
from mcp_server.page.door import Door
from mcp_server.storage.local import durable
from mcp_server.topics.watch import webhook

if TYPE_CHECKING:
    from mcp_server.memory import Memory
    from tools.rim import Rim

LOOPBACK = ("127.0.0.1", "localhost", "::1")
TOKEN_VARIABLE = "CONTEXT_MANAGER_TOKEN"
WEBHOOK_TOKEN_VARIABLE = "CONTEXT_MANAGER_WEBHOOK_TOKEN"
LONGEST_BODY = 64 * 1024 * 1024
"""Bytes of one request. A message may have 20 MB, and JSON may double it."""

REQUEST_SECONDS = 10.0
"""Time limit for the head of a request, and for each further part of its body."""


class Connection(H11Protocol):
    """An HTTP/1.1 connection that is closed after REQUEST_SECONDS without the next part of a request.

    uvicorn would keep it open forever.
    """

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:  # the head is incomplete: more data does not extend the limit
            if self._deadline is None:
                self._start()
            return
        self._stop()
        if self.conn.their_state is h11.SEND_BODY:
            self._start()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)

    def _start(self) -> None:
        self._deadline = self.loop.call_later(REQUEST_SECONDS, self._is_late)

    def _stop(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _is_late(self) -> None:
        if self.flow.read_paused:  # the server has not read the data yet
            self._start()
        else:
            self.transport.close()


PREFIX = "/webhook/"
_PATH = re.compile(r"/webhook/([\w.:-]{1,100})/([\w.:-]{1,100})/?", re.ASCII)


async def _record_webhook(memory: Callable[[], Awaitable[Memory]], request: Request) -> JSONResponse:
    """Records one event on disk, and returns the answer. Checks no token."""
    place = _PATH.fullmatch(request.url.path)
    if place is None:
        return JSONResponse({"error": "post to /webhook/SOURCE/EVENT; use only letters, digits and . : _ -"}, 404)
    if request.method != "POST":
        return JSONResponse({"error": "only POST is allowed here"}, 405)
    try:
        body = (await request.body()).decode("utf-8")
    except UnicodeDecodeError as error:
        return JSONResponse({"error": f"the body is not UTF-8 (byte {error.start})"}, 400)
    projects = request.query_params.getlist("project")
    try:
        done = await webhook(await memory(), place[1], place[2], body, projects[0] if projects else None)
    except ContextManagerError as error:
        status = 404 if isinstance(error, NotFound) else 400 if isinstance(error, Invalid) else 503
        return JSONResponse({"error": str(error)}, status)
    return JSONResponse({"topics": list(done.topics), "sessions": done.sessions}, 202)


def token_of(
    given: str | None, environ: Mapping[str, str], kept: Path, variable: str = TOKEN_VARIABLE
) -> tuple[str, str]:
    """Returns the token that callers must send, and its source: the option, the environment, else the file `kept`.

    Creates the file if it is missing, readable by this user only.
    """
    if given:
        return given, "--token"
    if environ.get(variable):
        return environ[variable], variable
    try:
        for folder in (kept.parent.parent, kept.parent):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Write atomically: another server may be reading the file, and this one may be killed.
        durable.put(kept, f"{secrets.token_urlsafe(32)}\n".encode(), kept.name, new=True, mode=0o600)
    except Conflict:
        kept.chmod(0o600)
    except OSError as error:
        raise Unavailable(f"the token cannot be stored in {kept} ({error.strerror}); pass one in {variable}") from error
    token = kept.read_text("ascii").strip()
    if not token:
        raise Refused(f"{kept} is empty; delete it, and the next start makes a new token")
    return token, str(kept)


@dataclass(frozen=True, slots=True)
class WebhookAccess:
    """The token for webhooks, its source, and the maximum size of one webhook in bytes."""

    token: str
    source: str
    most_bytes: int


def guarded(app: ASGIApp, token: str) -> ASGIApp:
    """Returns an ASGI application that passes requests with the token to `app` and refuses all others."""
    expected = f"Bearer {token}".encode()

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        refusal = None
        if scope["type"] == "http":
            given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
            scheme, _, token = given.partition(b" ")
            if not hmac.compare_digest(scheme.capitalize() + b" " + token.strip(), expected):
                refusal = JSONResponse(
                    {"error": "invalid_token", "error_description": "send the token: Authorization: Bearer …"},
                    status_code=401,
                    headers={"WWW-Authenticate": 'Bearer error="invalid_token"'},
                )
        await (refusal or app)(scope, receive, send)

    return call


def application(mcp: Rim, host: str, port: int, token: str | None, webhooks: WebhookAccess | None = None) -> ASGIApp:
    """Returns the ASGI application on `/mcp`. It checks Host, Origin (of a browser) and the token.

    With `webhooks`, other programs may post events, with another token. On loopback with a token, it also serves the
    page, and a browser signs in with the token.
    """
    names = {*LOOPBACK} if host in LOOPBACK else {*LOOPBACK, *_own_names(host)}
    written = sorted(f"[{name}]" if ":" in name else name for name in names)
    security = TransportSecuritySettings(
        allowed_hosts=[f"{name}:{port}" for name in written],
        allowed_origins=[f"{scheme}://{name}:{port}" for name in written for scheme in ("http", "https")],
    )
    served = mcp.streamable_http_app(host=host, max_request_body_size=LONGEST_BODY, transport_security=security)
    app = served if token is None else guarded(served, token)
    page = site.application(mcp.memory, Door(port, token)) if token is not None and host in LOOPBACK else None
    door = guarded(_webhooks(mcp, security, webhooks.most_bytes), webhooks.token) if webhooks else None

    async def route(scope: Scope, receive: Receive, send: Send) -> None:
        chosen = app
        if scope["type"] == "http":
            if door is not None and scope["path"].startswith(PREFIX):
                chosen = door
            elif page is not None and scope["path"].split("/")[1] in site.FOLDERS:
                chosen = page
        await chosen(scope, receive, send)

    return route


def _webhooks(mcp: Rim, security: TransportSecuritySettings, most_bytes: int) -> ASGIApp:
    """Returns an ASGI application that records webhooks, and checks Host, Origin and size before."""

    async def record(scope: Scope, receive: Receive, send: Send) -> None:
        answer = await _record_webhook(mcp.memory, Request(scope, receive))
        await answer(scope, receive, send)

    limited, checks = RequestBodyLimitMiddleware(record, most_bytes), TransportSecurityMiddleware(security)

    async def check(scope: Scope, receive: Receive, send: Send) -> None:
        await (await checks.validate_request(Request(scope)) or limited)(scope, receive, send)

    return check


def bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only if the protocol is named. Without it an answer takes 40 ms longer.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    if os.name != "nt":  # on Windows it would let another program take the port
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(128)  # from now on callers wait instead of being refused
    except OSError as error:
        listening.close()
        raise Unavailable(f"cannot listen on {host}:{port} ({error.strerror}); choose another --port") from error
    return listening


async def serve(
    mcp: Rim,
    listening: socket.socket,
    token: str | None,
    source: str,
    host: str,
    webhooks: WebhookAccess | None = None,
) -> None:
    """Serves until interrupted. Prints the address and the token's source on stderr; stdout stays empty."""
    port = listening.getsockname()[1]
    shown = f"[{host}]" if ":" in host else host
    secured = "no token is required: every program on this machine can read this memory" if token is None else source
    print(f"context-manager: http://{shown}:{port}/mcp — token: {secured}", file=sys.stderr, flush=True)  # noqa: T201
    if token is not None and host in LOOPBACK:
        print(f"context-manager: http://{shown}:{port}/ — the page, with the same token", file=sys.stderr, flush=True)  # noqa: T201
    if webhooks is not None:
        door = f"http://{shown}:{port}/webhook/SOURCE/EVENT — token: {webhooks.source}"
        print(f"context-manager: {door}", file=sys.stderr, flush=True)  # noqa: T201
    await web_server(application(mcp, host, port, token, webhooks)).serve(sockets=[listening])


def web_server(app: ASGIApp, lifespan: Literal["auto", "off"] = "auto") -> uvicorn.Server:
    """Returns the server of an ASGI application, which writes no log of requests."""
    config = uvicorn.Config(
        app,
        http=Connection,
        log_level="warning",
        log_config=None,
        access_log=False,
        lifespan=lifespan,
        timeout_graceful_shutdown=1,
    )
    return uvicorn.Server(config)


def refuse_unprotected(host: str, token_wanted: bool) -> None:
    """Raises Refused for a server without a token that other machines can reach."""
    if not token_wanted and host not in LOOPBACK:
        raise Refused(f"--no-token is for loopback only, and {host} can be reached from outside; leave it out")


def _own_names(host: str) -> set[str]:
    """Returns this machine's names and addresses, for a server that listens beyond loopback."""
    if host not in ("0.0.0.0", "::"):
        return {host}
    name = socket.gethostname()
    try:
        addresses = {str(info[4][0]) for info in socket.getaddrinfo(name, None)}
    except OSError:
        addresses = set()
    return {name, *addresses}
