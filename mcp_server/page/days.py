"""The screen "Days": conversations, commits, checkpoints and compactions by day; differences; going back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from anyio.to_thread import run_sync
from starlette.responses import Response

from mcp_server.checkpoints import stored
from mcp_server.checkpoints.restore import NOTHING, restore
from mcp_server.conversations import sessions
from mcp_server.errors import ContextManagerError
from mcp_server.history import history
from mcp_server.memory import Memory
from mcp_server.page.answer import ME, Page, Routes, mark_of
from mcp_server.storage.checkpoint_files import Head
from mcp_server.storage.history_values import Commit
from mcp_server.storage.values import SessionRow
from mcp_server.text.fencing import neutralise
from mcp_server.text.markdown import split_front_matter

STRIP = 30
"""Days in the chart. Days without events are skipped."""

LOOKED_BACK = timedelta(days=400)
"""Commits older than this are not listed, because git would have to read the whole history."""

COMPACTED = ("compaction", "hook")
"""The reasons of checkpoints that were made because a client compacted its window."""

PATHS = ("knowledge", "topics", "archive", "raw", "checkpoints", "anchors.yaml")
KINDS = ("conversations", "commits", "checkpoints", "compactions")
MAX_SESSIONS = 1_000_000


@dataclass(slots=True)
class Day:
    """The conversations, commits and checkpoints of one day in the user's time zone."""

    sessions: list[SessionRow] = field(default_factory=list)
    commits: list[str] = field(default_factory=list)
    checkpoints: list[Head] = field(default_factory=list)

    @property
    def counts(self) -> Mapping[str, int]:
        compacted = sum(one.reason in COMPACTED for one in self.checkpoints)
        numbers = (len(self.sessions), len(self.commits), len(self.checkpoints) - compacted, compacted)
        return dict(zip(KINDS, numbers, strict=True))


async def show_days(page: Page) -> Response:
    """Returns the chart of days, up to the day `before` if it is given, and all events of the chosen day."""
    memory = page.memory
    days, trouble = await _days(memory)
    before = page.query.get("before", "")
    names = [name for name in sorted(days) if not before or name < before]
    shown = names[-STRIP:]
    chosen = page.query.get("day") or (shown[-1] if shown else "")
    day = days.get(chosen, Day())
    commits: Mapping[str, Commit] = await run_sync(memory.git.past.commits, day.commits) if day.commits else {}
    counts = {name: days[name].counts for name in shown}
    return page.show(
        "days.html",
        strip=counts,
        today=memory.local_date(memory.clock()),
        most=max((sum(one.values()) for one in counts.values()), default=1) or 1,
        kinds=KINDS,
        before=before,
        earlier=shown[0] if len(names) > len(shown) else "",
        chosen=chosen,
        day=day,
        commits=[
            (oid, commits[oid].at, memory.forgotten.clean(commits[oid].subject))
            for oid in reversed(day.commits)
            if oid in commits
        ],
        totals=Counter(day.counts),
        why=stored.WHY,
        trouble=trouble,
    )


async def show_commit(page: Page) -> Response:
    found = await history.show(page.memory, page.request.path_params["commit"])
    head, _, message = found.about.partition("\n\n")
    return page.show(
        "change.html", heading=message.strip().split("\n")[0], about=head, files=found.files, diff=found.diff
    )


async def show_changes(page: Page) -> Response:
    """Returns the changes of the knowledge since a time, such as `yesterday`."""
    since = page.query.get("since", "1 week ago")
    found = await history.diff(page.memory, since)
    return page.show(
        "change.html",
        heading=f"What changed since {since}",
        about=found.about,
        files=found.files,
        diff=found.diff,
    )


async def show_checkpoint(page: Page) -> Response:
    number = page.request.path_params["id"]
    knowledge = page.query.get("knowledge") == "yes"
    then = await stored.read(page.memory, number)
    trouble, difference = "", ""
    notes: tuple[str, ...] = ()
    try:
        plan = await restore(page.memory, number, ME, apply=False, knowledge=knowledge)
        difference, notes = plan.difference, plan.notes
    except ContextManagerError as error:
        trouble = str(error)
    return page.show(
        "checkpoint.html",
        then=then,
        knowledge=knowledge,
        difference=difference,
        notes=notes,
        trouble=trouble,
        changes=difference != NOTHING,
        mark=mark_of(neutralise(difference)),
        text=split_front_matter(stored.shown_text(then)).body.strip(),
        why=stored.WHY.get(then.reason, then.reason),
    )


async def go_back(page: Page) -> Response:
    """Restores a checkpoint, unless the changes differ from those that were shown."""
    form = await page.form()
    number = page.request.path_params["id"]
    knowledge = form.get("knowledge") == "yes"
    plan = await restore(page.memory, number, ME, apply=False, knowledge=knowledge)
    if mark_of(neutralise(plan.difference)) != form.get("mark"):
        return page.back(
            {"back": f"/days/checkpoint/{number}" + ("?knowledge=yes" if knowledge else "")},
            "/days",
            "Something changed meanwhile, so nothing was done. This is what going back would change now.",
        )
    done = await restore(page.memory, number, ME, apply=True, knowledge=knowledge)
    undo = {"back": f"/days/checkpoint/{done.undo}"} if done.undo else {}
    said = "Went back. The state before is the checkpoint below: go back to it to undo this."
    return page.back(undo, "/days", " ".join((said, *done.notes)))


async def _days(memory: Memory) -> tuple[dict[str, Day], str]:
    """Returns the days on which something happened, and the reason if git could not be read."""
    days: dict[str, Day] = {}
    for row in await sessions.list_sessions(memory, limit=MAX_SESSIONS):
        days.setdefault(memory.local_date(row.last_at or row.opened), Day()).sessions.append(row)
    for head in await stored.listed(memory):
        days.setdefault(memory.local_date(head.at), Day()).checkpoints.append(head)
    trouble = ""
    try:
        for oid, moment in await run_sync(memory.git.tags.commits_since, memory.clock() - LOOKED_BACK, PATHS):
            days.setdefault(memory.local_date(moment), Day()).commits.append(oid)
    except ContextManagerError as error:
        trouble = str(error)
    return days, trouble


ROUTES: Routes = (
    ("GET", "/days", show_days),
    ("GET", "/days/changes", show_changes),
    ("GET", "/days/commit/{commit}", show_commit),
    ("GET", "/days/checkpoint/{id}", show_checkpoint),
    ("POST", "/days/checkpoint/{id}", go_back),
)
