"""The extractors: each reads a conversation and gives lines that name their turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from mcp_server.knowledge.extractors import (
    LONGEST_LABELED,
    REGISTRY,
    Context,
    context_of,
    is_worth_a_line,
    labeled_lessons,
)
from mcp_server.knowledge.summaries import JOURNAL_LINES
from mcp_server.model import Role, Turn
from mcp_server.text.destinations import place_of
from mcp_server.text.entries import Line, tidied, with_capital
from mcp_server.understanding.judging import ItemKind
from mcp_server.understanding.model import recognizer
from mcp_server.understanding.recognizer import Item

PATH = "raw/conversations/2026/02/16/1845-s-talk.md"
START = datetime(2026, 2, 16, 18, 45, tzinfo=UTC)


def talk(*said: tuple[Role, str], name: str | None = None, project: str | None = None) -> tuple[list[Turn], Context]:
    turns = [
        Turn(number, role, content, START + timedelta(minutes=number), name=name)
        for number, (role, content) in enumerate(said, 1)
    ]
    return turns, context_of(turns, PATH, "Talk", project, lambda at: at.date().isoformat(), recognizer())


def by(name: str, said: tuple[Sequence[Turn], Context]) -> list[Line]:
    return REGISTRY[name].lines(*said)


def test_named_people_are_quoted_with_the_turn_that_says_so() -> None:
    (line,) = by("people", talk(("user", "Hello!"), ("user", "I moved to Lisbon yesterday."), name="Ana"))
    assert (line.kind, line.person, line.turn, line.path, line.day) == ("event", "Ana", 2, PATH, "2026-02-15")
    assert line.text == "Ana: I moved to Lisbon on 15 February 2026."
    assert place_of(line).path == "knowledge/people/ana.md"


@pytest.mark.parametrize(
    "said",
    [
        "I'm a beekeeper from Novi Sad.",
        "I live in Split with my wife.",
        "My wife and I adopted a cat called Mia.",
        "We have a dog called Rex.",
        "My son is allergic to nuts.",
        "I'm colour-blind, red and green.",
        "My birthday is on 3 June.",
        "I'm Mara, I run Velten Imkerei in Jena.",
        "Ines is my wife.",
    ],
)
def test_a_lasting_fact_about_the_user_is_on_the_users_page_and_on_no_project(said: str) -> None:
    turns = talk(("user", said), ("agent", "I keep bees in Oslo too."), project="atlas")
    (line,) = by("people", turns)
    assert (line.person, line.text, place_of(line).path) == (None, said, "knowledge/people/user.md")
    assert by("facts", turns) == []


@pytest.mark.parametrize("more", ["", " My sister is the printer."])
def test_a_fact_stays_with_the_project_if_a_part_of_it_is_about_the_user(more: str) -> None:
    said = f"The Atlas release is due on 3 June 2026.{more}"
    turns = talk(("user", said), ("agent", "Noted."), project="atlas")
    assert [line.text for line in by("facts", turns)] == [said]


@pytest.mark.parametrize(
    "said",
    [
        "I'm trying to add Stripe webhooks to the invoices.",
        "I'm having trouble with the signatures of the Stripe webhooks.",
        "I moved the invoices to Postgres 16.",
        "I'm a bit tired of this error.",
        "I'm so happy with the new dashboard!",
        "I was nervous about the release on Friday.",
        "As an admin I would see all users.",
        "Let me keep it pending till I speak with them.",
        "I'm not going to explain a second migration tool to internal audit.",
        "The course costs 6,200 because of the housing, unless I live at home.",
    ],
)
def test_moods_progress_and_plans_of_the_hour_do_not_fill_the_users_page(said: str) -> None:
    assert by("people", talk(("user", said), ("agent", "I see."))) == []


def test_what_the_user_prefers_is_kept_outside_projects_where_it_is_about_the_user() -> None:
    said = "I prefer short answers without tables."
    (line,) = by("people", talk(("user", said)))
    assert place_of(line).section == "Likes and dislikes"
    assert by("people", talk(("user", said), project="atlas")) == []
    assert by("people", talk(("user", "I prefer option B for the menu."))) == []


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        (
            "I'm Ana, a cartographer, and I'm trying to draw the harbor with these contour lines, can you help?",
            "I'm Ana, a cartographer",
        ),
        ("Good morning, my name is Ana and I have a tea house.", "My name is Ana and I have a tea house."),
        ("I feel slow today because I'm 44 years old", "I'm 44 years old"),
        (
            "I'm trying to keep the chart of the harbor light enough for the small boats that have no screen at all, "
            "so I prefer simple, printed charts, and I've already drawn the outline of the north and the old mole,",
            "I prefer simple, printed charts",
        ),
    ],
)
def test_of_a_long_sentence_the_users_page_gets_the_clause_that_lasts(said: str, kept: str) -> None:
    assert [line.text for line in by("people", talk(("user", said)))] == [kept]


@pytest.mark.parametrize("kind", ["fact", "decision"])
@pytest.mark.parametrize(
    ("part", "kept"),
    [
        ("maybe with simple printed charts of the harbor", 0),
        ("and if the lamp of the old mole is lit", 0),
        ("the charts are printed in Lisbon", 1),
    ],
)
def test_a_part_of_a_sentence_is_a_line_only_with_its_own_subject(kind: ItemKind, part: str, kept: int) -> None:
    turns, context = talk(
        ("user", f"I wonder how the boats find the mole at night, {part}, and what they need for it.")
    )
    context = replace(context, items=(replace(rule(part), kind=kind),))
    assert len(REGISTRY[f"{kind}s"].lines(turns, context)) == kept


def test_a_fact_that_says_more_than_who_the_user_is_stays_with_the_project() -> None:
    more = "The guests reserve by telephone until now, which rings all the time when the soup is carried to the tables."
    item = rule(f"My name is Ana and I have a tea house in Lisbon. It has 14 tables inside and 6 in the garden. {more}")
    turns, context = talk(("user", item.text), project="tea-house")
    facts = REGISTRY["facts"].lines(turns, replace(context, items=(replace(item, kind="fact"),)))
    assert [line.text for line in facts] == [item.text]


def test_a_preference_told_twice_in_a_conversation_is_one_line() -> None:
    said = talk(
        ("user", "I prefer simple printed charts."),
        ("agent", "Noted."),
        ("user", "I prefer simple printed charts because they are easy to keep."),
    )
    assert [line.text for line in by("people", said)] == ["I prefer simple printed charts."]


def test_a_clause_that_points_at_the_conversation_is_not_on_the_users_page() -> None:
    assert by("people", talk(("user", "I'm 44 and just starting to learn these contour lines."))) == []


@pytest.mark.parametrize(
    "said",
    [
        "and I've never drawn any harbor charts in this project before",
        "I want the palette of the harbor chart to be displayed in a grid with 5 columns, one for each shade",
    ],
)
def test_a_wish_or_an_experience_is_no_rule_unless_it_says_that_it_lasts(said: str) -> None:
    assert not is_worth_a_line(rule(said))
    assert is_worth_a_line(rule(f"From now on: {said}"))


def rule(said: str) -> Item:
    return Item("rule", said, 1, START, (1,), "user", 0.9)


@pytest.mark.parametrize(
    ("quoted", "line"),
    [
        ("Nice. We have to write a runbook for the spool. Remind me.", "We have to write a runbook for the spool."),
        ("and from now on: one sentence per line", "From now on: one sentence per line"),
        ("I use Jinja2 for the pages. Here's my current setup:", "I use Jinja2 for the pages."),
        ("You never edit the scene. I click it. Always", "You never edit the scene. I click it. Always"),
        ("No. There will be no coroutines in the core.", "No. There will be no coroutines in the core."),
        ("anywhere. Not in the tests either", "anywhere. Not in the tests either"),
        ("so `main.py` is the entry point", "`main.py` is the entry point"),
        ("One thing: secrets. They go into Vault.", "One thing: secrets. They go into Vault."),
        ("OK.", "OK."),
        ("We signed. The keys come on Monday.", "We signed. The keys come on Monday."),
        ("The lift! It is out of order.", "The lift! It is out of order."),
        ("Bad news. Sofie cannot come in November.", "Sofie cannot come in November."),
        ("Guess what, the key was in the drawer", "The key was in the drawer"),
        ("Right hand side stays red", "Right hand side stays red"),
        ("And the electrician? (answer: He wants 1,720.)", "The electrician? (answer: He wants 1,720.)"),
    ],
)
def test_a_line_begins_and_ends_with_what_it_says(quoted: str, line: str) -> None:
    assert tidied(quoted) == line
    assert tidied(line) == line


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("the table is there", "The table is there"),
        ("done.", "Done."),
        ("tablet/db/schema.sql has the table", "tablet/db/schema.sql has the table"),
        ("test_merge fails", "test_merge fails"),
        ("main.py is the entry point", "main.py is the entry point"),
    ],
)
def test_a_path_or_name_at_the_beginning_of_a_line_keeps_its_first_letter(text: str, line: str) -> None:
    assert with_capital(text) == line


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
    said = talk(("agent", "Lesson for next time: never bake at three hundred degrees."), ("user", "ok"))
    (line,) = by("lessons", said)
    assert (line.turn, line.kind) == (1, "lesson")
    assert "three hundred" in line.text


STEPS = "1. Install certbot with snap.\n2. Run certbot --nginx for the domain.\n3. Reload nginx."


def test_steps_become_a_procedure_once_the_user_says_that_they_work() -> None:
    asked: tuple[Role, str] = ("user", "How do I renew the TLS certificate on Nginx?")
    (line,) = by("procedures", talk(asked, ("agent", STEPS), ("user", "Great, that worked!")))
    assert line.turn == 2
    assert line.text.startswith("Renew the TLS certificate on Nginx: 1) Install certbot with snap; 2) ")
    assert place_of(line).path == "knowledge/procedures/renew-the-tls-certificate-on-nginx.md"
    for answer in ("That did not work.", "it works, but only once", "thanks"):
        assert by("procedures", talk(asked, ("agent", STEPS), ("user", answer))) == []


def item(kind: ItemKind, text: str, probability: float, role: str = "user") -> Item:
    return Item(kind, text, 1, START, (1,), role, probability)


def test_an_item_that_is_not_probable_enough_is_not_worth_a_line_and_a_labeled_one_always_is() -> None:
    text = "Invoices go out on the first Monday of the month."
    assert is_worth_a_line(item("fact", text, 0.3))
    assert not is_worth_a_line(item("fact", text, 0.18))
    assert not is_worth_a_line(item("fact", text, 0.22, "agent"))
    assert is_worth_a_line(item("decision", "Switch to pnpm.", 0.5)), "few words say enough"
    assert not is_worth_a_line(item("rule", "I never want the invoices late, here is my current code:", 0.9))
    assert is_worth_a_line(item("decision", "keep it", 1.0))
    asked = "Does the bank of the shop want a copy?"
    assert not is_worth_a_line(item("open", asked, 0.9))
    assert is_worth_a_line(item("open", f"I still owe Ana the May invoices. {asked}", 0.9))


@pytest.mark.parametrize(
    "text",
    [
        "I'm trying to move the login to Argon2, which takes 500 ms with bcrypt.",
        "I've heard that Argon2 could reduce the delay of the login by half.",
        "Do I need to restart Postgres after changing the config file?",
        "My pages use Chart.js 4.3 and can you help me make them faster on phones",
        r"So for the queue of seven I take \( P(7, 2) = 42 \) and round it.",
    ],
)
def test_the_task_of_the_hour_a_question_and_an_exercise_are_not_worth_a_line(text: str) -> None:
    assert not is_worth_a_line(item("fact", text, 0.7))


@pytest.mark.parametrize(("answer", "head"), [("Which labels do you have?", "labels. "), ("And what else?", "")])
def test_a_word_that_others_mention_names_the_topic_and_stays(answer: str, head: str) -> None:
    said = "they went to mush at the market in Ilkley."
    turns, context = talk(("user", f"labels. {said}"), ("agent", answer))
    fact = item("fact", f"labels. {said}", 0.9)
    assert [line.text for line in by("facts", (turns, replace(context, items=(fact,))))] == [f"{head}{said}"]


def test_a_fact_whose_text_a_line_of_another_kind_quotes_has_no_line_of_its_own() -> None:
    shop, vet = "The bike shop in Wexford closes at noon.", "There's a vet in Nanclares who hates film people."
    items = (item("open", f"I need to find a vet. {vet}", 0.9), item("fact", vet, 0.9), item("fact", shop, 0.9))
    turns, context = talk(("user", "I need to find a vet."))
    assert [line.text for line in by("facts", (turns, replace(context, items=items)))] == [shop]


def test_a_fact_keeps_only_the_sentences_that_no_other_line_quotes() -> None:
    fact, rule = "We rebuild the harbor ledger of Rijeka in Kotlin.", "Never push to the ledger's main branch."
    items = (item("fact", f"{fact} {rule}", 0.9), item("rule", rule, 0.9))
    turns, context = talk(("user", f"{fact} {rule}"))
    assert [line.text for line in by("facts", (turns, replace(context, items=items)))] == [fact]
    before = item("fact", f"{rule} {fact}", 0.9)
    lines = by("facts", (turns, replace(context, items=(before, items[1]))))
    assert [line.text for line in lines] == [before.text], "the last sentence may point at the one before it"


def test_what_is_left_of_a_fact_must_say_what_it_is_about() -> None:
    decided = "The two machines are called Dennis and Gregory."
    asked = "What is the router? (answer: A DrayTek Vigor. The two machines are called Dennis and Gregory.)"
    items = (item("decision", decided, 0.9), item("fact", f"They do. {decided}", 0.9), item("fact", asked, 0.9))
    turns, context = talk(("user", decided))
    lines = by("facts", (turns, replace(context, items=items)))
    assert [line.text for line in lines] == ["What is the router? (answer: A DrayTek Vigor.)"]


def test_an_answer_to_several_parts_of_a_proposal_is_quoted_once() -> None:
    parts = ("Couriers without a name get a 404.", "Each adapter verifies its own signature.")
    items = tuple(item("decision", f"{part} (amended: And no client certificates.)", 0.9, "agent") for part in parts)
    turns, context = talk(("agent", " ".join(parts)), ("user", "Yes. And no client certificates."))
    (line,) = by("decisions", (turns, replace(context, items=items)))
    assert line.text == (
        "Couriers without a name get a 404. Each adapter verifies its own signature. "
        "(amended: And no client certificates.)"
    )


def test_a_journal_leaves_out_what_the_same_conversation_closed() -> None:
    said = talk(
        ("user", "I still need to get the production key of the tea scale from Bo."),
        ("agent", "Noted."),
        ("user", "Decision: the tea scale runs on 9 volts."),
        ("agent", "Noted."),
        ("user", "Done: Bo sent the production key of the tea scale."),
    )
    assert any("production key" in line.text for line in by("open items", said))
    assert not any(line.text.startswith("Open: ") for line in by("journal", said))


def test_explanations_of_an_agent_that_nobody_accepted_are_no_decisions() -> None:
    answer = (
        "Here are some tips for your login:\n- **Hashing**: Use Argon2 to store passwords.\n"
        "- **Cookies**: Set the `HttpOnly` and `Secure` flags.\n- **Lockout**: Lock the account after five attempts.\n"
        "By following these steps you can improve your security."
    )
    asked = "I'm worried about the security of my login page, can you suggest how to improve it?"
    turns = talk(("user", asked), ("agent", answer), ("user", "Thanks! And how do I write a test for the lockout?"))
    assert by("decisions", turns) == []


def test_a_line_of_a_long_accepted_proposal_is_the_sentence_that_settles_it() -> None:
    proposal = (
        "At the moment the request fails with a 500, and then it depends on the courier. DHL retries for 24 hours, UPS "
        "for one hour, Bex not at all, so with Bex you'd lose events. You could answer 202 at once and put the body "
        "into a local spool directory, one file an event, fsynced, and have a background task that drains the spool "
        "into Postgres. That is twenty lines, and it also makes the endpoint fast."
    )
    asked = "What happens to a webhook when Postgres is down?"
    (line,) = by("decisions", talk(("user", asked), ("agent", proposal), ("user", "Yes, build the spool directory.")))
    assert "You could answer 202 at once" in line.text
    assert "twenty lines" not in line.text
    assert "At the moment" not in line.text


def test_a_list_keeps_its_points_apart() -> None:
    answer = (
        "Three signals tell you everything at this size:\n\n- spool older than five minutes: Postgres is broken\n"
        "- no event from a courier for six hours: their side is broken\n- share of `unknown` over 2%: they changed "
        "their codes\n\nAll three come from one SQL query a minute, exported as Prometheus gauges from `/metrics`."
    )
    asked = "Which alerts do we need for parcelhook?"
    (line,) = by("decisions", talk(("user", asked), ("agent", answer), ("user", "Yes, let's take these three alerts.")))
    assert "Postgres is broken; no event from a courier for six hours: their side is broken; share of" in line.text
    assert "their codes. All three" in line.text


def test_a_definition_and_an_option_that_was_passed_over_are_no_decisions_and_a_choice_is_one() -> None:
    passed_over = "Alternatives I looked at and wouldn't take: a ConfigFile, whose nested data gets ugly."
    assert not is_worth_a_line(item("decision", passed_over, 0.5, "agent"))
    definition = "A row group is a horizontal slice of a Parquet file, with its own statistics for each column."
    assert not is_worth_a_line(item("decision", definition, 0.5, "agent"))
    assert is_worth_a_line(item("decision", f"I'd keep the row groups. {definition}", 0.5, "agent"))


def test_a_journal_has_few_short_lines_each_with_a_link_to_its_page() -> None:
    long = (
        "Decision: The ledger of the cooperative stays on Postgres 15 until the audit in June, because the auditors of "
        "Rijeka want the same version as last year, and the year before that one was not any better."
    )
    many: list[tuple[Role, str]] = [
        ("user", f"Decision: {shop}.")
        for shop in (
            "rye bread comes from Ljubljana", "the oven stays gas", "Milo drives the van", "no loyalty cards",
            "invoices go out on paper", "the garden opens in May", "eggs are from Hrastnik", "staff eat for free",
            "the sign is painted blue", "card payments from five euros", "Nora answers the phone", "no dogs inside",
        )
    ]  # fmt: skip
    lines = by("journal", talk(*many, ("user", "Lesson: never bake at three hundred degrees."), project="atlas"))
    assert len(lines) == JOURNAL_LINES
    assert any(line.text.startswith("Learned: Never bake") for line in lines)
    assert [line.text.partition(" [[")[2] for line in lines if "[[" in line.text] == ["atlas/notes]]"]
    assert {place_of(line, "Shops").section for line in lines} == {"[[atlas/context|atlas]]"}, "which links the others"
    assert {place_of(line, "Shops").path for line in lines} == {"knowledge/journal/2026-02-16.md"}
    (line,) = by("journal", talk(("user", long)))
    assert line.text.startswith("Decided: The ledger of the cooperative stays on Postgres 15")
    assert line.text.endswith("was not any better [[general]]"), "a sentence that is little too long stays whole"


def test_of_what_was_taken_out_nothing_is_derived() -> None:
    said = talk(
        ("user", "I use the token [redacted:api key] for Stripe in Berlin."), ("user", "I live in [forgotten].")
    )
    assert [line for name in REGISTRY for line in by(name, said)] == []


def test_the_same_turns_give_the_same_lines() -> None:
    said = talk(("user", "I moved to Lisbon. I love fado and sardines."), name="Ana")
    assert [by(name, said) for name in REGISTRY] == [by(name, said) for name in REGISTRY]


@pytest.mark.parametrize(
    ("text", "lesson"),
    [
        ("Lesson learned: never bake at three hundred degrees.", "never bake at three hundred degrees."),
        ("- **Root cause:** the thermostat was loose", "the thermostat was loose"),
        ("Fine. Gotcha - the oven heats twice.\nGotcha: the oven heats twice.", "the oven heats twice."),
        (f"Lesson: {'salt last ' * 30}", f"{'salt last ' * 20}"[:-1] + "…"),
    ],
)
def test_a_labeled_lesson_is_found_once(text: str, lesson: str) -> None:
    assert labeled_lessons(text) == [lesson]
    assert len(lesson) <= LONGEST_LABELED


@pytest.mark.parametrize(
    "text",
    [
        "Root cause: was it SQLite?",
        "Lesson: it",
        "```\n# Lesson: write the parser\n```",
        "We talked about the lesson plan.",
        "",
    ],
)
def test_other_lines_are_no_lessons(text: str) -> None:
    assert labeled_lessons(text) == []
