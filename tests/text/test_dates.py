"""Relative dates become absolute: what was said can be read years later."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.text.dates import absolute

SAID = date(2023, 5, 8)  # a Monday


@pytest.mark.parametrize(
    ("said", "told", "day"),
    [
        ("I went there yesterday.", "I went there on 7 May 2023.", date(2023, 5, 7)),
        ("Yesterday morning it rained", "On 7 May 2023 it rained", date(2023, 5, 7)),
        ("I leave the day after tomorrow", "I leave on 10 May 2023", date(2023, 5, 10)),
        ("we fly tomorrow", "we fly on 9 May 2023", date(2023, 5, 9)),
        ("I baked bread today", "I baked bread on 8 May 2023", date(2023, 5, 8)),
        ("dinner tonight", "dinner on the evening of 8 May 2023", date(2023, 5, 8)),
        ("it broke last Fri on the way", "it broke on Friday, 5 May 2023 on the way", date(2023, 5, 5)),
        ("since last Sunday", "since Sunday, 7 May 2023", date(2023, 5, 7)),
        ("the race is next Saturday", "the race is on Saturday, 13 May 2023", date(2023, 5, 13)),
        ("we will release on Tuesday May 23", "we will release on Tuesday May 23", None),
        ("the race is next Saturday, June 3", "the race is next Saturday, June 3", None),
        ("I joined last week", "I joined in the week before 8 May 2023", None),
        ("a trip next month", "a trip in June 2023", None),
        ("I painted it last year", "I painted it in 2022", None),
        ("a trip over last weekend", "a trip on the weekend before 8 May 2023", None),
        ("three days ago it snowed", "on 5 May 2023 it snowed", date(2023, 5, 5)),
        ("two weeks ago it snowed", "around 24 April 2023 it snowed", None),
        ("two months ago it snowed", "in March 2023 it snowed", None),
        ("about five years ago", "around 2018", None),
        ("a few weeks ago", "a few weeks before 8 May 2023", None),
        ("Last week was wild", "The week before 8 May 2023 was wild", None),
        ("I saw it the other day", "I saw it the other day", None),
        ("yesterday's news", "yesterday's news", None),
        ("It feels like just yesterday.", "It feels like just yesterday.", None),
    ],
)
def test_a_time_relative_to_then_becomes_one_that_lasts(said: str, told: str, day: date | None) -> None:
    found = absolute(said, SAID)
    assert found.text == told
    assert found.day == day


def test_past_and_future_dates_are_distinguished_across_years_and_two_days_are_no_single_day() -> None:
    assert absolute("I moved last month", SAID).past
    assert absolute("I move next month", SAID).future
    assert absolute("last month", date(2024, 1, 3)).text == "in December 2023"
    assert absolute("yesterday and tomorrow", SAID).day is None


@given(st.text(max_size=200), st.dates(min_value=date(1000, 1, 1), max_value=date(9000, 1, 1)))
def test_no_text_makes_it_fail_and_what_is_absolute_stays(text: str, said: date) -> None:
    once = absolute(text, said).text
    assert absolute(once, said).text == absolute(absolute(once, said).text, said).text


@pytest.mark.parametrize("said", [date(1, 1, 1), date(9999, 12, 31)])
@pytest.mark.parametrize(
    "text", ["I left yesterday", "I leave tomorrow", "999 days ago", "last Friday", "next Friday", "last night"]
)
def test_at_the_ends_of_the_calendar_words_stay_as_they_are_or_become_dates(said: date, text: str) -> None:
    told = absolute(text, said)
    assert told.text
    assert told.day is None or told.day != said
