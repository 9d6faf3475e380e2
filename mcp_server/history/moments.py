"""Moments as people write them: `2026-02-16`, `2026-02-16 18:45`, `2026-W07`, `yesterday`, `2 weeks ago`."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

_AGO = re.compile(r"(\d{1,4}|an?|one)\s+(hour|day|week|month|year)s?(?:\s+ago)?", re.IGNORECASE)
_HOURS = {"hour": 1, "day": 24, "week": 7 * 24, "month": 30 * 24, "year": 365 * 24}
_WEEK = re.compile(r"(\d{4})-W(\d\d)", re.IGNORECASE)
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d.*")


def moment(text: str, now: datetime, *, end: bool = True) -> datetime | None:
    """Returns the moment that a text names, in the time zone of `now` unless it names one; None for any other text.

    A day or a week (ISO 8601) means its last second; with `end=False` its first. Months have 30 days, years 365.
    """
    text = " ".join(text.split())
    if text.lower() in ("now", "today", "yesterday"):
        if text.lower() == "now":
            return now
        return _of_day(now - timedelta(days=text.lower() == "yesterday"), end)
    try:
        if ago := _AGO.fullmatch(text):
            count = int(ago[1]) if ago[1].isdigit() else 1
            return now - timedelta(hours=count * _HOURS[ago[2].lower()])
        if week := _WEEK.fullmatch(text):
            return _of_day(datetime.fromisocalendar(int(week[1]), int(week[2]), 7 if end else 1), end, now)
        if _DAY.fullmatch(text):
            return _of_day(datetime.fromisoformat(text), end, now)
        if _TIME.fullmatch(text):
            found = datetime.fromisoformat(text)
            return found if found.tzinfo else found.replace(tzinfo=now.tzinfo)
    except (ValueError, OverflowError):
        return None
    return None


def _of_day(day: datetime, end: bool, now: datetime | None = None) -> datetime:
    midnight = datetime(day.year, day.month, day.day, tzinfo=now.tzinfo if now else day.tzinfo)
    return midnight.replace(hour=23, minute=59, second=59) if end else midnight
