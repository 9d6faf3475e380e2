"""What is recognized in a conversation: decisions, rules, facts, open items, reports."""

from __future__ import annotations

import time

import anyio
import anyio.to_thread
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_server import app
from mcp_server.context.push_policy import ASKS_FOR_OPEN
from mcp_server.memory import Memory
from mcp_server.understanding import model
from mcp_server.understanding.features import Message
from mcp_server.understanding.judging import LEAST, Found, Judged, clean
from mcp_server.understanding.lines import decision_lines
from mcp_server.understanding.model import Model, recognizer
from mcp_server.understanding.recognizer import is_real, is_task, linked, read
from mcp_server.understanding.replies import LONGEST
from mcp_server.understanding.sentences import sentences
from tests.checkpoints.injected import INJECTED
from tests.understanding.talks import BERTH, BERTH_DONE, OPTIONS, PROPOSAL, items, talk, texts


def test_an_accepted_proposal_becomes_a_decision_that_quotes_it() -> None:
    said = (
        "Which database should the ledger have?",
        "I'd go with SQLite for the ledger: it is one file, needs no server, and the load is small.",
        "yes, go with that",
        "Done, the ledger uses SQLite now.",
    )
    (decision,) = [one for one in items(*said) if one.kind != "report"]
    assert decision.kind == "decision"
    assert decision.text.startswith("I'd go with SQLite for the ledger")
    assert (decision.sources, decision.turn) == ((4, 5), 5), "proposed in turn 4, settled in turn 5"


@pytest.mark.parametrize("reply", ["take 2", "2 it is", "number 2, thanks", "option 2 please"])
def test_of_options_the_one_chosen_by_number_is_the_decision(reply: str) -> None:
    said = ("how to ship the reports?", f"{OPTIONS}\n\nI'd take 1 or 2. Which one?", reply, "To the storage bucket.")
    (decision,) = texts("decision", *said)
    assert "Upload them to the storage bucket" in decision
    assert "Mail" not in decision
    assert "Print" not in decision


def test_a_refusal_is_a_decision_and_names_the_refused_proposal_last() -> None:
    said = (
        "the parser is slow",
        "I suggest we rewrite the parser in Rust. Shall I start?",
        "no, no Rust here. We stay with Python for the parser.",
        "Understood, the parser stays in Python.",
    )
    (decision,) = texts("decision", *said)
    assert decision.startswith("no, no Rust here. We stay with Python for the parser. (refused: I suggest we rewrite")


def test_a_sentence_that_begins_with_a_pronoun_is_quoted_with_the_one_before_though_that_is_a_fact() -> None:
    said = (
        "Anything else for the evening?",
        "That makes 40 tables in the hall.",
        "40, you are right. And tea and bara brith are sold by Year 10 for their Iceland trip. They wanted to take two "
        "pounds a piece. I find it should be by donation, a box on the table, people give more when they are not told.",
        "By donation, with a box.",
    )
    (decision,) = texts("decision", *said)
    assert "tea and bara brith are sold by Year 10 for their Iceland trip. They wanted to take two pounds" in decision


def test_what_a_refusing_answer_keeps_is_not_called_refused() -> None:
    said = (
        "How do the parents book?",
        "I would take the booking service for 340 pounds a year. The other way is a paper slip with three wishes, "
        "early, middle or late, from which I compute the plan.",
        "No service, for 340 pounds I get a new urn. Paper slips with early, middle or late, as people know it, and "
        "you compute the plan.",
        "Paper slips then.",
    )
    (decision,) = texts("decision", *said)
    assert "from which I compute the plan. (answer: No service, for 340 pounds" in decision
    assert "(refused:" not in decision


@pytest.mark.parametrize("once", ["only in English this time", "in English just for once"])
def test_an_instruction_for_one_time_is_no_rule_though_it_says_always(once: str) -> None:
    said = f"I shall be in Tenby with my sister. Always write to Evans {once}, they are from Bristol."
    assert texts("rule", said, "Done.") == []
    assert texts("rule", f"{said}\n\nRule: letters have no greetings.", "Done.") == ["letters have no greetings."]
    assert texts("rule", "Always write to Evans in English, they are from Bristol.", "Done.") != []


def test_a_clause_that_depends_on_the_one_before_is_quoted_with_it() -> None:
    said = (
        "There is one matter which I should mention before I forget it, namely that we never play on a Sunday, not out "
        "of piety, or not only, but because the chapel lets us have its car park on the other six days, and it is "
        "the sort of bargain which one does not put in writing, so do please keep Sundays empty in anything you draw."
    )
    found = texts("rule", "Which days shall I plan?", "I made a calendar.", said, "Sundays stay empty.")
    assert all(one.startswith("There is one matter") for one in found)
    assert found


def test_a_question_about_something_else_is_told_with_its_answer_but_not_with_the_proposal() -> None:
    said = (
        "The other one has an excess of 1,000.",
        "Then I'd insure the boat with Allianz for 640 euros a year. And the sailmaker?",
        "His offer says 1,720 for the mainsail.",
        "Noted.",
    )
    assert texts("decision", *said) == ["Then I'd insure the boat with Allianz for 640 euros a year."]
    assert "And the sailmaker? (answer: His offer says 1,720 for the mainsail.)" in texts("fact", *said)


def test_advice_for_an_option_that_was_not_chosen_is_not_told() -> None:
    (decision,) = texts(
        "decision",
        "What do we serve?",
        "1. Wine and beer, about 9 euros a guest\n2. Sparkling wine only, 5 euros\n3. Juice and coffee, 3 euros\n\n"
        "With 70 guests I would take the second.",
        "3, the county pays for no alcohol.",
        "Noted.",
    )
    assert decision.startswith("Juice and coffee, 3 euros")
    assert "take the second" not in decision


@pytest.mark.parametrize("reply", ["No objections.", "no problem", "No worries, do that."])
def test_an_acceptance_that_begins_with_no_is_no_refusal(reply: str) -> None:
    (decision,) = texts("decision", "and backups?", PROPOSAL, reply, "OK.")
    assert decision.startswith(PROPOSAL)
    assert "refused" not in decision


def test_an_answer_that_takes_what_it_names_is_no_refusal() -> None:
    proposal = "I'd recommend the Kafka Connect sink: it needs no cluster of its own."
    reply = "Nobody here runs Flink and I don't want to be the only one on call for it. Connect sink it is."
    (decision,) = texts("decision", "Flink or the Connect sink?", proposal, reply, "Good.")
    assert "refused" not in decision


def test_what_the_agent_only_repeats_is_not_told_again() -> None:
    said = (
        "When do we cut over?",
        "I'd do the cutover on 10 November at 06:00 UTC, and keep Spark in parallel until 8 December.",
        "yes, do that",
        "Cutover 10 November, 06:00 UTC, Spark in parallel until 8 December. As a criterion I'd use the row count per "
        "day: the difference has to stay below 0.1%. OK?",
        "yes",
    )
    first, second = texts("decision", *said)
    assert first.startswith("I'd do the cutover on 10 November")
    assert second.startswith("As a criterion I'd use the row count")


def test_an_agreement_is_told_without_the_words_that_only_agree() -> None:
    proposal = "I'd move the second training to Tuesday 17 November."
    agreed = "Agreed. I'll show Lotte everything in March then, she is away."
    (decision, *_) = texts("decision", "when do we train the team?", f"{proposal} OK?", agreed, "Noted.")
    assert "Agreed." not in decision


def test_what_holds_always_or_never_is_a_rule_also_if_it_could_be_a_decision() -> None:
    said = (
        "Sofie asks for the export.",
        "Shall I mail it to her?",
        "No, no client data by e-mail, ever.",
        "Understood.",
    )
    assert any("no client data" in rule for rule in texts("rule", *said))


def test_an_amendment_is_told_with_the_proposal() -> None:
    said = ("and backups?", f"{PROPOSAL} OK?", "Yes, with one change: 30 copies.", "Set up that way.")
    assert texts("decision", *said) == [f"{PROPOSAL} (amended: Yes, with one change: 30 copies.)"]


@pytest.mark.parametrize("reply", ["ok, 4 weeks", "yes, 4 weeks and then to the shelter"])
def test_an_answer_with_another_number_amends_the_proposal_whatever_it_begins_with(reply: str) -> None:
    proposal = "I'd keep finished pieces 6 weeks on the shelf with the date on them, and then they go."
    asked = "people forget to collect their pieces, what now?"
    assert texts("decision", asked, proposal, reply) == [f"{proposal} (amended: {reply})"]
    assert texts("decision", asked, proposal, "yes please") == [proposal]


def test_what_is_left_open_is_told_with_the_sentences_that_say_what_it_is() -> None:
    about, reply = "Hannah wants a map of Piran at the front.", "Don't know yet, let me ask my sister."
    assert f"{about} {reply}" in texts("open", "what else?", about, reply, "Fine.")


def test_a_proposal_that_is_postponed_is_an_open_item_and_no_decision() -> None:
    proposal = "I suggest Redis with a TTL of ten minutes for the price list."
    said = ("how do we cache?", proposal, "Let me sleep on it.", "Fine.")
    assert texts("open", *said) == [f"{proposal} Let me sleep on it."]
    assert texts("decision", *said) == []


@pytest.mark.parametrize("asked", ["Put it on the list.", "keep that on your list, will you", "leave it on the pile"])
def test_what_the_user_puts_on_a_list_is_an_open_item(asked: str) -> None:
    told = "The old stove pipe I show to the sweep when he is here in autumn."
    said = ("How do we heat the hut?", "With the stove in the kitchen.", f"{told} {asked}", "Noted.")
    assert [told in one for one in texts("open", *said)] == [True]


def test_a_list_that_the_user_only_mentions_makes_no_open_item() -> None:
    assert texts("open", "You put it on the list of the shop already, and they sent it.", "Good.") == []


def test_two_tasks_of_one_message_are_two_open_items() -> None:
    key = "I still have to find out who keeps the key of the pump house."
    certificate = "And somebody has to renew the certificate of the staging server."
    assert texts("open", f"{key} {certificate}", "I'll put both on the list.") == [key, certificate]


def test_what_an_answer_adds_about_something_else_is_a_decision_of_its_own() -> None:
    asked = "I'd leave the tiny text until the fonts are settled, or do you want it now?"
    frog = "oh and the frog's jump feels floaty now, drop it to 0.09."
    first, second = texts("decision", "what is next?", asked, f"now. 16px min on the HUD pls. {frog}", "Both done.")
    assert "16px min on the HUD" in first
    assert "floaty" not in first
    assert second == frog


def test_a_wish_that_the_agent_answers_with_an_earlier_decision_is_no_decision() -> None:
    wish = "let's add RabbitMQ so that the screen of my father refreshes by itself"
    assert texts("decision", wish, "Added to the compose file.") == [wish]
    assert texts("decision", wish, "We decided against a broker; LISTEN/NOTIFY does that.", "what is for lunch?") == []


@pytest.mark.parametrize(
    ("said", "only_does"), [("drop the second font", True), ("let's go with the blue logo", False)]
)
def test_a_message_that_only_gives_a_task_is_told_from_a_directive(said: str, only_does: bool) -> None:
    message = Message("user", said)
    message.acts = {"task": 0.9, "directive": 0.3}
    assert is_task(message) == only_does


def test_a_rule_after_a_proposal_is_not_quoted_as_its_answer() -> None:
    said = (
        "b, the wristbands",
        "Fine. I'll read the tag and map it to the picker in a table with valid_from and valid_to.",
        "Important, from now on: never put a picker's full name on anything that leaves the farm.",
        "Noted.",
    )
    assert not any("(answer: Important" in text or "(amended: Important" in text for text in texts("decision", *said))
    assert texts("rule", *said) == [said[2]]


def test_a_heading_in_a_line_ends_with_a_colon_and_no_line_ends_with_a_heading() -> None:
    plan = (
        "I'd keep the readings like this.\n\n## Retention\nI'd keep the raw readings for 13 months in one table, then "
        "drop them.\n\n## Costs\nAbout four euros."
    )
    (decision,) = texts("decision", "how do we keep the readings?", plan, "yes, go with that")
    assert "Retention: I'd keep the raw readings for 13 months" in decision
    assert not decision.endswith("Costs:")


def test_a_sentence_that_needs_the_one_before_it_belongs_to_the_same_open_item() -> None:
    said = "I still have to find out who keeps the key of the pump house. And he has to sign for it before Friday."
    assert texts("open", said, "I'll put it on the list.") == [said]


@pytest.mark.parametrize(
    ("said", "quoted"),
    [
        ("the prod host is skua\nthe rack is in the council basement", "is skua; the rack"),
        ("the prod host is skua.\nthe rack is in the council basement", "is skua. the rack"),
        (
            "the prod host of the booking system is skua, which is older than i am\n"
            "the rack is in the council basement behind the boiler, and only moira has a key to it",
            "than i am; the rack",
        ),
        (
            "The production host of the booking system is called skua, and its rack\nis in the council basement.",
            "its rack is in the council basement.",
        ),
    ],
)
def test_lines_without_a_mark_at_their_end_are_told_apart_unless_the_text_is_wrapped(said: str, quoted: str) -> None:
    (fact,) = texts("fact", said, "Noted.")
    assert quoted in fact


@pytest.mark.parametrize(
    "line",
    [
        "2026-03-02 02:30:00 INFO loader.batch batch=0 rows=921",
        "[2026-03-02T02:30:00Z] batch 217 deadlocked",
        "Mar  2 02:30:00 harbor-db-01 postgres[811]: deadlock detected",
        "02:30:00.114 retrying in 5 s",
        "02/Mar/2026:02:30:00 +0000 GET /health 200",
    ],
)
def test_nobody_says_a_line_of_a_log(line: str) -> None:
    found = [one.text for one in sentences(f"Look at this:\n{line}\nAt 02:30:00 it stops.")]
    assert found == ["Look at this:", "At 02:30:00 it stops."]


def test_a_sentence_without_a_word_about_anything_is_not_quoted() -> None:
    assert texts("open", f"That's enough for today. {BERTH}", "Good night.") == [BERTH]


@pytest.mark.parametrize(
    ("kind", "before", "said", "line"),
    [
        (
            "rule",
            "Shall I order the glue?",
            "Write it up. And if something costs over 200 pounds you ask me first, always, before you order or book.",
            "And if something costs over 200 pounds you ask me first, always, before you order or book.",
        ),
        (
            "rule",
            "The board is ready.",
            "Heck. Next one. Never put an exclamation mark in anything that goes out under my name.",
            "Never put an exclamation mark in anything that goes out under my name.",
        ),
        (
            "fact",
            "Good morning.",
            "The tickets: a family is 2 adults and up to 3 children, 390 crowns. I nearly lost my soup.",
            "The tickets: a family is 2 adults and up to 3 children, 390 crowns.",
        ),
        (
            "decision",
            "Good morning.",
            "My sister burned the soup again. We take the plastic labels for the jars.",
            "We take the plastic labels for the jars.",
        ),
    ],
)
def test_remarks_about_something_else_are_not_quoted_with_an_item(kind: str, before: str, said: str, line: str) -> None:
    (item,) = (one for one in items("Hello.", before, said, "Noted.") if one.kind == kind)
    assert (item.short or item.text) == line


def test_a_short_answer_is_quoted_whole() -> None:
    asked = f"{PROPOSAL} The NAS has room for a year of them, and a copy takes four minutes at most. Shall I?"
    (decision,) = items("and backups?", asked, "fine. 30 copies. rest same", "Set up that way.")
    assert (decision.short or decision.text).endswith("fine. 30 copies. rest same)")


def test_an_answer_is_told_with_the_question_at_the_end_of_a_proposal() -> None:
    asked = "Nothing deletes the copies on the stick at the moment; I would keep some. How many would be sensible?"
    (decision,) = texts("decision", "and the stick?", asked, "Ten. Older ones away automatically.", "Set.")
    assert decision.endswith("How many would be sensible? (answer: Ten. Older ones away automatically.)")


@pytest.mark.parametrize(
    "reply",
    [
        "by the way, our newsletter goes out on Mondays at 8",
        "perfect. btw the mayor's birthday is on 3 May",
        "ok. My new laptop arrives on Thursday, by the way, with 32 GB of memory.",
    ],
)
def test_a_proposal_is_told_without_a_reply_that_changes_the_subject(reply: str) -> None:
    (decision, *_) = texts("decision", "and backups?", PROPOSAL, reply, "Noted.")
    assert decision == PROPOSAL


def test_an_answer_that_names_its_choice_is_told_with_a_table() -> None:
    table = "| | CAN FD | EtherCAT |\n|---|---|---|\n| per node | 1.10 € | 9.40 € |\n| effort | 4 d | 20 d |"
    said = (
        "which bus?",
        f"I compared both buses for the nodes:\n\n{table}\n\nI'd take the cheap one.",
        "we take CAN FD",
        "OK.",
    )
    assert texts("decision", *said)[-1].endswith("(agreed: we take CAN FD)")


def test_what_explains_a_proposal_is_no_decision_of_its_own() -> None:
    proposal = "I suggest larch for the floor, with bronze screws, and oak only for the sill."
    unknown = "I don't know the mill's prices yet."
    said = ("what do you think about it?", f"{unknown} {proposal}", "ok do that, thanks", "Done.")
    assert texts("decision", *said) == [proposal]
    reasons = "Larch would last thirty years, and the mill has it. Oak would be dearer."
    (decision,) = texts("decision", said[0], f"{reasons} {proposal}", *said[2:])
    assert decision.endswith(proposal)


@pytest.mark.parametrize("reply", ["yes", "ok, do that", "agreed", "yes please", "Very well.", "jo gerne", "sim"])
def test_a_plain_acceptance_of_a_plain_proposal_is_a_decision(reply: str) -> None:
    proposal = "I suggest SQLite for the ledger, because it is one file."
    assert texts("decision", "which store?", proposal, reply, "Done.") == [proposal]


def test_a_postponed_proposal_is_an_open_item_and_no_decision() -> None:
    reply = "Not sure yet, let me sleep on it."
    found = items("and backups?", PROPOSAL, reply, "OK.")
    assert [(item.kind, item.text, item.sources) for item in found] == [("open", f"{PROPOSAL} {reply}", (4, 5))]


@pytest.mark.parametrize("reply", ["👍", "yes please", "agreed"])
def test_a_proposal_may_be_a_question(reply: str) -> None:
    said = ("ok, the concert", "Dress code: all in black with a green scarf?", reply, "Noted.")
    (text,) = texts("decision", *said)
    question = "Dress code: all in black with a green scarf?"
    assert text in (f"{question} (answer: {reply})", f"{question} (agreed: {reply})")


def test_a_short_answer_is_told_with_the_question() -> None:
    said = ("what is left for the index?", "Which tolerance should the grid match have?", "by area, 10 percent", "Set.")
    (decision,) = texts("decision", *said)
    assert decision == "Which tolerance should the grid match have? (answer: by area, 10 percent)"


def test_a_users_own_directive_is_a_decision() -> None:
    directive = "Let's use Postgres 16 for the billing service instead of MySQL."
    (decision,) = items(directive, "OK, I'll switch the billing service to Postgres 16.")
    assert (decision.kind, decision.text, decision.sources) == ("decision", directive, (3,))


@pytest.mark.parametrize(
    "directive",
    [
        "we use asyncpg, no ORM",
        "hm ok, the oven: scrap the gas one, we take the electric.",
        "Let's go with the blue logo",
        "We'll take the flat in Graz, the one with the balcony.",
        "We decided against Redis, Postgres does the queue.",
    ],
)
def test_a_plain_directive_is_a_decision(directive: str) -> None:
    assert texts("decision", directive, "Noted.") == [directive]


@pytest.mark.parametrize("said", ["maybe we use asyncpg, no ORM", "Let's go with the blue logo?", "we go home now"])
def test_a_doubt_a_question_and_talk_are_no_directives(said: str) -> None:
    assert texts("decision", said, "Hm.") == []


def test_a_standing_rule_is_recognized() -> None:
    rule = "From here on write all commit messages in English."
    assert texts("rule", rule, "Understood, noted.", "what is next?", "The export.") == [rule]


def test_a_rule_may_be_a_question() -> None:
    asked = "Could you always write p-values with three decimals and without the zero in front?"
    assert texts("rule", asked, "Of course, always three decimals.") == [asked]


def test_a_short_rule_is_told_with_the_sentence_before_it() -> None:
    rule = "Somebody changed the palette of the game again.\n\nNever do that without asking me."
    assert texts("rule", rule, "OK, never.") == [rule.replace("\n\n", " ")]


@pytest.mark.parametrize(
    "said",
    [
        "from now on every list has names. short ones please. never more than ten lines.",
        "One thing: secrets. I'd rather have them in Vault than in env files.",
    ],
)
def test_a_short_message_of_the_user_is_quoted_whole(said: str) -> None:
    assert texts("rule", said, "Understood.") == [said]


def test_a_short_sentence_between_two_that_are_quoted_is_quoted_too() -> None:
    kept = "We'll take the electric oven. The gas one was heavy. And we'll take the gas hob."
    before = (
        "It rained the whole weekend here, the tent stood in a puddle, and the children laughed about it all night and "
        "told each other ghost stories until the dog began to howl and the neighbours came over with a lamp."
    )
    (decision,) = [one for one in items(f"{before} {kept}", "Understood.") if one.kind == "decision"]
    assert (decision.short or decision.text) == kept


def test_a_decision_that_hardly_says_what_it_is_about_is_quoted_with_the_fact_before_it() -> None:
    served = "`main.go` now serves 443 with `autocert` and redirects 80. The cache directory is `/var/lib/x/certs`."
    done = "`hold.TTL = 15 * time.Minute`. The countdown reads the same constant."
    said = "also 8 min is too short, tried it with my dad on his ipad. he needed 11. make it 15"
    found = items("ok, autocert then", served, said, done)
    assert said in [one.text for one in found if one.kind == "decision"]


@pytest.mark.parametrize(
    ("said", "reply"),
    [
        ("write me a regex for iso dates", "Done."),
        ("write a unit test for the parser", "OK."),
        ("Please read the repo and tell me what it does.", "OK."),
    ],
)
def test_a_task_is_no_rule(said: str, reply: str) -> None:
    assert texts("rule", said, reply) == []


def test_a_sentence_that_is_a_rule_is_no_decision_too() -> None:
    said = "We never use an ORM in this project, always plain asyncpg."
    assert [(one.kind, one.text) for one in items(said, "Understood.")] == [("rule", said)]


def test_a_fact_is_recognized() -> None:
    fact = "The Atlas release is due on 3 June 2026."
    assert texts("fact", fact, "Noted.") == [fact]


def test_an_open_item_and_the_report_that_it_is_done_are_recognized() -> None:
    said = (BERTH, "OK, I'll keep that in mind.", "how does the export work?", "It writes a CSV file.", BERTH_DONE)
    found = items(*said, "Good to hear.")
    assert {("open", 3), ("report", 7)} <= {(item.kind, item.turn) for item in found}
    assert found[0].text == BERTH


@pytest.mark.parametrize(
    ("line", "kind", "text"),
    [
        ("Decision: keep the raw files for ever", "decision", "keep the raw files for ever"),
        ("**Decision**: keep SQLite for now", "decision", "keep SQLite for now"),
        ("Rule: tests run before each commit", "rule", "tests run before each commit"),
        ("TODO: pay Bo", "open", "pay Bo"),
        ("- [ ] call Ana Marija", "open", "call Ana Marija"),
        ("- [x] call Ana Marija", "report", "call Ana Marija"),
        ("Done: the berth is booked", "report", "the berth is booked"),
    ],
)
def test_a_label_always_counts(line: str, kind: str, text: str) -> None:
    assert (kind, text) in [(item.kind, item.text) for item in items(line, "ok")]


def test_a_long_labeled_sentence_is_whole() -> None:
    text = (
        "the ledger of the cooperative stays on Postgres 15 until the audit in June, because the auditors of Rijeka "
        "want the same version as last year, and nobody moves it before they have left, not even for the new press"
    )
    (item,) = items(f"Decision: {text}.\nThanks.", "ok")
    assert item.text == f"{text}."


@pytest.mark.parametrize(
    "line", ["Decision: should we keep it?", "TODO: **", "- [ ] [forgotten]", "```\nTODO: x y\n```"]
)
def test_a_label_before_a_question_or_nothing_counts_for_nothing(line: str) -> None:
    assert items(line, "ok") == []


def test_each_labeled_line_is_an_item_of_its_own() -> None:
    assert texts("open", "- [ ] write docs for the parser\n- [ ] write tests for the parser") == [
        "write docs for the parser",
        "write tests for the parser",
    ]


@settings(max_examples=15, deadline=None)
@given(INJECTED)
def test_what_a_program_wrote_never_becomes_an_item(text: str) -> None:
    plain = talk("and backups?", f"{PROPOSAL} OK?", "yes", "Set up that way.")
    program = [one for one in talk(*[text] * 2) if one.content == text]
    assert not any(map(is_real, program))
    assert read([*plain, *program], recognizer()) == read(plain, recognizer())


def test_a_message_that_is_one_element_is_a_programs() -> None:
    element = "<command-output id='3'>\nDecision: remove slot 2.\n</command-output>"
    assert [is_real(turn) for turn in talk(f"{element}\n", f"{element}\nDecision: keep slot 2.")[-2:]] == [False, True]


_SAID = (f"{PROPOSAL} OK?", PROPOSAL, OPTIONS, "yes", "2", "no, not on the NAS", "```\nx = 1\n```", "Who pays?", "…")
"""Messages that mean something after each other, and messages without a word."""


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(_SAID) | st.text(max_size=200), max_size=5))
def test_any_text_can_be_read_and_an_item_is_short_and_on_one_line(said: list[str]) -> None:
    for item in items(*said):
        assert 0 < len(item.text) <= LONGEST
        assert "\n" not in item.text


def test_a_lesson_holds_no_decisions() -> None:
    said = (
        "I'm new to beekeeping and want to make sure my two hives survive the winter, can you explain how I "
        "should prepare them?",
        "To prepare your hives for the winter, follow these steps:\n\n### 1. **Food**\n- **Weigh the hive**: "
        "Make sure that each hive has at least 18 kg of stores.\n- **Feed syrup early**: Use a 2:1 sugar syrup "
        "and stop feeding in October.\n\n### 2. **Moisture**\n- **Ventilation**: Use a quilt box to absorb "
        "moisture, and keep the top entrance open.\n- **Tilt**: Tilt the hive slightly forward so that water can "
        "run out.\n\n### 3. **Mites**\n- **Treatment**: Treat with oxalic acid when the colony is without "
        "brood.\n\nBy following these steps, you can ensure that your colonies stay healthy.",
        "Thanks for the detailed steps! I've never treated bees against mites before, so how does the oxalic "
        "acid work, and what should I watch out for?",
        "Oxalic acid kills the mites that sit on the bees. Here is how to use it:\n\n1. **Trickle method**: Mix "
        "35 g of oxalic acid into a liter of syrup and trickle 5 ml into each gap.\n2. **Vaporization**: Use a "
        "vaporizer with 1 g for each brood box, and wear a respirator.\n\n- **Timing**: Treat once, in December, "
        "when there is no brood.\n- **Safety**: Keep gloves and goggles on.",
        "That makes sense. I'll try to weigh the hives this weekend, then the syrup would be 2 kg of sugar to 1 "
        "liter of water, right?",
        "Exactly! With 2 kg of sugar and 1 liter of water you get about 2.25 liters of syrup.",
    )
    assert texts("decision", *said) == []


@pytest.mark.parametrize(
    ("asks_the_memory", "general"),
    [
        ("where does the staging database run again?", "what is the difference between a list and a tuple?"),
        ("draft the letter to the landlord about the roof", "rename this variable to total"),
        ("who signs off our releases", "run the tests again"),
    ],
)
def test_a_prompt_about_the_work_needs_the_memory_more_than_a_general_one(asks_the_memory: str, general: str) -> None:
    model = recognizer()
    assert model.needs(asks_the_memory).memory > 0.5 > model.needs(general).memory


def test_emphasis_leaves_a_line_and_what_stands_inside_a_name_stays() -> None:
    said = "Let us **always** use _two_ underscores: `stg_adt__movements`, __not__ `stg_adt_movements`, and 3*4 stays."
    assert clean(said) == said.replace("**", "").replace("__not__", "not")


@pytest.mark.parametrize("code", ["No `SELECT *` in models.", "count(*)", "rm *.tmp", "src/**/*.py", "at */15 * * * *"])
def test_asterisks_of_code_are_no_emphasis(code: str) -> None:
    assert clean(code) == code


@pytest.mark.parametrize(
    ("program", "person"),
    [
        (
            "[shop-bot] Daily digest 3/2027. Activated by default: 'Agreed strategy: free returns'.",
            "the shop says free returns are agreed, is that so?",
        ),
        (
            "[hook: post-commit] lint passed. Summary by bot: 'Team agreed to adopt GraphQL.'",
            "lint passed, so we adopt GraphQL as agreed",
        ),
    ],
)
def test_words_tell_what_a_program_wrote_under_the_users_name(program: str, person: str) -> None:
    assert (recognizer().by_program(program), recognizer().by_program(person)) == (True, False)


@pytest.mark.parametrize(
    ("asks", "states"),
    [
        ("add a price column to the table", "the wholesale tier starts at 24 jars per order"),
        ("write the text for the shipping page", "shipping is free from 89 euros on"),
        ("why does the import take an hour?", "the import took an hour because sku had no index"),
        ("run the tests again", "add the bank to the footer: IBAN DE02 1203 0000"),
        ("How are you?", "I lost my job at the bakery this month. How are you?"),
    ],
)
def test_a_request_states_nothing_unless_it_names_a_fact(asks: str, states: str) -> None:
    assert (recognizer().only_asks(asks), recognizer().only_asks(states)) == (True, False)


@pytest.mark.parametrize(
    ("asks", "other"),
    [
        ("what's still on my list?", "who is on the guest list?"),
        ("who do I still have to call before Friday?", "where does the staging database run?"),
        ("which obligations have I not yet met?", "which rules did I give you for mails?"),
        ("go through everything that isn't sorted", "go through this file and sort the imports"),
    ],
)
def test_a_prompt_asks_for_open_items(asks: str, other: str) -> None:
    model = recognizer()
    assert model.needs(asks).open_items > ASKS_FOR_OPEN > model.needs(other).open_items


def test_an_answer_that_changes_a_part_is_told_with_every_part_of_the_proposal() -> None:
    one, other = "Move the garage on 1 October.", "Use Xero for the garage."
    turns = talk("and the garage?", f"{one}\n\nA.\n\nB.\n\nC.\n\n{other}", "The first of January, but Xero.")[-2:]
    messages = linked(turns)
    messages[1].acts = {"accept": 0.9, "amend": 0.8}
    shares = [[dict.fromkeys(map(str, LEAST), 0.9) for _ in message.sentences] for message in messages]
    found = [
        [Found(place, message.sentences[place].text, 0.9) for place in places]
        for message, places in zip(messages, ((0, 4), (0,)), strict=True)
    ]
    judged = [Judged(share, {"decision": some}) for share, some in zip(shares, found, strict=True)]
    lines = [line.text for line, _ in decision_lines(messages, 0, judged.__getitem__)]
    assert lines == [f"{text} (amended: The first of January, but Xero.)" for text in (one, other)]


@pytest.mark.anyio
async def test_the_model_is_loaded_once_by_calls_that_need_it_at_once(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[str] = []

    def parse(text: str) -> Model:
        loaded.append(text[:1])
        time.sleep(0.05)  # as the real one, and other threads run meanwhile
        return real(text)

    real = model.parse
    monkeypatch.setattr(model, "parse", parse)
    model.recognizer.cache_clear()
    app._recognizer.cache_clear()
    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(anyio.to_thread.run_sync, memory.recognizer)
    assert len(loaded) == 1


@pytest.mark.parametrize(
    "asked", ["how many texts can one guy get per day", "can we ship on fridays", "how wide is the door of the hall"]
)
def test_a_question_without_a_question_mark_is_no_decision(asked: str) -> None:
    assert texts("decision", asked, "Ten at most, and none at night.", "ok", "Good.") == []


def test_a_line_that_begins_with_a_pronoun_tells_the_name_that_the_answer_gives() -> None:
    said = (
        "So the flooring. The builder, Tomasz, says either cork or vinyl.",
        "Vinyl is wipeable.",
        "His number is 07700 900482, in case I ask you for it. And he always wants texts and never calls.",
        "Saved. Texts only for Tomasz.",
    )
    lines = [item.text for item in items(*said) if item.kind in ("rule", "fact")]
    assert lines
    assert all(line.startswith("Tomasz: His number is 07700 900482") for line in lines)
    unnamed = [item.text for item in items(*said[:-1], "Saved.") if item.kind in ("rule", "fact")]
    assert not any("Tomasz" in line for line in unnamed)


def test_a_short_answer_is_told_with_the_question_that_the_agent_asked() -> None:
    lock = "The door code of the boathouse is 4471 since Monday, for the rowers only."
    asked, answer = "Please draw up the plan of the radio link for the boathouse.", "It is in AU915, sub band 2 only."
    found = items(asked, "Happy to. Which radio region is the gateway in?", answer, "Noted.")
    (fact,) = [item for item in found if item.kind == "fact"]
    assert fact.text == f"Which radio region is the gateway in? (answer: {answer})"
    assert fact.sources == (4, 5)  # `items` begins with two further messages
    assert [item.text for item in items(asked, "Happy to. What's next?", lock, "Noted.")] == [lock]
    assert [item.text for item in items(asked, "Happy to. Shall I begin with the antenna?", lock, "Noted.")] == [lock]


def test_an_answer_that_begins_with_a_pronoun_is_told_with_any_question() -> None:
    answer = "It is the Baltic 37, built in 1964 in Gdynia."
    found = items("Please draft the advert.", "Gladly. Do you know the type of the boat?", answer, "Noted.")
    assert [item.text for item in found if item.kind == "fact"] == [
        f"Do you know the type of the boat? (answer: {answer})"
    ]
