"""Statements of named people: sentences about their speaker that can be understood alone are kept."""

from __future__ import annotations

import time
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.knowledge.people import statements

SAID = date(2023, 5, 8)
BOTH = frozenset({"Ana", "Milica"})


def told(text: str) -> list[tuple[str, str]]:
    return [(one.kind, one.text) for one in statements(text, SAID, BOTH)]


@pytest.mark.parametrize(
    ("said", "kind", "kept"),
    [
        ("Hey Milica! I joined a club in Zemun yesterday.", "event", "I joined a club in Zemun on 7 May 2023."),
        ("Yeah, I adopted two kittens last week!", "event", "I adopted two kittens in the week before 8 May 2023."),
        ("Ana, I saw the fort in Jajce and it was awesome!", "event", "I saw the fort in Jajce and it was awesome."),
        ("I won a regatta in Zadar on Friday.", "event", "I won a regatta in Zadar on Friday, 5 May 2023."),
        ("I'm a nurse at the county hospital.", "about", None),
        ("I love pottery and old maps.", "preference", None),
        ("I'm going to a printing workshop next month.", "plan", "I'm going to a printing workshop in June 2023."),
        ("I decided to sell the bakery in Novi Sad.", "decision", None),
        ("I learned that sourdough needs a colder kitchen.", "lesson", None),
    ],
)
def test_what_people_say_of_themselves_is_kept(said: str, kind: str, kept: str | None) -> None:
    assert told(said) == [(kind, kept or said)]


@pytest.mark.parametrize(
    "said",
    [
        "What have you been up to?",
        "Thanks so much, Milica! That means a lot.",
        "I'm so proud of you for winning the rowing race.",
        "I totally agree, taking care of ourselves is important.",
        "Can't wait to hear all about the rowing club!",
        "It was great, and they loved the kittens.",
        "You should visit the museum in Belgrade.",
        "I took it at the beach.",
        "I felt happy and inspired.",
        "Here's a photo of my kittens.",
        "I hope the rowing club helps.",
        "We can achieve great things together.",
        "I do - Oscar, my guinea pig.",
        "I don't want my children to go through that, so I vote.",
        "I submitted a few more last week.",
        "I'm organizing a regatta two weekends later.",
        "We all have unique paths and can build a museum together.",
        "Gonna be a great night with artists and their paintings.",
        "Especially when I'm baking bread without gluten, trying to make loaves rise.",
        "My paintings and drawings hang there and she bought two.",
        "After that, we rowed to the island near Zemun.",
        "I really like the idea of a kayak tour to Zemun.",
        "I'm working on one with my choir about the Danube.",
        "I painted this after a trip to the castle in Jajce.",
        "I built something similar with my cousins in Zemun.",
        "I ja volim kafu, ali ne volim caj i mleko.",
        "<system-reminder>I joined a rowing club yesterday.</system-reminder>",
    ],
)
def test_talk_is_not(said: str) -> None:
    assert told(said) == []


def test_a_sentence_that_holds_more_weighs_more() -> None:
    bought = "I bought a wooden kayak with oars and sails"
    light, heavy = statements(f"{bought}. {bought} in Split on 3 May.", SAID, BOTH)
    assert heavy.weight > light.weight


@given(st.text(max_size=400))
def test_no_message_makes_it_fail(text: str) -> None:
    for one in statements(text, SAID, BOTH):
        assert one.text.strip()


def test_a_message_of_megabytes_is_read_in_no_time() -> None:
    began = time.process_time()
    list(statements("I, can you, " * 200_000 + "?", SAID, BOTH))
    list(statements("I moved to Oslo. Can it? " * 20_000, SAID, BOTH))
    assert time.process_time() - began < 60
