"""Tags: states of the memory with a name. Days and weeks get theirs by themselves, once they are over. (S4 §3.4)

memory/daily/2026-02-16   memory/weekly/2026-W07      the last commit of a day or week that changed something
memory/milestone/NAME     memory/before/EVENT         on request
memory/extract/VERSION                                after an extraction algorithm changed
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from datetime import date, datetime, timedelta
from typing import Literal, get_args
from zoneinfo import ZoneInfo

from anyio.to_thread import run_sync

from mcp_server.errors import Invalid, NotFound, Refused
from mcp_server.history.committing import OURS, STATE, commit_changes
from mcp_server.memory import Memory
from mcp_server.storage.history_values import TAG_PREFIX, Tag
from mcp_server.text.redaction import redact

DAILY, WEEKLY = "memory/daily/", "memory/weekly/"


def due(commits: Iterable[tuple[str, datetime]], existing: Collection[str], today: date) -> list[tuple[str, str]]:
    """(tag, commit) for each day and each week (Monday to Sunday, ISO 8601) before `today` that has commits and no tag
    yet: the last commit of it. `commits` come with their moments in the user's own time zone, the oldest first."""
    last: dict[str, str] = {}
    for oid, at in commits:
        day = at.date()
        if day < today:
            last[f"{DAILY}{day.isoformat()}"] = oid
        year, week, weekday = day.isocalendar()
        if day + timedelta(days=7 - weekday) < today:
            last[f"{WEEKLY}{year}-W{week:02d}"] = oid
    return [(name, oid) for name, oid in last.items() if name not in existing]


Kind = Literal["milestone", "before", "extract"]
KINDS: tuple[Kind, ...] = get_args(Kind)

CAUGHT_UP_DAYS = 35
"""So far back days without a tag are looked for: a machine that was off for longer has no tags of that time."""

TAGGED = "tagged"
"""Key of the state: the day on which it was last looked."""

_NAME = re.compile(r"[^\W_][\w.-]*", re.ASCII)


async def tag(memory: Memory, kind: Kind, name: str, note: str = "") -> Tag:
    """Names the memory as it is now, what is not committed yet included.

    Raises:
        Invalid: no such kind, or a name that git does not take.
        Conflict: another state has this name. Refused: a secret, which git would keep.
        Unavailable: git is missing or in the middle of something.
    """
    if kind not in KINDS:
        raise Invalid(f"a tag is one of {', '.join(KINDS)}, not {kind!r}")
    name = "-".join(name.split())
    if not _NAME.fullmatch(name):
        raise Invalid(f"{name!r} is no name for a tag; use letters, digits, '-', '_' and '.'")
    if kinds := redact(f"{name}\n{note}").kinds:
        raise Refused(f"this holds a secret ({', '.join(kinds)}), and a tag stays in git; leave it out")
    await run_sync(memory.git.check_free)
    await commit_changes(memory)
    head = await run_sync(memory.git.head)
    if head is None:
        raise NotFound("nothing was committed yet, so there is nothing to name")
    whole = f"{TAG_PREFIX}{kind}/{name}"
    async with memory.locks.git():
        await run_sync(memory.git.tags.create, whole, head, note)
    return next(found for found in await run_sync(memory.git.tags.all, whole) if found.name == whole)


async def tags(memory: Memory) -> list[Tag]:
    """Every tag of the memory, the oldest first."""
    return await run_sync(memory.git.tags.all)


async def tag_days(memory: Memory) -> list[str]:
    """Tags the days and weeks that are over, at most once a day; returns the new tags."""
    now = memory.clock().astimezone(ZoneInfo(memory.timezone))
    today = now.date().isoformat()
    if not memory.settings.git.auto_tag_daily or await memory.state.get(STATE, TAGGED) == today:
        return []
    zone = ZoneInfo(memory.timezone)
    since = now - timedelta(days=CAUGHT_UP_DAYS)
    commits = [(oid, at.astimezone(zone)) for oid, at in await run_sync(memory.git.tags.commits_since, since, OURS)]
    existing = {found.name for found in await tags(memory)} if commits else set()
    made: list[str] = []
    for name, commit in due(commits, existing, now.date()):
        async with memory.locks.git():
            await run_sync(memory.git.tags.create, name, commit)
        made.append(name)
    await memory.state.put(STATE, TAGGED, today)
    return sorted(made)
