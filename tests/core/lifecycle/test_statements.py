"""What of a message somebody would want to know later, and what is only talk."""

from __future__ import annotations

import time
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.core.lifecycle.statements import statements
from mcp_server.core.lifecycle.tidying import tidied

SAID = date(2023, 5, 8)
BOTH = frozenset({"Ana", "Milica"})


def told(text: str, speakers: frozenset[str] = BOTH) -> list[tuple[str, str]]:
    return [(one.kind, one.text) for one in statements(text, SAID, speakers)]


@pytest.mark.parametrize(
    ("said", "kind", "kept"),
    [
        ("Hey Milica! I joined a rowing club yesterday.", "event", "I joined a rowing club on 7 May 2023."),
        ("Yeah, I adopted two kittens last week!", "event", "I adopted two kittens in the week before 8 May 2023."),
        ("Crazy thing happened - I won the regatta in Split!", "event", "I won the regatta in Split."),
        ("I saw the old castle in Jajce and it was awesome!", "event", "I saw the old castle in Jajce."),
        ("Dyed my hair purple last week - come see!", "event", "I dyed my hair purple in the week before 8 May 2023."),
        (
            "Was nervous when I showed my novel to my writing group.",
            "event",
            "I was nervous when I showed my novel to my writing group.",
        ),
        ("I won a regatta in Zadar on Friday.", "event", "I won a regatta in Zadar on Friday, 5 May 2023."),
        ("On another note, I upgraded my kayak in Zadar.", "event", "I upgraded my kayak in Zadar."),
        ('We staged a play called "The Harbour." It rained.', "event", 'We staged a play called "The Harbour."'),
        ("Inspiring 💪 I emailed three wholesalers in Graz", "event", "I emailed three wholesalers in Graz."),
        ("I'm a nurse at the county hospital.", "about", "I'm a nurse at the county hospital."),
        ("I love pottery and old maps.", "preference", "I love pottery and old maps."),
        (
            "I'm going to a printmaking workshop next month.",
            "plan",
            "I'm going to a printmaking workshop in June 2023.",
        ),
        ("I decided to sell the bakery in Novi Sad.", "decision", "I decided to sell the bakery in Novi Sad."),
        (
            "I learned that sourdough needs a colder kitchen.",
            "lesson",
            "I learned that sourdough needs a colder kitchen.",
        ),
        ("My husband teaches chemistry.", "about", "My husband teaches chemistry."),
    ],
)
def test_what_people_say_of_themselves_is_kept(said: str, kind: str, kept: str) -> None:
    assert told(said) == [(kind, kept)]


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
        "I love the energy and the food of this city.",
        "I don't want my children to go through that, so I vote.",
        "I submitted a few more last week.",
        "At the event, I talked with a sculptor named Vesna.",
        "We ended up with three sponsors that made the event a hit.",
        "I'm organizing a regatta two weekends later.",
        "We all have unique paths and can build a museum together.",
        "Gonna be a great night with artists and their paintings.",
        "Especially when I'm baking bread without gluten, trying to make loaves rise.",
        "My paintings and drawings hang there and she bought two.",
        "After that, we rowed to the island near Zemun.",
        "I really like the idea of a kayak tour to Zemun.",
        "I'm working on one with my choir about the Danube.",
        "I built something similar with my cousins in Zemun.",
        "I ja volim kafu, ali ne volim caj i mleko.",
        "<system-reminder>I joined a rowing club yesterday.</system-reminder>",
    ],
)
def test_talk_is_not(said: str) -> None:
    assert told(said) == []


def test_in_an_assistants_chat_the_statement_is_kept_and_the_question_behind_it_left_out() -> None:
    said = (
        "I'm trying to run Flask 2.3.1 with SQLite 3.39 on port 5000, can you help me with that?\n```python\nI = 1\n```"
    )
    assert told(said, frozenset()) == [("doing", "I'm trying to run Flask 2.3.1 with SQLite 3.39 on port 5000.")]


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("I'm trying to move the invoices to Postgres 16.", "doing"),
        ("I've been fixing the login page of Atlas all morning.", "doing"),
        ("I moved the invoices to Postgres 16.", "event"),
        ("I'm having trouble with the webhooks of Stripe.", "blocker"),
        ("I'm getting a checksum error from the Stripe service.", "blocker"),
        ("I'm having trouble with applying the tricks I've learned to the Atlas parser.", "blocker"),
        ("I'm using Postgres 16 for the invoices.", "fact"),
        ("I've got a staging server in Frankfurt.", "fact"),
        ("We have a staging server in Frankfurt.", "fact"),
        ("We have a dog called Rex.", "about"),
        ("I'm stepping into the Atlas project as its lead in May.", "doing"),
        ("I had a setback with the Atlas release, a failed audit.", "event"),
    ],
)
def test_what_is_begun_what_is_stuck_and_what_is_done_are_told_apart(said: str, kind: str) -> None:
    assert [one[0] for one in told(said, frozenset())] == [kind]


@pytest.mark.parametrize(
    "said",
    [
        "I've heard that Kafka drops messages over a megabyte.",
        "The rows 3 and 7 of the Kestrel table are indeed equal.",
        "The discount rule of Kestrel 2 makes sense.",
        r"I should take \( q = 7 \) for the Kestrel queue.",
        "Kestrel depot, Rijeka (North Quay 4).",
    ],
)
def test_hearsay_formulas_and_nods_are_nothing_to_keep(said: str) -> None:
    assert told(said, frozenset()) == []


def test_a_standing_instruction_is_a_preference() -> None:
    said = "Always include version numbers when I ask about libraries."
    assert told(said, frozenset()) == [("preference", said)]


def test_in_small_letters_sentences_are_told_apart_too() -> None:
    said = "add rate limiting to the login. we use Redis 7 in production. use pnpm, not npm"
    assert told(said, frozenset()) == [
        ("fact", "We use Redis 7 in production."),
        ("preference", "Use pnpm, not npm."),
    ]


def test_what_is_the_matter_now_is_no_fact_and_what_is_to_do_is_a_plan() -> None:
    assert told("The tests of Atlas fail on CI 2 since Monday.", frozenset()) == []
    assert told("TODO: write a load test for the limiter", frozenset()) == [
        ("plan", "To do: write a load test for the limiter.")
    ]


def test_a_fact_of_the_world_needs_a_name_or_a_figure() -> None:
    assert told("The release of Atlas is due on 3 June 2024.", frozenset()) == [
        ("fact", "The release of Atlas is due on 3 June 2024.")
    ]
    assert told("The release will be due sometime later on.", frozenset()) == []


def test_a_sentence_that_holds_more_weighs_more() -> None:
    light, heavy = statements(
        "I bought a wooden kayak with oars. I bought a wooden kayak with oars in Novi Sad on 3 May 2023.", SAID, BOTH
    )
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


@pytest.mark.parametrize(
    "said",
    [
        "Hm, actually please forget my phone number, I don't want it stored anywhere.",
        "Don't store the IBAN of the Zagreb office, we will move it to the vault.",
        "Continue where we left off yesterday in the Zagreb office",
        "Next, part 8 of the GLS v2 client: map the Customs fields.",
    ],
)
def test_what_only_steers_an_assistant_is_not_kept(said: str) -> None:
    assert told(said, frozenset()) == []


@pytest.mark.parametrize(
    ("said", "kind", "kept"),
    [
        (
            "So no Redis: we use Postgres with SKIP LOCKED for the retry queue instead.",
            "decision",
            "No Redis: we use Postgres with SKIP LOCKED for the retry queue instead.",
        ),
        ("We'll use Redis streams for the retry queue.", "decision", "We'll use Redis streams for the retry queue."),
        (
            "It has moved: we release 2.8 on May 24 because of the Zebra certification.",
            "fact",
            "Moved: we release 2.8 on May 24 because of the Zebra certification.",
        ),
        ("done: release notes for 2.8 in Serbian", "event", "Done: release notes for 2.8 in Serbian."),
        ("I'm Nadia Horvat, I run backend at Novalink.", "about", "I'm Nadia Horvat, I run backend at Novalink."),
    ],
)
def test_what_changes_at_work_is_kept_as_what_it_is(said: str, kind: str, kept: str) -> None:
    assert told(said, frozenset()) == [(kind, kept)]


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("I got to teach a class last week.", "I got to teach a class last week."),
        ("I have got to teach a class.", "I have to teach a class."),
        ("She's got to leave.", "She has to leave."),
        ("I gotta teach a class.", "I have to teach a class."),
    ],
)
def test_only_a_duty_becomes_have_to(said: str, kept: str) -> None:
    assert tidied(said) == kept
