"""Which days and weeks should have a tag: those that are over and in which something was committed. (S4 §3.4)"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import date, datetime, timedelta

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
