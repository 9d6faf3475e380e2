"""What is pushed: the policy, on values."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_server.core.injection import (
    LONGEST,
    asks_nothing,
    choose,
    fingerprints,
    subject_words,
    visible_line,
    was_sent,
)
from mcp_server.core.model import GateSignal, Hit
from tests.core.compiler.states import knowledge, passage

OPEN = GateSignal(True, "all", 0.7, 0.445)
CLOSED = GateSignal(False, "all", 0.2, 0.445)
PATH = "raw/conversations/2026/05/01/0900-ses_old-tea.md"


def hit(text: str, score: float, turn: int = 7, **more: Any) -> Hit:
    made = passage(text, start=turn, unit=f"{PATH}#{turn}", **more)
    return Hit(made, score, {"keywords": score})


def background(score: float = 0.1) -> list[Hit]:
    """Eleven other hits, so that there is something to stand out from."""
    return [hit(f"Something else, number {n}, of no concern.", score, turn=100 + 2 * n) for n in range(11)]


def judged(hits: list[Hit], own: list[float], message: str = "Which tea does Ana drink?", **more: Any) -> list[str]:
    alone = own + [0.2] * (len(hits) - len(own))
    chosen = choose(message, hits, alone, more.get("gate", OPEN), more.get("sent", frozenset()))
    return [one.id for one in chosen if one.included]


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
        ("ok", "about anything"),
        ("Thanks!", "about anything"),
        ("👍", "about anything"),
        ("continue", "about anything"),
        ("yes please, go ahead", "about anything"),
        ("2", "about anything"),
        ("hvala", "about anything"),
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
    ],
)
def test_what_is_about_something_may_get_something(prompt: str) -> None:
    assert asks_nothing(prompt) is None
    assert subject_words(prompt)


def test_a_passage_with_evidence_that_stands_out_goes_in() -> None:
    best = hit("Ana drinks green tea, never black.", 0.6)
    assert judged([best, *background()], [0.6]) == [f"{PATH}:7-9"]


@pytest.mark.parametrize(
    ("score", "own", "others", "why"),
    [
        (0.6, 0.46, 0.1, "too little evidence"),
        (0.41, 0.6, 0.1, "not relevant enough"),
        (0.6, 0.6, 0.5, "does not stand out"),
    ],
)
def test_each_condition_keeps_out_by_itself(score: float, own: float, others: float, why: str) -> None:
    hits = [hit("Ana drinks green tea, never black.", score), *background(others)]
    first = choose("Which tea does Ana drink?", hits, [own] + [0.2] * 11, OPEN, frozenset())[0]
    assert not first.included
    assert why in first.reason


def test_a_closed_gate_keeps_everything_out() -> None:
    hits = [hit("Ana drinks green tea, never black.", 0.9), *background()]
    assert judged(hits, [0.9], gate=CLOSED) == []


def test_the_tail_of_the_ranking_and_the_fourth_best_stay_out() -> None:
    good = [hit(f"Ana drinks green tea, her {n}. sort.", 0.7, turn=10 * n) for n in range(1, 5)]
    behind = hit("Ana has a tea pot in blue.", 0.55, turn=50)
    chosen = judged([*good, behind, *background()[:7]], [0.7] * 5)
    assert chosen == [f"{PATH}:{10 * n}-{10 * n + 2}" for n in (1, 2, 3)]


def test_what_the_window_holds_is_not_sent_again() -> None:
    best = hit("Ana drinks green tea, never black.\nShe likes it cold.", 0.6)
    sent = frozenset(fingerprints("user: Ana drinks green tea, never black.\n She likes it cold."))
    assert judged([best, *background()], [0.6], sent=sent) == []
    half = frozenset(fingerprints("Ana drinks green tea, never black."))
    assert judged([best, *background()], [0.6], sent=half) == [f"{PATH}:7-9"]


@pytest.mark.parametrize(
    ("text", "more"),
    [
        ("Which tea does Ana like best, green or black?", {}),
        ("Tea that Ana would drink.", {}),
        ("Ana drinks green tea, never black.", {"role": "system"}),
        ("Ana drinks green tea, never black.", {"category": "identity"}),
    ],
)
def test_a_passage_that_tells_nothing_stays_out(text: str, more: dict[str, Any]) -> None:
    assert judged([hit(text, 0.9, **more), *background()], [0.9]) == []


def test_an_answer_takes_over_the_evidence_of_its_question() -> None:
    question = hit("Which tea does Ana drink, do you know?", 0.7, turn=7)
    answer = hit("Green, never black.", 0.6, turn=8)
    assert judged([question, answer, *background()[:10]], [0.7, 0.46]) == [f"{PATH}:8-10"]
    assert judged([question, answer, *background()[:10]], [0.7, 0.3]) == []


def test_what_an_agent_answered_comes_with_what_it_answers_if_it_is_short() -> None:
    problem = hit("Tea for Ana: the kettle fails with a loud bang.", 0.7, turn=7, role="user")
    solution = hit("The seal was broken, I replaced it.", 0.3, turn=8, role="agent")
    hits = [problem, *background()[:8], solution]
    own = [0.7, *[0.2] * 8, 0.4]
    assert judged(hits, own) == [f"{PATH}:7-9", f"{PATH}:8-10"]
    assert judged(hits, own, sent=frozenset(fingerprints(solution.passage.text))) == [f"{PATH}:7-9"]
    part = Hit(solution.passage, 0.3, {}, whole=False)
    assert judged([*hits[:-1], part], own) == [f"{PATH}:7-9"]
    assert judged(hits, [*own[:-1], 0.2]) == [f"{PATH}:7-9"]


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
