"""The screen "Find": search with explained scores, and a passage inside its conversation or file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from anyio.to_thread import run_sync
from starlette.responses import RedirectResponse, Response

from mcp_server.conversations import sessions
from mcp_server.conversations.projects import list_projects, project_asked
from mcp_server.errors import Invalid, NotFound
from mcp_server.model import Hit
from mcp_server.page.answer import ME, Page, Routes, number_in
from mcp_server.page.passages import CONVERSATIONS, Passages, Words, largest_first, where
from mcp_server.search.search import SearchRequest, search
from mcp_server.text.transcript import PlacedTurn

LIMIT, TOKENS = 20, 12_000
"""The maximum number of hits, and of tokens in all hits together."""

AROUND = 8
"""Messages shown before and after the opened one."""

MAX_LINES = 400
"""Lines of a file shown around the opened one."""

SPEAKERS = {"": "anyone", "user": "the user", "agent": "the agent"}


@dataclass(frozen=True, slots=True)
class Result:
    """A hit with its text and source for display. `terms` are the positive terms of its score, largest first."""

    hit: Hit
    snippet: str
    where: str
    terms: Sequence[tuple[str, float]]


async def show_search(page: Page) -> Response:
    query, memory = page.query, page.memory
    asked = query.get("q", "").strip()
    project = query.get("project", "")
    speaker = query.get("speaker", "")
    if speaker not in SPEAKERS:
        raise Invalid(f"speaker {speaker!r} is not one of user and agent")
    results: list[Result] = []
    notes: Sequence[str] = ()
    trouble = ""
    if asked:
        try:
            request = SearchRequest(
                asked,
                limit=LIMIT,
                scope="project" if project else "all",
                project=await project_asked(memory, ME, project) if project else None,
                since=query.get("since"),
                until=query.get("until"),
            )
            answer = await search(memory, request, TOKENS)
        except (Invalid, NotFound) as error:
            trouble = str(error)
        else:
            results = [
                Result(hit, text, _where(hit), largest_first(hit.terms.items()))
                for hit, text in zip(answer.hits, answer.snippets, strict=True)
                if not speaker or hit.passage.role == speaker
            ]
            notes = answer.notes
    return page.show(
        "find.html",
        asked=asked,
        results=results,
        notes=notes,
        trouble=trouble,
        most=max((sum(value for _, value in one.terms) for one in results), default=0.0) or 1.0,
        projects=[one.slug for one in await list_projects(memory)],
        speakers=SPEAKERS,
        anything=bool(await sessions.list_sessions(memory, limit=1)),
    )


async def show_passage(page: Page) -> Response:
    """Returns a message with its neighbors in the conversation. `line` or `turn` (its number) selects the message."""
    path = _path(page)
    turns = await run_sync(Passages(page.memory).turns, path)
    if not turns or not path.startswith(CONVERSATIONS):
        raise NotFound("this conversation no longer exists; it was forgotten or moved")
    meant = _meant(turns, page.query)
    place = turns.index(meant)
    whole = bool(page.query.get("all"))
    first = 0 if whole else max(0, place - AROUND)
    shown = turns[first:] if whole else turns[first : place + AROUND + 1]
    head = await run_sync(page.memory.transcripts.head, path)
    row = await sessions.current_row(page.memory, head.session_id)
    return page.show(
        "passage.html",
        file=path,
        session=head.session_id,
        title=(row.title if row else "") or head.session_id,
        state=row.status if row else "closed",
        turns=shown,
        meant=meant,
        before=first,
        after=len(turns) - first - len(shown),
    )


async def show_file(page: Page) -> Response:
    """Returns a file of the memory, with line `line` marked."""
    path = _path(page)
    if path.startswith(CONVERSATIONS):
        return RedirectResponse(page.request.url.path.replace("/file", "/passage") + f"?{page.request.url.query}", 303)
    if not path.startswith(("knowledge/", "topics/", "archive/", "checkpoints/")):
        raise NotFound(f"{path} is not shown here; `context-manager read` prints it")
    lines = await run_sync(Passages(page.memory).lines, path)
    if not lines:
        raise NotFound(f"{path} no longer exists, or is empty")
    line = number_in(page.query.get("line"), 1)
    first = max(0, line - 1 - MAX_LINES // 2)
    return page.show(
        "file.html", file=path, lines=lines[first : first + MAX_LINES], first=first + 1, line=line, count=len(lines)
    )


async def show_source(page: Page) -> Response:
    """Redirects to the message `TRANSCRIPT#TURN`, which is the source of a line."""
    path, _, turn = page.query.get("of", "").rpartition("#")
    return RedirectResponse(f"/find/passage?{urlencode({'path': path, 'turn': turn})}", 303)


def _path(page: Page) -> str:
    path = page.query.get("path", "")
    if not path:
        raise Invalid("the address has no `path` of a file")
    return page.memory.files.relative(path)


def _meant(turns: Sequence[PlacedTurn], query: dict[str, str]) -> PlacedTurn:
    number = number_in(query.get("turn"))
    line = number_in(query.get("line"), turns[0].start)
    named = (one for one in turns if one.turn.number == number) if number else iter(())
    return next(named, None) or next((one for one in turns if one.start <= line <= one.end), turns[0])


def _where(hit: Hit) -> str:
    passage = hit.passage
    if passage.turn is not None:
        day = f"{passage.at:%Y-%m-%d}" if passage.at else ""
        return " · ".join(filter(None, (passage.speaker or passage.role, day, passage.title)))
    return where(Words("", passage.path, 1, 1))


ROUTES: Routes = (
    ("GET", "/find", show_search),
    ("GET", "/find/passage", show_passage),
    ("GET", "/find/file", show_file),
    ("GET", "/find/source", show_source),
)
