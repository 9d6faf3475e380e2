"""The context of one HTTP request: the parsed request, the memory, and the templates that render the response."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from http import HTTPStatus
from pathlib import Path
from urllib.parse import parse_qsl, urlencode
from zoneinfo import ZoneInfo

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from mcp_server.errors import Invalid
from mcp_server.memory import Memory
from mcp_server.model import Caller
from mcp_server.page.door import Visit

FOLDER = Path(__file__).parent


def rendered(template: str, **values: object) -> str:
    return _templates().get_template(template).render(values)


@cache
def _templates() -> Environment:
    """Returns the templates. They escape all text, and undefined names raise an error."""
    made = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["number"] = lambda value: f"{value:,}"
    made.filters["plural"] = lambda count, noun, plural="": f"{count:,} {noun if count == 1 else plural or noun + 's'}"
    made.filters["address"] = lambda values: urlencode({name: one for name, one in values.items() if one})
    made.filters["size"] = _size
    return made


def _size(count: int) -> str:
    for unit, size in (("MB", 1_000_000), ("KB", 1_000)):
        if count >= size:
            return f"{count / size:,.0f} {unit}"
    return f"{count:,} bytes"


def mark_of(text: str) -> str:
    """Returns a short hash of a text, which tells whether it has changed since it was shown."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def number_in(text: str | None, default: int = 0) -> int:
    """Returns the number in a form field or query parameter, or `default`."""
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 10 else default


SCREENS = (
    ("/now", "Now"),
    ("/days", "Days"),
    ("/knows", "What it knows"),
    ("/find", "Find"),
    ("/topics", "Topics"),
    ("/state", "State"),
)

ME = Caller("cli", "the page")
"""The caller of all changes: the page acts for the user, as the command line does."""


@dataclass(frozen=True, slots=True)
class Page:
    """An HTTP request, the open memory, and the signed-in browser, with helpers that build the response."""

    request: Request
    memory: Memory
    visit: Visit

    @property
    def query(self) -> dict[str, str]:
        """Returns the non-empty query parameters. If a parameter is repeated, its last value counts."""
        return {name: value for name, value in self.request.query_params.items() if value.strip()}

    async def form(self) -> dict[str, str]:
        """Returns the fields of the posted form. Raises Invalid if it is not UTF-8."""
        try:
            text = (await self.request.body()).decode("utf-8")
        except UnicodeDecodeError as error:
            raise Invalid("the form is not UTF-8 text") from error
        return dict(parse_qsl(text.replace("%0D%0A", "%0A"), keep_blank_values=True))

    def when(self, at: datetime | str | None) -> str:
        """Returns a time in the user's time zone, as in `2026-05-04 14:30`. Returns "" if there is none."""
        try:
            moment = datetime.fromisoformat(at) if isinstance(at, str) else at
        except ValueError:
            return ""
        return f"{moment.astimezone(ZoneInfo(self.memory.timezone)):%Y-%m-%d %H:%M}" if moment else ""

    def show(self, template: str, **values: object) -> HTMLResponse:
        """Returns a rendered template. A full page shows the pending notice once, a fragment does not."""
        notice = ""
        if not template.startswith("_"):
            notice, self.visit.notice = self.visit.notice, ""
        path, query = self.request.url.path, self.query
        frame = {
            "screens": SCREENS,
            "path": path,
            "query": query,
            "here": f"{path}?{urlencode(query)}" if query else path,
            "notice": notice,
            "when": self.when,
        }
        return HTMLResponse(rendered(template, **(values | frame)))

    def fail(self, status: int, text: str) -> HTMLResponse:
        """Returns an error page, or only the error message if htmx requested a fragment."""
        title = {404: "Not found", 409: "Something changed meanwhile"}.get(status, HTTPStatus(status).phrase)
        template = "_error.html" if "hx-request" in self.request.headers else "error.html"
        shown = self.show(template, title=title, text=text)
        shown.status_code = status
        return shown

    def back(self, form: dict[str, str], to: str, notice: str) -> RedirectResponse:
        """Returns a redirect to the form's field `back`, or else to `to`. The next page shows `notice`."""
        self.visit.notice = notice
        wanted = form.get("back", "")
        own = wanted.startswith("/") and not wanted.startswith(("//", "/\\"))
        return RedirectResponse(wanted if own else to, 303)


Handler = Callable[[Page], Awaitable[Response]]
Routes = Sequence[tuple[str, str, Handler]]
"""The method, path and handler of each route of a screen."""
