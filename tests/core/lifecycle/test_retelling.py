"""What somebody says of themselves, told by somebody else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.core.lifecycle.retelling import company, introduced, retold


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("I went to the fair and it was fun.", "Ana went to the fair and it was fun."),
        ("I'm keen on counseling.", "Ana is keen on counseling."),
        ("I've been to Oslo.", "Ana has been to Oslo."),
        ("I love my dog.", "Ana loves their dog."),
        ("I really enjoy painting and find it calm.", "Ana really enjoys painting and finds it calm."),
        ("I just started a class.", "Ana just started a class."),
        ("I don't eat meat.", "Ana doesn't eat meat."),
        ("I try to run.", "Ana tries to run."),
        ("My kids love the museum.", "Ana's kids love the museum."),
        ("The group gave me courage to be myself.", "The group gave Ana courage to be themselves."),
        ("I bought a boat and I sold it.", "Ana bought a boat and sold it."),
        ("My sister and I went to Rome.", "Ana and their sister went to Rome."),
        ("I'd been there before.", "Ana had been there before."),
        ("I'd love to go.", "Ana would love to go."),
        ("I rely on the bus.", "Ana relies on the bus."),
        ("My face gets red when I am near cats.", "Ana's face gets red when they are near cats."),
        ("I paint because I'm calm then.", "Ana paints because they're calm then."),
        ("My parents motivate me, they gave me a car.", "Ana's parents motivate Ana, they gave Ana a car."),
        ("I set up a run in our street.", "Ana set up a run in their street."),
        ("We went camping.", "Ana and others went camping."),
        ("We're adopting a dog.", "Ana and others are adopting a dog."),
        ("Our city held a parade.", "Ana's city held a parade."),
        ("Max and I slept in a tent.", "Max and Ana slept in a tent."),
        ("Me and my kids went camping and we loved it.", "Ana and their kids went camping and they loved it."),
    ],
)
def test_the_first_person_becomes_the_third(said: str, told: str) -> None:
    assert retold(said, "Ana") == told


@pytest.mark.parametrize("said", ["It rained all day.", "I too was there", "Let's go, I said.", "Never was I there."])
def test_what_cannot_be_told_well_is_not(said: str) -> None:
    assert retold(said, "Ana") is None


def test_the_user_has_a_capital_only_where_a_sentence_begins() -> None:
    assert retold("I moved because my flat burned.", "The user") == "The user moved because their flat burned."
    assert retold("When I moved, I told them.", "The user") == "When the user moved, the user told them."


def test_we_are_those_whom_the_message_names_and_no_guess() -> None:
    assert company("I had a picnic with some friends from church. We sang.") == "some friends from church"
    assert company("My husband and I are back.") == "their husband"
    assert company("I was there with my kids, and later with my boss and my team.") == "their kids"
    assert company("I went with my kids. Later I met with my friends.") is None
    assert company("We sang.") is None
    assert retold("We sang.", "Ana", "their kids") == "Ana and their kids sang."


def test_words_of_somebody_are_introduced_and_names_keep_their_capital() -> None:
    assert introduced("We went camping.", "Ana") == "Ana said: we went camping."
    assert introduced("Max and I slept.", "Ana") == "Ana said: Max and I slept."


@given(st.text(alphabet="I my me and we am 'mvedlx .,-", max_size=80))
def test_no_sentence_makes_it_fail_and_no_i_is_left(said: str) -> None:
    told = retold(said, "Ana")
    assert told is None or "I'm" not in told
