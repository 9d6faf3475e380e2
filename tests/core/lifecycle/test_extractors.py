"""The extractors: each reads a conversation and gives lines that name their turn."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from mcp_server.core.lifecycle.extractors import REGISTRY, Context, context_of
from mcp_server.core.lifecycle.extractors.journal import MOST
from mcp_server.core.lifecycle.lines import Line
from mcp_server.core.lifecycle.places import place_of
from mcp_server.core.model import Role, Turn
from mcp_server.store.recognizer import recognizer

PATH = "raw/conversations/2026/02/16/1845-s-talk.md"
START = datetime(2026, 2, 16, 18, 45, tzinfo=UTC)


def talk(*said: tuple[Role, str], name: str | None = None, project: str | None = None) -> tuple[list[Turn], Context]:
    turns = [
        Turn(number, role, content, START + timedelta(minutes=number), name=name)
        for number, (role, content) in enumerate(said, 1)
    ]
    return turns, context_of(turns, PATH, "Talk", project, lambda at: at.date().isoformat(), recognizer())


def by(name: str, said: tuple[Sequence[Turn], Context]) -> list[Line]:
    return REGISTRY[name].extract(*said)


def test_people_are_told_of_in_the_third_person_with_the_turn_that_says_so() -> None:
    (line,) = by("people", talk(("user", "Hello!"), ("user", "I moved to Lisbon yesterday."), name="Ana"))
    assert (line.kind, line.person, line.turn, line.path, line.day) == ("event", "Ana", 2, PATH, "2026-02-15")
    assert line.text == "Ana moved to Lisbon on 15 February 2026."
    assert place_of(line).path == "knowledge/people/ana.md"


def test_who_has_no_name_is_the_user() -> None:
    (line,) = by("people", talk(("user", "I'm a beekeeper from Novi Sad."), ("agent", "I keep bees in Oslo too.")))
    assert (line.person, line.text) == (None, "The user is a beekeeper from Novi Sad.")
    assert place_of(line).path == "knowledge/people/user.md"


def test_of_a_project_what_is_done_begun_and_stuck_stands_apart_and_what_is_used_is_a_fact() -> None:
    said = talk(
        ("user", "I moved the invoices to Postgres 16. I'm trying to add Stripe webhooks to the invoices."),
        (
            "user",
            "I'm having trouble with the signatures of the Stripe webhooks. I'm using FastAPI 0.110 for the service.",
        ),
        project="atlas",
    )
    places = [place_of(line) for name in ("people", "facts") for line in by(name, said)]
    assert [(place.path.removeprefix("knowledge/projects/atlas/"), place.section) for place in places] == [
        ("progress.md", "Done"),
        ("progress.md", "In progress"),
        ("progress.md", "Blockers"),
        ("context.md", "Facts"),
    ]


def test_family_pets_and_home_belong_to_no_project() -> None:
    said = talk(
        ("user", "We have a dog called Rex."), ("user", "My wife and I adopted a cat called Mia."), project="atlas"
    )
    lines = by("people", said)
    assert [line.text for line in lines] == [
        "The user and their family have a dog called Rex.",
        "The user and their wife adopted a cat called Mia.",
    ]
    assert {place_of(line).path for line in lines} == {"knowledge/people/user.md"}


def test_the_users_decisions_and_accepted_proposals_are_decisions() -> None:
    said = talk(
        ("user", "Let's use Postgres 16 for the billing service instead of MySQL."),
        ("agent", "OK, I'll switch the billing service to Postgres 16."),
        ("user", "Which database should the ledger have?"),
        ("agent", "I'd go with SQLite for the ledger: it is one file, needs no server, and the load is small."),
        ("user", "yes, go with that"),
    )
    own, accepted = by("decisions", said)
    assert (own.turn, own.text) == (1, "Let's use Postgres 16 for the billing service instead of MySQL.")
    assert accepted.turn == 4, "the turn that proposed it"
    assert accepted.text.startswith("I'd go with SQLite for the ledger")
    assert place_of(own).path == "knowledge/reference/general.md"


def test_between_people_decisions_stand_in_their_own_files() -> None:
    said = talk(("user", "I decided to sell the bakery in Novi Sad."), name="Ana")
    assert by("decisions", said) == []
    assert [place_of(line).section for line in by("people", said)] == ["Decisions"]


def test_a_lesson_is_what_says_that_it_is_one() -> None:
    said = talk(("agent", "Lesson learned: never bake at three hundred degrees."), ("user", "ok"))
    (line,) = by("lessons", said)
    assert (line.turn, line.kind) == (1, "lesson")
    assert "three hundred" in line.text


def test_a_fact_is_of_the_world() -> None:
    (line,) = by("facts", talk(("user", "The Atlas release is due on 3 June 2026.")))
    assert line.text == "The Atlas release is due on 3 June 2026."


STEPS = "1. Install certbot with snap.\n2. Run certbot --nginx for the domain.\n3. Reload nginx."


def test_steps_become_a_procedure_once_the_user_says_that_they_work() -> None:
    asked: tuple[Role, str] = ("user", "How do I renew the TLS certificate on Nginx?")
    (line,) = by("procedures", talk(asked, ("agent", STEPS), ("user", "Great, that worked!")))
    assert line.turn == 2
    assert line.text.startswith("Renew the TLS certificate on Nginx: 1) Install certbot with snap; 2) ")
    assert place_of(line).path == "knowledge/procedures/renew-the-tls-certificate-on-nginx.md"
    for answer in ("That did not work.", "it works, but only once", "thanks"):
        assert by("procedures", talk(asked, ("agent", STEPS), ("user", answer))) == []


def test_a_journal_has_few_lines_and_the_settled_ones_first() -> None:
    many: list[tuple[Role, str]] = [
        ("user", f"I visited the harbour number {number} in Rijeka with Marko.") for number in range(20)
    ]
    lines = by("journal", talk(*many, ("user", "Decision: keep Postgres 15 for billing.")))
    assert len(lines) == MOST
    assert lines[-1].text == "Decision: keep Postgres 15 for billing."
    assert {place_of(line, "Harbours").path for line in lines} == {"knowledge/journal/2026-02-16.md"}


def test_of_what_was_taken_out_nothing_is_derived() -> None:
    said = talk(
        ("user", "I use the token [redacted:api key] for Stripe in Berlin."), ("user", "I live in [forgotten].")
    )
    assert [line for name in REGISTRY for line in by(name, said)] == []


def test_the_same_turns_give_the_same_lines() -> None:
    said = talk(("user", "I moved to Lisbon. I love fado and sardines."), name="Ana")
    assert [by(name, said) for name in REGISTRY] == [by(name, said) for name in REGISTRY]
