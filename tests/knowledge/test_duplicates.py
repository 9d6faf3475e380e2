"""Semantic duplicates among entries of a checkpoint, rule by rule."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.knowledge.duplicates import is_duplicate, keywords, normalised

WORDS = [
    *("use", "do", "not", "don't", "can't", "the", "treba", "č", "Č", "đ", "-", "*", "**", "`", "1.", "[ ]"),
    *("sqlite", "postgres", "index", "ledger", "retries", "3", "5"),
]
ENTRIES = st.one_of(st.lists(st.sampled_from(WORDS), max_size=8).map(" ".join), st.text(max_size=40))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("- Use **SQLite** for the index", "use sqlite for the INDEX"),
        ("1. Fix `parse`", "* fix parse"),
        ("- [ ] Call Ana", "Call   Ana"),
        ("Koristi đačku bazu", "koristi dacku bazu"),
    ],
)
def test_formatting_makes_no_difference(first: str, second: str) -> None:
    assert normalised(first) == normalised(second)
    assert is_duplicate(first, second)


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("Send Grigorije a plan", "- I need to send him a plan", True),  # 2 of 4
        ("Keep the merge atomic everywhere", "Make every merge atomic", False),  # 2 of 6
        ("store ledger rows nightly", "store ledger rows hourly", True),  # 3 of 5
        ("alpha beta gamma", "alpha delta epsilon", False),  # 1 of 5
    ],
)
def test_half_of_the_keywords_in_common_make_a_duplicate(first: str, second: str, same: bool) -> None:
    assert is_duplicate(first, second) is same


def test_a_short_entry_is_a_duplicate_of_a_longer_one_that_contains_it() -> None:
    longer = "Because of the outage we now write checkpoints through the atomic writer in every single process"
    assert is_duplicate("atomic writer", longer)
    assert not is_duplicate("the atom", longer), "under ten characters"
    assert not is_duplicate("atomic writ", longer), "words, not letters"


def test_with_fewer_than_three_keywords_the_share_says_nothing() -> None:
    assert not is_duplicate("use postgres", "use sqlite"), "1 of 3"
    assert not is_duplicate("fix tests", "fix"), "1 of 2: too few to tell"
    assert is_duplicate("fix tests", "fix the tests") is False, "no containment, two keywords"


def test_english_and_serbian_stop_words_are_no_keywords() -> None:
    assert keywords("I should not be doing this for the index") == {"doing", "index"}
    assert keywords("Treba da prebacimo bazu na novi server i to je") == {"prebacimo", "bazu", "novi", "server"}
    assert is_duplicate("Treba da prebacimo bazu na server", "prebacimo bazu sa servera na server")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Use Redis for the session cache", "Use Postgres for the audit log"),
        ("Add a test for the parser", "Add an index for the ledger"),
        ("Use Postgres for the ledger", "Do not use Postgres for the ledger"),
        ("We can't cache the ledger rows", "We can cache the ledger rows"),
        ("Set the retry limit to 3 for uploads", "Set the retry limit to 5 for uploads"),
        ("Ana likes green tea", "Boris likes green tea"),
        ("We use Postgres for the queue", "We use Redis for the queue"),
        ("Staging runs on the old host", "Production runs on the old host"),
    ],
)
def test_different_things_with_the_same_words_survive(first: str, second: str) -> None:
    assert not is_duplicate(first, second)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Call Ana about the winter berth", "Phone Ana about the winter berth"),
        ("Going with Redis for the queue", "we go with redis for the queue"),
        ("Ana likes green tea", "She likes green tea"),
        ("Use the new client for uploads", "Added the new client for uploads"),
        ("Set the retry limit to 3", "Set the retry limit to 3 for uploads since 2024"),
    ],
)
def test_a_capital_letter_or_a_shared_number_does_not_distinguish_two_lines(first: str, second: str) -> None:
    assert is_duplicate(first, second)


@given(ENTRIES, ENTRIES)
def test_being_a_duplicate_is_symmetric(first: str, second: str) -> None:
    assert is_duplicate(first, second) == is_duplicate(second, first)


@given(ENTRIES)
def test_what_says_something_is_its_own_duplicate(entry: str) -> None:
    assert is_duplicate(entry, entry) == bool(normalised(entry))
