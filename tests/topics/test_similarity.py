"""Tier 2, the methods that are pure: what they tell apart, and that no text whatever leaves 0..1."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.topics.similarity import (
    HEAD,
    NONE,
    TAIL,
    Likeness,
    Profile,
    Weights,
    compared_part,
    grams,
    jaccard,
    profile,
    reduced,
    stems,
    tfidf,
    trigger_words,
    unlike,
)
from mcp_server.topics.topic import Topic, Trigger

TRAVEL = Topic(
    "travel",
    "topics/travel.md",
    "# Travel\n\n- Compare three trains or flights.\n- A hotel near the meeting, free cancellation.\n",
    description="Booking business trips: flights, trains, hotels.",
    not_for=("training a model, a train of thought", "books to read"),
)
BACKUP = Topic("backup", "topics/backup.md", "Copy the disks every night, and try to restore them.")
TOPICS = (TRAVEL, BACKUP)


def plain(word: str) -> str:
    """A stemmer that cuts a plural's s."""
    return word.removesuffix("s")


PROFILES = [profile(one, plain) for one in TOPICS]
WEIGHTS = Weights(PROFILES)


def alike(message: str, topic: Profile) -> Likeness:
    return tfidf(WEIGHTS.vector(stems(message, plain)), WEIGHTS.vector(topic.stems))


def by_words(message: str, topic: Profile) -> Likeness:
    return jaccard(set(stems(message, plain)), map(set, topic.pieces), "jaccard")


def by_grams(message: str, topic: Profile) -> Likeness:
    return jaccard(set(grams(message)), [set(grams(line)) for line in topic.text.split("\n")], "ngrams")


def score(message: str, topic: Profile = PROFILES[0]) -> float:
    vector = WEIGHTS.vector(stems(message, plain))
    return reduced(alike(message, topic), unlike(topic, vector)).score


def test_a_message_is_most_like_the_topic_that_it_is_about() -> None:
    assert score("Two flights and a hotel") > 0.3
    assert score("Restore the disk", PROFILES[1]) > 0.3
    assert [score("Which disks do we copy tonight?", one) > 0 for one in PROFILES] == [False, True]
    assert alike("ok, thanks", PROFILES[0]) == NONE


def test_unknown_words_and_excluded_subjects_lower_the_score_of_a_topic() -> None:
    assert score("a flight") > score("a flight of geese over frozen northern lakes") > 0
    assert score("compare three trains") > 2 * score("compare three trains of thought")
    assert score("trains of thought in books to read") < 0.1
    assert reduced(Likeness(0.5, {}), 0.0).terms == {}
    assert PROFILES[1].unlike == frozenset()


def test_a_profile_keeps_what_it_says_itself_out_of_what_it_is_not_for() -> None:
    assert "train" in PROFILES[0].stems
    assert "train" not in PROFILES[0].unlike
    assert {"thought", "model", "read"} <= PROFILES[0].unlike


def test_triggers_lend_a_profile_the_words_they_are_made_of() -> None:
    topic = Topic(
        "mail",
        "topics/mail.md",
        "",
        triggers=(
            Trigger("pattern", (r"\b(in-?box|e-?mails?)\b",)),
            Trigger("pattern", ("print ",), scope="output"),
            Trigger("keywords", ("unread", "newsletter")),
            Trigger("keywords", ("hidden",), scope="output"),
            Trigger("mention", ("Ada",)),
            Trigger("mention", ("Bob",), scope="output"),
        ),
    )
    assert trigger_words(topic).split() == ["inbox", "emails", "unread", "newsletter", "Ada"]


def test_of_a_very_long_message_beginning_and_end_are_compared() -> None:
    long = "first " + "x" * 20_000 + " last"
    assert len(compared_part(long)) == HEAD + TAIL + 1
    assert compared_part(long).startswith("first")
    assert compared_part(long).endswith("last")
    assert compared_part("short") == "short"


def test_jaccard_is_the_share_of_words_in_common_with_the_best_piece() -> None:
    topic = Topic("soup", "topics/soup.md", "- boil water\n- carrots, onions, salt, pepper, garlic\n")
    assert by_words("boil the water quickly", profile(topic, plain)).score == pytest.approx(2 / 3)
    assert by_words("nothing", profile(topic, plain)) == NONE


def test_grams_forgive_spelling_where_words_do_not() -> None:
    topic = Topic("deployment", "topics/deployment.md", "- deployment to production\n- something else entirely\n")
    one = profile(topic, plain)
    misspelt = "depolyment to prodction"
    assert by_words(misspelt, one) == NONE
    assert by_grams(misspelt, one).score > 0.2
    assert by_grams("deployment to production", one).score == 1.0
    assert by_grams("qqqq wwww", one) == NONE


@given(st.text(max_size=300))
def test_no_text_leaves_the_range_or_raises(message: str) -> None:
    said = stems(message, plain)
    for one_profile in PROFILES:
        for method in (alike, by_words, by_grams):
            assert 0 <= method(message, one_profile).score <= 1
        assert 0 <= unlike(one_profile, WEIGHTS.vector(said)) <= 1


@given(st.lists(st.text(max_size=60), max_size=5), st.text(max_size=200))
def test_any_topic_has_a_profile(pieces: list[str], body: str) -> None:
    topic = Topic("any", "topics/any.md", body, keywords=tuple(pieces), not_for=tuple(pieces))
    one = profile(topic, plain)
    assert all(one.pieces)
    assert not one.unlike & set(one.stems)
