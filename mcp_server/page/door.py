"""Access to the page: admits only the browser that this user opened.

A one-time code is valid for CODE_SECONDS. It is in the fragment of an address, which appears in no server log and no
`Referer` header. The page at `/open` posts the code and gets a cookie. The cookie's name contains the port, because
browsers send cookies to every port of a host.

Every request is checked. Its Host must be ours, which prevents DNS rebinding. An unsafe method must come from our own
page, by both `Sec-Fetch-Site` and `Origin` (other ports of this machine are the same *site*). All paths except `/open`
and `/static/` need the cookie.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import quote

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

CODE_SECONDS = 60.0
"""Seconds in which a one-time code is valid."""

MAX_CODES, MAX_VISITS = 20, 50
"""At most this many one-time codes and signed-in browsers are kept; the oldest are dropped."""

SAFE = ("GET", "HEAD")
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    # Sends no referrer to other sites. With "no-referrer" browsers would send our own forms with `Origin: null`.
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}


@dataclass(slots=True)
class Visit:
    """A signed-in browser. Its next page shows `notice` once."""

    notice: str = ""


@dataclass(slots=True)
class Door:
    """The one-time codes and signed-in browsers of one server. `token`, if set, signs in any number of times.

    `now` returns seconds of a clock that only moves forward.
    """

    port: int
    token: str | None = None
    now: Callable[[], float] = time.monotonic
    _codes: dict[str, float] = field(default_factory=dict)
    _visits: dict[str, Visit] = field(default_factory=dict)

    @property
    def cookie(self) -> str:
        return f"cm-{self.port}"

    @property
    def hosts(self) -> frozenset[str]:
        return frozenset(f"{name}:{self.port}" for name in LOOPBACK)

    def new_code(self) -> str:
        code = secrets.token_urlsafe(32)
        self._codes[code] = self.now() + CODE_SECONDS
        while len(self._codes) > MAX_CODES:
            del self._codes[next(iter(self._codes))]
        return code

    def admit(self, code: str) -> str | None:
        """Returns the value of a new cookie if `code` is valid, and makes the code invalid. Otherwise returns None."""
        given = code.encode("utf-8", "replace")
        valid = self.token is not None and hmac.compare_digest(given, self.token.encode("utf-8", "replace"))
        for known, until in list(self._codes.items()):
            if self.now() > until:
                del self._codes[known]
            elif hmac.compare_digest(given, known.encode()):
                del self._codes[known]
                valid = True
        if not valid:
            return None
        value = secrets.token_urlsafe(32)
        self._visits[value] = Visit()
        while len(self._visits) > MAX_VISITS:
            del self._visits[next(iter(self._visits))]
        return value

    def visit(self, cookie: str | None) -> Visit | None:
        return self._visits.get(cookie or "")

    def leave(self, cookie: str | None) -> None:
        self._visits.pop(cookie or "", None)


def guarded(app: ASGIApp, door: Door) -> ASGIApp:
    """Returns an ASGI application that forwards allowed requests to `app` with their `visit`, and refuses others."""

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        request = Request(scope, receive)
        refusal = _refusal(request, door)
        await (refusal or app)(scope, receive, send_with_headers)

    return call


def _refusal(request: Request, door: Door) -> Response | None:
    """Returns the response to a request that is not allowed, or None if it is allowed."""
    hosts = request.headers.getlist("host")
    if len(hosts) != 1 or hosts[0].lower() not in door.hosts:
        return PlainTextResponse("This page is not served under this host name.", 421)
    is_own = request.headers.get("origin") == f"http://{hosts[0].lower()}"
    if request.method not in SAFE and not (is_own and request.headers.get("sec-fetch-site") == "same-origin"):
        return PlainTextResponse("Changes are accepted only from this page itself.", 403)
    path = request.url.path
    if path == "/open" or path.startswith("/static/"):
        return None
    visit = door.visit(request.cookies.get(door.cookie))
    if visit is not None:
        request.scope.setdefault("state", {})["visit"] = visit
        return None
    if request.method in SAFE and "hx-request" not in request.headers:
        wanted = f"{path}?{request.url.query}" if request.url.query else path
        return RedirectResponse(f"/open?to={quote(wanted, safe='')}", 303)
    return PlainTextResponse("Sign in first: run `context-manager page` again.", 401)
