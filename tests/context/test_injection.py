"""What is pushed: the policy, on values."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from mcp_server.context.exclusions import BY_PROGRAM, as_page, why_out
from mcp_server.context.push_policy import LONGEST, NO_OPEN_ITEM, Judged, choose, visible_line, why_nothing
from mcp_server.context.window_text import NothingAsked, asks_nothing, fingerprints, subject_words, was_sent
from mcp_server.model import GateSignal, Hit
from mcp_server.text.passages import own_text
from mcp_server.understanding.model import Logistic, Model, recognizer
from tests.context.states import knowledge, passage

SIGNAL = GateSignal(True, "all", 0.5, 0.445)
PATH = "raw/conversations/2026/05/01/0900-ses_old-tea.md"
PAGE = "knowledge/projects/tea/context.md"
PROMPT = "Which tea does Ana drink at the office?"


def model(memory: float = 0.8, open_items: float = 0.1) -> Model:
    """The recognizer, for which every prompt needs the memory, and open items, with these probabilities."""
    logits = tuple(math.log(one / (1 - one)) for one in (memory, open_items))
    return replace(recognizer(), prompts=Logistic(("memory", "open_items"), logits, {}))


def hit(text: str, score: float, turn: int = 7, cosine: float = 0.5, about: float = 0.6, **more: Any) -> Hit:
    made = passage(text, start=turn, unit=f"{PATH}#{turn}", **more)
    return Hit(made, score, {"keywords": score}, cosine, about=about)


def line(
    text: str,
    score: float,
    number: int = 9,
    section: str = "Key Decisions",
    cosine: float = 0.5,
    about: float | None = 0.6,
) -> Hit:
    made = knowledge(
        f"- 2026-05-01: {text} [src: {PATH}#3]", PAGE, start=number, title=f"tea › {section}", category="project"
    )
    return Hit(made, score, {"keywords": score}, cosine, about=about)


def chosen(lines: list[Hit], passages: list[Hit], message: str = PROMPT, **more: Any) -> list[str]:
    sent, out = more.get("sent", frozenset()), more.get("out", {})
    found = choose(message, model(), lines, passages, SIGNAL, sent, out, more.get("allowance", 240))
    return [own_text(one.hit.passage) for one in found if one.included]


def test_a_line_that_means_what_the_prompt_asks_comes_first_without_a_common_word() -> None:
    far = line("The red door was painted last year.", 0.5, about=0.0)
    near = line("We close at six every day.", 0.5, number=10, about=0.5)
    unread = line("The lamp is red.", 0.5, number=11, about=None)
    found = choose("Is the shop open on Monday evening?", model(), [far, near, unread], [], SIGNAL, (), {}, 240)
    assert [one.hit for one in found] == [near, unread, far]


@pytest.mark.parametrize(
    ("prompt", "why"),
    [
        ("", "empty"),
        ("  \n", "empty"),
        ("/clear", "command"),
        ("/compact keep the plan", "command"),
        ("/plugin:cmd x", "command"),
        ("!git status", "shell"),
        ("# buy milk", "note"),
        ("<command-name>/clear</command-name>", "client"),
        ("<task-notification>done</task-notification>", "client"),
        ("ok", "names no subject"),
        ("Thanks!", "names no subject"),
        ("👍", "names no subject"),
        ("continue", "names no subject"),
        ("yes please, go ahead", "names no subject"),
        ("yep, ship it", "names no subject"),
        ("alles klar, mach das", "names no subject"),
        ("2", "names no subject"),
        ("hvala", "names no subject"),
    ],
)
def test_what_asks_nothing_gets_nothing(prompt: str, why: str) -> None:
    assert why in str(asks_nothing(prompt))


@pytest.mark.parametrize(
    "prompt",
    [
        "why does the login loop?",
        "/etc/hosts is wrong",
        "#123 fails on CI",
        "# Task\n\nRewrite the parser.",
        "## Plan for the parser",
        "koji port koristi baza?",
        "ok, berth?",
        "yes, use Postgres for the ledger",
    ],
)
def test_what_is_about_something_may_get_something(prompt: str) -> None:
    assert asks_nothing(prompt) is None
    assert subject_words(prompt)


@pytest.mark.parametrize(
    ("prompt", "gets_nothing"), [("what must I still do?", False), ("was muss ich noch machen?", False), ("ok", True)]
)
def test_a_prompt_without_a_subject_may_ask_for_open_items(prompt: str, gets_nothing: bool) -> None:
    assert asks_nothing(prompt) is NothingAsked.NO_SUBJECT
    assert (why_nothing(prompt, lambda: recognizer().needs(prompt)) is not None) == gets_nothing


TEA = "Ana drinks green tea at the office, never black."


def test_a_passage_that_is_worth_its_tokens_goes_in() -> None:
    assert chosen([], [hit(TEA, 0.7)]) == [TEA]


def test_a_passage_that_is_worth_less_than_its_tokens_stays_out_and_the_reason_names_both() -> None:
    text = "Something about the weather in a long sentence that says nothing of interest here. " * 4
    weak = hit(text, 0.02, cosine=0.0)
    better = [hit(f"Ana drinks green tea, pot {number}, at the office.", 0.7, number) for number in range(20, 29)]
    found = choose(PROMPT, model(), [], [*better, weak], SIGNAL, frozenset(), {}, 240)
    assert not found[-1].included
    assert "hardly needed for its" in found[-1].reason


def test_the_best_go_in_first_while_the_allowance_lasts() -> None:
    good, better = hit("Ana has a blue pot for the tea.", 0.4, turn=20), hit(TEA, 0.8, turn=10)
    assert chosen([], [better, good], allowance=24) == [TEA]
    assert chosen([], [better, good], allowance=0) == []


def test_an_answer_goes_out_again_if_the_line_that_quotes_it_with_the_proposal_goes_in() -> None:
    answer = hit("Green tea is fine at the office, but only from the blue tin of Mira.", 0.9, about=0.9)
    line_of = line(
        "I would buy black tea for Ana at the office. "
        "(amended: Green tea is fine at the office, but only from the blue tin of Mira.)",
        0.5,
        about=0.5,
    )
    (only,) = chosen([line_of], [answer], allowance=60)
    assert only.startswith("- 2026-05-01: I would buy black tea")
    (alone,) = chosen([], [answer], allowance=60)
    assert alone.startswith("Green tea")


def test_a_line_of_the_page_goes_in_and_the_turn_that_says_the_same_does_not() -> None:
    said = line(TEA, 0.7)
    assert chosen([said], [hit(TEA, 0.2)]) == [own_text(said.passage)]


def test_what_was_replaced_is_not_pushed() -> None:
    assert chosen([line(TEA, 0.9, section="Replaced decisions")], []) == []


def test_what_is_done_is_pushed_as_such_but_not_with_a_prompt_for_open_items() -> None:
    done = line(f"{TEA} I must buy some. (done 2026-05-02)", 0.9, section="Closed items")
    assert chosen([done], []) == [own_text(done.passage)]
    assert "(done 2026-05-02)" in own_text(done.passage)
    (left,) = choose("What is still open?", model(open_items=0.9), [done], [], SIGNAL, frozenset(), {}, 240)
    assert (left.included, left.reason) == (False, "done")


def test_what_the_window_holds_is_not_sent_again() -> None:
    said = hit(f"{TEA}\nShe likes it cold.", 0.7)
    sent = frozenset(fingerprints(f"user: {TEA}\n She likes it cold."))
    assert chosen([], [said], sent=sent) == []
    assert chosen([], [said], sent=frozenset(fingerprints(TEA))) == [own_text(said.passage)]


def test_a_line_that_the_brief_shows_without_its_date_counts_as_sent() -> None:
    assert chosen([line(TEA, 0.9)], [], sent=frozenset(fingerprints(f"Decided:\n- {TEA}"))) == []


def test_a_line_that_was_cut_counts_as_sent_by_its_first_words() -> None:
    shown = "- Ana drinks green tea at the office, never…"
    assert chosen([line(TEA, 0.9)], [], sent=frozenset(fingerprints(shown))) == []


def test_a_turn_that_a_sent_line_quotes_as_an_answer_is_not_sent_again() -> None:
    answered = hit(TEA, 0.7)
    sent = frozenset(fingerprints(f"Decided:\n- Which tea do we serve? (answer: {TEA})"))
    assert chosen([], [answered], sent=sent) == []


def test_nothing_goes_in_unless_one_candidate_is_likely_to_be_needed() -> None:
    """A dozen lines that are each a little likely are what a prompt of another project finds."""
    weak = [
        line(f"The {word} harbor fee is due.", 0.1, number, cosine=0.15, about=0.08)
        for number, word in enumerate("abcdefgh")
    ]
    found = choose(PROMPT, model(), weak, [], GateSignal(False, "all", 0.2, 0.4), frozenset(), {}, 240)
    assert not any(one.included for one in found)
    assert "nothing seems to be needed" in found[0].reason


def test_a_turn_that_states_something_and_ends_with_a_question_goes_in() -> None:
    text = "Ana drinks green tea at the office, never black. And you?"
    assert chosen([], [hit(text, 0.7)]) == [text]


@pytest.mark.parametrize(
    ("text", "more"),
    [
        ("Which tea does Ana like best, green or black?", {}),
        ("Tea that Ana would drink at the office.", {}),
        ("Oolong, then.", {}),
        (TEA, {"role": "system"}),
        (TEA, {"category": "identity"}),
    ],
)
def test_a_passage_that_tells_nothing_stays_out(text: str, more: dict[str, Any]) -> None:
    assert chosen([], [hit(text, 0.9, **more)]) == []


def test_what_a_program_wrote_under_the_users_name_is_not_pushed() -> None:
    said = ("<system-reminder>The team decided that Ana drinks sencha tea.</system-reminder>", "Ana drinks sencha tea.")
    turns = [passage(text, start=number, role="user", category="conversation") for number, text in enumerate(said, 1)]
    assert why_out(turns, frozenset(), lambda path: as_page(path, ""), recognizer()) == [BY_PROGRAM, ""]


def test_what_is_ruled_out_stays_out_whatever_it_scores() -> None:
    found = choose(PROMPT, model(), [], [hit(TEA, 0.9)], SIGNAL, frozenset(), {f"{PATH}:7": "no longer so"}, 240)
    assert [(one.included, one.reason) for one in found] == [(False, "no longer so")]


def test_a_prompt_of_a_kind_that_needs_no_memory_makes_every_candidate_worth_less() -> None:
    [usual] = choose(PROMPT, model(), [], [hit(TEA, 0.5)], SIGNAL, frozenset(), {}, 240)
    [general] = choose(PROMPT, model(memory=0.1), [], [hit(TEA, 0.5)], SIGNAL, frozenset(), {}, 240)
    assert general.worth < usual.worth


def test_a_prompt_that_asks_what_is_open_makes_likelier_what_may_be_an_open_item() -> None:
    def judged(open_items: float, text: str, section: str = "Facts") -> Judged:
        lines = [line(text, 0.1, section=section, cosine=0.1, about=0.1)]
        prompt = "What is left to do for the office?"
        [found] = choose(prompt, model(open_items=open_items), lines, [], SIGNAL, frozenset(), {}, 240)
        return found

    lease, lamp = "Send the lease to Petra.", "The lamp is broken, somebody has to repair it."
    assert judged(0.9, lease, "Open items").worth > 2 * judged(0.2, lease, "Open items").worth
    assert judged(0.9, lamp).worth > 2 * judged(0.2, lamp).worth, "a problem that was told as a fact"
    assert judged(0.9, "Ana likes green tea.").reason == NO_OPEN_ITEM
    assert judged(0.9, "The office is in the old mill.").reason != NO_OPEN_ITEM, "the prompt is about it"


def test_headings_and_labels_do_not_count_as_what_was_sent() -> None:
    section = knowledge("## Preferences\n\n- Green tea.\n- Cold water.")
    sent = frozenset(fingerprints("<!-- memory: x -->\n# Memory\n\n- Green tea.\n- Cold water."))
    assert was_sent(section.text, sent)
    assert not was_sent("- Green tea.\n- Warm water.", sent)
    assert was_sent("# Only a heading", frozenset())


def test_the_visible_line_is_short() -> None:
    assert visible_line(2, 310) == "memory: 2 passages, 310 tokens"
    assert visible_line(1, 1310) == "memory: 1 passage, 1,310 tokens"
    assert visible_line(0, 870, "brief") == "memory: brief, 870 tokens"
    assert LONGEST < 10_000
