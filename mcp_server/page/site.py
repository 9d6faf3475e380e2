"""The ASGI application of the page: its routes, and the HTTP status of each error."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from mcp.server.transport_security import RequestBodyLimitMiddleware
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from mcp_server.errors import Conflict, ContextManagerError, Invalid, NotFound, Refused
from mcp_server.memory import Memory
from mcp_server.page import days, find, knows, now, state, topics
from mcp_server.page.answer import FOLDER, Handler, Page, rendered
from mcp_server.page.door import Door, Visit, guarded

LONGEST_BODY = 256 * 1024
"""Maximum size of a form, in bytes."""

MODULES = (now, days, knows, find, topics, state)
STATUS = {NotFound: 404, Invalid: 400, Refused: 403, Conflict: 409}
FILES = {
    "style.css": "text/css",
    "page.js": "text/javascript",
    "door.js": "text/javascript",
    "htmx.min.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}


FOLDERS = frozenset(
    ("", "static", "open", "leave", *(path.split("/")[1] for screen in MODULES for _, path, _ in screen.ROUTES))
)
"""The first path segments of all URLs of the page."""


def application(memory: Callable[[], Awaitable[Memory]], door: Door) -> ASGIApp:
    """Returns the page's application, which only signed-in browsers can use. `memory` returns the open memory."""

    def answers(handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            page = Page(request, await memory(), request.state.visit)
            try:
                return await handler(page)
            except ContextManagerError as error:
                status = next((code for kind, code in STATUS.items() if isinstance(error, kind)), 503)
                return page.fail(status, str(error))

        return answer

    async def static(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in FILES:
            raise HTTPException(404)
        return FileResponse(FOLDER / "static" / name, media_type=FILES[name])

    async def open_(request: Request) -> Response:
        if request.method != "POST":
            return HTMLResponse(rendered("open.html", with_token=door.token is not None))
        cookie = door.admit((await request.body()).decode("utf-8", "replace").strip())
        if cookie is None:
            return PlainTextResponse("This address was used before, or it has expired.", 403)
        answer = Response(status_code=204)
        answer.set_cookie(door.cookie, cookie, httponly=True, samesite="strict", path="/")
        return answer

    async def leave(request: Request) -> Response:
        door.leave(request.cookies.get(door.cookie))
        answer = RedirectResponse("/open", 303)
        answer.delete_cookie(door.cookie, path="/", httponly=True, samesite="strict")
        return answer

    async def first(request: Request) -> Response:
        return RedirectResponse("/now", 303)

    async def not_found(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 404
        page = Page(request, await memory(), getattr(request.state, "visit", Visit()))
        return page.fail(status, "There is no such page.")

    routes = [
        Route("/", first),
        Route("/static/{name}", static),
        Route("/open", open_, methods=["GET", "POST"]),
        Route("/leave", leave, methods=["POST"]),
    ]
    for screen in MODULES:
        routes += [Route(path, answers(handler), methods=[method]) for method, path, handler in screen.ROUTES]
    app = Starlette(routes=routes, exception_handlers={404: not_found, 405: not_found})
    return guarded(RequestBodyLimitMiddleware(app, LONGEST_BODY), door)
