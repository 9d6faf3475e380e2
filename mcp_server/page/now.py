"""The screen "Now": pushes and compiled contexts, the candidates of each, and the reasons."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from heapq import merge
from itertools import islice
from typing import Any

from anyio.to_thread import run_sync
from starlette.responses import Response

from mcp_server.context import briefs, windows
from mcp_server.context.compile import LOG as COMPILED
from mcp_server.context.windows import PUSHED
from mcp_server.conversations import sessions
from mcp_server.errors import Invalid, NotFound
from mcp_server.memory import Memory
from mcp_server.page.answer import Page, Routes, mark_of
from mcp_server.page.passages import Passages, Words, by_kind, largest_first, where
from mcp_server.storage import logs

SHOWN = 40
"""Rows of the list shown at once."""

LOOKED_BACK = 20_000
"""At most this many log records are read."""

LEFT_OUT_SHOWN = 12
"""Excluded candidates shown at first."""

KINDS = {"all": "Everything", "injected": "Added", "nothing": "Nothing added", "compiled": "Compiled"}

_FIGURES = re.compile(r" \([\d. <]+\)| \d+(?= tokens)")
"""Numbers in a reason. They are removed before equal reasons are counted."""

_OWN = re.compile(r".+#(\d+)(?:-(\d+))?")
"""The id of a message, or of a range of messages, of the record's own conversation."""

PAUSES = {"30m": ("30 minutes", 30), "2h": ("2 hours", 120), "1d": ("a day", 1440), "": ("until I end it", 0)}


@dataclass(frozen=True, slots=True)
class Candidate:
    """A candidate of a record with its text. `terms` are the positive terms of its score, largest first."""

    words: Words
    where: str
    row: Mapping[str, Any]
    terms: Sequence[tuple[str, float]]
    charge: float


def records(memory: Memory) -> Iterator[dict[str, Any]]:
    """Yields the records of the logs of pushes and of compiled contexts, newest first."""
    both = (logs.newest_first(memory.files, kind) for kind in (PUSHED, COMPILED))
    return islice(merge(*both, key=lambda record: str(record.get("at")), reverse=True), LOOKED_BACK)


def record_id(record: Mapping[str, Any]) -> str:
    return mark_of("|".join(str(record.get(name)) for name in ("at", "session", "event", "sha256")))


def kind_of(record: Mapping[str, Any]) -> str:
    """Returns the kind of a record: injected, nothing or compiled."""
    if record.get("event") == "compile_context":
        return "compiled"
    return "injected" if record.get("decision") == "injected" else "nothing"


async def show_list(page: Page) -> Response:
    """Returns the list. At `/now/live` returns only its rows, or 204 if the logs are unchanged since version `seen`."""
    memory, query = page.memory, page.query
    kind, before = query.get("kind", "all"), query.get("before", "")
    if kind not in KINDS:
        raise Invalid(f"kind {kind!r} is not one of {', '.join(KINDS)}")
    version = await run_sync(_version, memory)
    live = page.request.url.path == "/now/live"
    if live and query.get("seen") == version:
        return Response(status_code=204)
    rows, more = await run_sync(_rows, memory, kind, before)
    template = "_pushes.html" if live else "now.html"
    return page.show(
        template,
        rows=rows,
        more=rows[-1]["at"] if more else "",
        kinds=KINDS,
        kind=kind,
        before=before,
        version=version,
        paused=[one.words for one in await windows.pauses(memory)],
        switched_off=not memory.settings.hooks.inject,
        never=await windows.never_pushed(memory),
        pause_choices=PAUSES,
        today=page.when(memory.clock())[:10],
        anything=bool(await sessions.list_sessions(memory, limit=1)),
    )


async def show_one(page: Page) -> Response:
    """Returns one record: the exact text, the tokens by source, and all candidates."""
    memory, number = page.memory, page.request.path_params["id"]
    same = (record for record in records(memory) if record_id(record) == number)
    record = await run_sync(next, same, None)
    if record is None:
        raise NotFound("this decision is no longer in the log, which keeps the newest ones")
    inside, outside = await candidates(memory, record)
    shown = outside if page.query.get("all") else outside[:LEFT_OUT_SHOWN]
    return page.show(
        "push.html",
        record=record,
        kind=kind_of(record),
        inside=inside,
        outside=shown,
        hidden=len(outside) - len(shown),
        parts=parts_of(record),
        reasons=Counter(_FIGURES.sub("", str(one.row.get("reason"))) for one in outside).most_common(8),
        most=largest_sum((*inside, *shown)),
        left_out=record.get("left_out") or {},
        number=number,
    )


async def pause(page: Page) -> Response:
    """Pauses pushing everywhere, for a time or until the user resumes it."""
    form = await page.form()
    chosen = PAUSES.get(form.get("for", ""))
    if chosen is None:
        raise Invalid(f"the length of a pause is one of {', '.join(words for words, _ in PAUSES.values())}")
    made = await windows.pause(page.memory, None, timedelta(minutes=chosen[1]) if chosen[1] else None)
    await briefs.refresh(page.memory)
    return page.back(form, "/now", f"Pushing is {made.words}. Conversations are still recorded.")


async def resume(page: Page) -> Response:
    await windows.resume(page.memory)
    await briefs.refresh(page.memory)
    return page.back(await page.form(), "/now", "Relevant memory is added to prompts again.")


async def never_push(page: Page) -> Response:
    """Stops pushes of the passage at `place`, or allows them again if the form has `allow`."""
    form = await page.form()
    if form.get("allow"):
        await windows.allow(page.memory, form["allow"])
        said = "This may be pushed again."
    else:
        text = await run_sync(Passages(page.memory).text, form.get("place", ""))
        made = await windows.never_push(page.memory, text)
        said = f"Never pushed again: “{made.words}”. Find still finds it."
    await briefs.refresh(page.memory)
    return page.back(form, "/now", said)


def _version(memory: Memory) -> str:
    """Returns the version of both logs, which changes with every new record."""
    places = [memory.files.version(f"{logs.FOLDER}/{kind}.jsonl") for kind in (PUSHED, COMPILED)]
    return mark_of(repr(places))


def _rows(memory: Memory, kind: str, before: str) -> tuple[list[dict[str, Any]], bool]:
    """Returns the newest SHOWN rows before the time `before`, and whether there are older rows. A row is a push, a
    prompt without a push, or a compiled context."""
    wanted = (
        record
        for record in records(memory)
        if (kind == "all" or kind_of(record) == kind) and (not before or str(record.get("at")) < before)
    )
    found = [
        {
            **{name: str(record.get(name) or "") for name in ("at", "why", "project")},
            **{name: record.get(name) or 0 for name in ("tokens", "passages")},
            **{"id": record_id(record), "kind": kind_of(record), "prompt": _prompt(record)},
        }
        for record in islice(wanted, SHOWN + 1)
    ]
    return found[:SHOWN], len(found) > SHOWN


def _prompt(record: Mapping[str, Any]) -> str:
    """Returns the beginning of the prompt, or a description of the event if there is no prompt."""
    said = " ".join(str(record.get("prompt") or "").split())
    return said or {"SessionStart": "A window begins", "compile_context": "A context without a message"}.get(
        str(record.get("event")), str(record.get("event"))
    )


def parts_of(record: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Returns the tokens of a record by kind of source, and the rest of its tokens as `headings`."""
    parts = by_kind(record.get("considered") or ())
    rest = int(record.get("tokens") or 0) - sum(count for _, count in parts)
    return [*parts, ("headings", rest)] if rest > 0 and parts else parts


def largest_sum(shown: Iterable[Candidate]) -> float:
    """Returns the largest sum of a candidate's terms, which is the full width of a bar."""
    return max((sum(value for _, value in one.terms) for one in shown), default=0.0) or 1.0


async def candidates(memory: Memory, record: Mapping[str, Any]) -> tuple[list[Candidate], list[Candidate]]:
    row = await sessions.current_row(memory, str(record.get("session") or ""), look=False)
    return await run_sync(_candidates, memory, record, row.path if row else "")


def _candidates(memory: Memory, record: Mapping[str, Any], transcript: str) -> tuple[list[Candidate], list[Candidate]]:
    """Returns the included and the excluded candidates. `transcript` is the path of the record's conversation."""
    passages = Passages(memory)
    inside: list[Candidate] = []
    outside: list[Candidate] = []
    for row in record.get("considered") or ():
        place, title = str(row.get("id") or ""), str(row.get("title") or "")
        own = _OWN.fullmatch(place) if row.get("slot") == "history" else None
        if own and own[2]:
            title = f"Messages {own[1]} to {own[2]} of this conversation"
        words = (passages.turn(f"{transcript}#{own[1]}") if own else None) or passages.of(place, title)
        # A push's `terms` and a receipt's `relevance` are summed; a receipt's `terms` are factors.
        summed = row.get("relevance") or ({} if kind_of(record) == "compiled" else row.get("terms")) or {}
        one = Candidate(words, where(words), row, largest_first(summed.items()), row.get("charge") or 0.0)
        (inside if row.get("included") else outside).append(one)
    return inside, outside


ROUTES: Routes = (
    ("GET", "/now", show_list),
    ("GET", "/now/live", show_list),
    ("GET", "/now/{id}", show_one),
    ("POST", "/never", never_push),
    ("POST", "/pause", pause),
    ("POST", "/resume", resume),
)
