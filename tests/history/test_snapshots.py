"""Days and weeks that are over have a tag, if something was committed."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from mcp_server.history.committing import due

MONDAY = datetime(2026, 2, 9, tzinfo=UTC)


def at(day: int, hour: int = 12) -> datetime:
    return MONDAY + timedelta(days=day, hours=hour)


def test_the_last_commit_of_a_day_and_of_a_week_is_tagged() -> None:
    commits = [("a", at(0, 1)), ("b", at(0, 23)), ("c", at(6, 23)), ("d", at(7))]

    assert due(commits, (), date(2026, 2, 17)) == [
        ("memory/daily/2026-02-09", "b"),
        ("memory/weekly/2026-W07", "c"),
        ("memory/daily/2026-02-15", "c"),
        ("memory/daily/2026-02-16", "d"),
    ]


def test_today_and_this_week_wait_and_what_is_tagged_stays() -> None:
    commits = [("a", at(5)), ("b", at(6))]

    assert due(commits, ("memory/daily/2026-02-14",), date(2026, 2, 15)) == []
    assert dict(due(commits, (), date(2026, 2, 16))) == {
        "memory/daily/2026-02-14": "a",
        "memory/daily/2026-02-15": "b",
        "memory/weekly/2026-W07": "b",
    }


@given(st.lists(st.integers(0, 400), max_size=40), st.integers(0, 400))
def test_looking_twice_tags_nothing_twice(hours: list[int], today: int) -> None:
    commits = [(f"c{n}", MONDAY + timedelta(hours=hour)) for n, hour in enumerate(sorted(hours))]
    day = (MONDAY + timedelta(hours=today)).date()

    made = due(commits, (), day)

    assert due(commits, {name for name, _ in made}, day) == []
    assert len({name for name, _ in made}) == len(made)
