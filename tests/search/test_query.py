"""Reading a query: operators mean what they say, and nothing is ever a syntax error."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from mcp_server.search.query import ParsedQuery, parse_query, period, plain_query, unknown_values
from mcp_server.text.words import LONGEST

NOW = datetime(2026, 11, 20, 12, 30, tzinfo=UTC)


def day(year: int, month: int, number: int) -> datetime:
    return datetime(year, month, number, tzinfo=UTC)


def test_every_operator_at_once() -> None:
    query = parse_query('car "dark blue" -rusty -"for sale" category:person since:2026-05 until:yesterday', NOW)
    assert query.text.split() == ["car", "dark", "blue"]
    assert query.phrases == (("dark", "blue"),)
    assert query.excluded == (("rusty",), ("for", "sale"))
    assert (query.category, query.since, query.until) == ("person", day(2026, 5, 1), day(2026, 11, 20))


@pytest.mark.parametrize(
    "text",
    ["C++", "--flag", "a - b", "well-known", 'open "quote', "since:soon", "category:nothing", "until:2026-02-31", '""'],
)
def test_what_only_looks_like_an_operator_is_words(text: str) -> None:
    query = parse_query(text, NOW)
    assert query == ParsedQuery(text=query.text)
    assert query.text == text or text == '""'


def test_an_operator_with_an_unknown_value_is_named() -> None:
    date, category = unknown_values("pump since:banana until:2026 category:Fish C++", NOW)
    assert date.startswith("since:banana is not a date (2026, ")
    assert category.startswith("category:Fish is not a category (identity, ")
    assert date.endswith("so it was searched as a word")


def test_in_a_question_quotes_only_quote() -> None:
    assert parse_query('What did Ana say about "Becoming Nicole"?', NOW).phrases == ()


def test_a_message_has_no_operators() -> None:
    assert plain_query('run rm -rf "x" since:2026') == ParsedQuery('run rm -rf "x" since:2026')


def test_a_long_message_is_read_at_both_ends() -> None:
    query = plain_query("begin " + "x " * 10_000 + "end")
    assert len(query.text) <= LONGEST + 1
    assert query.text.startswith("begin")
    assert query.text.endswith("end")


@pytest.mark.parametrize(
    ("value", "first", "after"),
    [
        ("2026", day(2026, 1, 1), day(2027, 1, 1)),
        ("2026-12", day(2026, 12, 1), day(2027, 1, 1)),
        ("2026-05-08", day(2026, 5, 8), day(2026, 5, 9)),
        ("today", day(2026, 11, 20), day(2026, 11, 21)),
        ("2w", datetime(2026, 11, 6, 12, 30, tzinfo=UTC), NOW),
        ("2026-05-08t14:30", datetime(2026, 5, 8, 14, 30, tzinfo=UTC), datetime(2026, 5, 8, 14, 31, tzinfo=UTC)),
    ],
)
def test_named_times(value: str, first: datetime, after: datetime) -> None:
    assert period(value, NOW) == (first, after)
