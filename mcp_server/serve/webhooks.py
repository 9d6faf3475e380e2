"""Webhooks: other programs post to `/webhook/SOURCE/EVENT`, and topics that listen to it come in.

They bring a token of their own, which opens nothing else. Host and Origin are checked as for MCP, and what is too long
is not read to its end. Off unless `watchers.webhooks` says so.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

if TYPE_CHECKING:
    from mcp.server.transport_security import TransportSecuritySettings
    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send

    from mcp_server.memory import Memory

PREFIX = "/webhook/"
TOKEN_VARIABLE = "CONTEXT_MANAGER_WEBHOOK_TOKEN"
_PATH = re.compile(r"/webhook/([\w.:-]{1,100})/([\w.:-]{1,100})/?", re.ASCII)


class Webhooks:
    """ASGI: takes one event and answers 202 when it is on disk. Whoever calls it has checked who is asking."""

    def __init__(self, memory: Callable[[], Awaitable[Memory]]) -> None:
        self._memory = memory

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        from starlette.requests import Request

        status, said = await self._answer(Request(scope, receive))
        await _json(said, status)(scope, receive, send)

    async def _answer(self, request: Request) -> tuple[int, dict[str, object]]:
        from mcp_server.errors import ContextManagerError, Invalid, NotFound
        from mcp_server.topics.events import webhook

        place = _PATH.fullmatch(request.url.path)
        if place is None:
            return 404, {"error": "post to /webhook/SOURCE/EVENT; both are letters, digits and . : _ -"}
        if request.method != "POST":
            return 405, {"error": "only POST is taken here"}
        try:
            body = (await request.body()).decode("utf-8")
        except UnicodeDecodeError as error:
            return 400, {"error": f"the body is no UTF-8 text (byte {error.start})"}
        project = parse_qs(request.url.query).get("project", [None])[0]
        try:
            done = await webhook(await self._memory(), place[1], place[2], body, project)
        except NotFound as error:
            return 404, {"error": str(error)}
        except Invalid as error:
            return 400, {"error": str(error)}
        except ContextManagerError as error:
            return 503, {"error": str(error)}
        return 202, {"topics": list(done.topics), "sessions": done.sessions}


class Doors:
    """ASGI: webhooks go through a door of their own, everything else through the other."""

    def __init__(self, others: ASGIApp, webhooks: ASGIApp) -> None:
        self._others = others
        self._webhooks = webhooks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_webhook = scope["type"] == "http" and scope["path"].startswith(PREFIX)
        await (self._webhooks if is_webhook else self._others)(scope, receive, send)


class Checked:
    """ASGI: lets a request through if Host and Origin (of a browser) name this server."""

    def __init__(self, app: ASGIApp, security: TransportSecuritySettings) -> None:
        from mcp.server.transport_security import TransportSecurityMiddleware

        self._app = app
        self._checks = TransportSecurityMiddleware(security)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        from starlette.requests import Request

        refusal = await self._checks.validate_request(Request(scope))
        await (refusal or self._app)(scope, receive, send)


def _json(said: dict[str, object], status: int) -> ASGIApp:
    from starlette.responses import JSONResponse

    return JSONResponse(said, status_code=status)
