"""Moments as people write them."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from mcp_server.text.dates import moment

ZURICH = ZoneInfo("Europe/Zurich")
NOW = datetime(2026, 2, 16, 18, 45, tzinfo=ZURICH)


@pytest.mark.parametrize(
    ("text", "begin", "end"),
    [
        ("2026-02-10", "2026-02-10T00:00:00+01:00", "2026-02-10T23:59:59+01:00"),
        ("2026-07-10", "2026-07-10T00:00:00+02:00", "2026-07-10T23:59:59+02:00"),
        ("today", "2026-02-16T00:00:00+01:00", "2026-02-16T23:59:59+01:00"),
        ("Yesterday", "2026-02-15T00:00:00+01:00", "2026-02-15T23:59:59+01:00"),
        ("2026-W07", "2026-02-09T00:00:00+01:00", "2026-02-15T23:59:59+01:00"),
        ("2026-02-10 12:30", "2026-02-10T12:30:00+01:00", "2026-02-10T12:30:00+01:00"),
        ("2026-02-10T12:30:00Z", "2026-02-10T12:30:00+00:00", "2026-02-10T12:30:00+00:00"),
        ("1 week", "2026-02-09T18:45:00+01:00", "2026-02-09T18:45:00+01:00"),
        ("a day ago", "2026-02-15T18:45:00+01:00", "2026-02-15T18:45:00+01:00"),
        ("3  hours ago", "2026-02-16T15:45:00+01:00", "2026-02-16T15:45:00+01:00"),
        ("now", "2026-02-16T18:45:00+01:00", "2026-02-16T18:45:00+01:00"),
    ],
)
def test_it_reads_days_weeks_and_spans(text: str, begin: str, end: str) -> None:
    assert moment(text, NOW, end=False) == datetime.fromisoformat(begin)
    assert moment(text, NOW) == datetime.fromisoformat(end)


@pytest.mark.parametrize("text", ["", "HEAD", "2026-02-31", "2026-W60", "soon", "2026-02-10 99:99", "9999 years ago"])
def test_anything_else_is_none(text: str) -> None:
    assert moment(text, datetime(2026, 2, 16, tzinfo=UTC)) is None
