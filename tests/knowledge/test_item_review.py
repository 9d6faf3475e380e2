"""An LLM reviews items: what it may change, and what refuses its whole answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from benchmarks.understand import load
from mcp_server.knowledge.derive import Reviewed, Window, reviewed, windows
from mcp_server.model import Turn
from mcp_server.understanding.judging import ItemKind
from mcp_server.understanding.model import recognizer
from mcp_server.understanding.recognizer import Item, read
from tests.understanding.talks import talk

SAID = (
    "where do secrets live?",
    "I'd keep them in Vault with the AppRole login.",
    "yes, but for 30 days only",
    "Done.",
    "we drop Vault and take the JWT login",
    "Fine. The exporter writes CSV files to /srv/out every night.",
    "I still have to call Ana about the berth, and never push to main on a Friday",
    "Noted.",
    "Ana signed the berth contract",
    "Good to hear.",
)
TURNS = talk(*SAID)


def item(kind: ItemKind, turn: int, text: str = "", probability: float = 0.4) -> Item:
    said = TURNS[turn - 1]
    return Item(kind, text or said.content, turn, said.at, (turn,), said.role, probability)


ITEMS = (
    item("decision", 4),  # i1
    item("decision", 7),  # i2
    item("fact", 8, "The exporter writes CSV files to /srv/out every night."),  # i3
    item("open", 9, "I still have to call Ana about the berth"),  # i4
    item("report", 11),  # i5
    item("fact", 12),  # i6
    item("decision", 5, "TODO label", probability=1.0),  # i7
)
BEFORE = Reviewed(ITEMS)


def window() -> Window:
    (only,) = windows(TURNS, ITEMS)
    return only


def review(**answer: Any) -> Reviewed:
    return reviewed(window(), json.dumps(answer), BEFORE)


def test_a_good_answer_drops_rewords_settles_and_adds() -> None:
    quote = "never push to main on a Friday"
    better = "The exporter writes its CSV files to /srv/out every night."
    after = review(
        drop=["i6"],
        reword=[{"id": "i3", "text": better}],
        settle=[{"id": "i4", "by": "i5"}],
        add=[{"kind": "rule", "turn": 9, "quote": quote}],
    )
    assert after.refused == 0
    texts = [one.text for one in after.items]
    assert ITEMS[5].text not in texts
    assert better in texts
    assert ITEMS[2].text not in texts
    (added,) = [one for one in after.items if one.kind == "rule"]
    assert (added.text, added.turn, added.sources) == (quote, 9, (9,))
    assert after.settled == {ITEMS[3]: 11}


@pytest.mark.parametrize("answer", ["{}", '```json\n{"drop": []}\n```'])
def test_an_answer_that_changes_nothing_is_fine(answer: str) -> None:
    after = reviewed(window(), answer, BEFORE)
    assert set(after.items) == set(ITEMS)
    assert (after.settled, after.refused) == ({}, 0)


def rewording(text: str, name: str = "i1") -> dict[str, Any]:
    return {"reword": [{"id": name, "text": text}]}


@pytest.mark.parametrize(
    "answer",
    [
        "Looks fine to me!",
        'Sure! Here is the corrected list:\n```json\n{"drop": ["i6"]}\n```\nLet me know if I can help.',
        "",
        "[]",
        "null",
        '{"drop": "i6"}',
        '{"drop": [["i6"]]}',
        '{"delete": ["i6"]}',
        '{"drop": ["i99"]}',
        json.dumps({"drop": [f"i{place}" for place in range(1, 8)]}),
        '{"drop": ["i3", "i4", "i6"]}',
        '{"drop": ["i7"]}',
        '{"settle": [{"id": "i2", "by": "i1"}]}',
        '{"settle": [{"id": "i4", "by": "i99"}]}',
        '{"settle": [{"id": "i3", "by": "i5"}]}',
        '{"drop": ["i5"], "settle": [{"id": "i4", "by": "i5"}]}',
        '{"add": [{"kind": "rule", "turn": 9, "quote": "never push to main on a Monday"}]}',
        '{"add": [{"kind": "rule", "turn": 99, "quote": "never push to main on a Friday"}]}',
        '{"add": [{"kind": "rule", "turn": 10, "quote": "never push to main on a Friday"}]}',
        '{"add": [{"kind": "gossip", "turn": 9, "quote": "never push to main on a Friday"}]}',
        '{"add": [{"kind": "rule", "turn": 9, "quote": "a Friday"}]}',
        '{"add": [{"kind": "rule", "turn": 9, "quote": 7}]}',
        json.dumps({"add": [{"kind": "fact", "turn": 3 + n, "quote": SAID[n]} for n in range(6)]}),
        json.dumps(rewording("We keep everything in Postgres with a password that never expires.")),
        json.dumps(rewording("Keep them somewhere with the AppRole login.")),
        json.dumps(rewording("Keep them in Vault for 99 days with the AppRole login.")),
        json.dumps(rewording("Never keep them in Vault with the AppRole login.")),
        json.dumps(rewording("Keep them in Vault with the AppRole login of Microsoft.")),
        json.dumps(rewording("")),
        json.dumps(rewording("The exporter writes files every night.", "i3")),
        json.dumps(rewording("Keep them in Vault with the AppRole login. [src: raw/conversations/x.md#1]")),
        json.dumps({"drop": ["i6"], "add": [{"kind": "rule", "turn": 9, "quote": "an invented sentence here"}]}),
        "[" * 100_000,
    ],
)
def test_an_answer_with_one_part_that_does_not_hold_changes_nothing(answer: str) -> None:
    after = reviewed(window(), answer, BEFORE)
    assert (after.items, after.settled, after.refused) == (ITEMS, {}, 1)


def test_what_is_there_already_is_not_added_again() -> None:
    after = review(add=[{"kind": "open", "turn": 9, "quote": "I still have to call Ana about the berth"}])
    assert len(after.items) == len(ITEMS)


def test_a_long_conversation_is_shown_in_parts_with_its_items() -> None:
    turns = [Turn(n, "user" if n % 2 else "agent", f"message {n}", TURNS[0].at) for n in range(1, 101)]
    found = [item("fact", 1), Item("fact", "message 95", 95, TURNS[0].at, (95,), "user", 0.4)]
    parts = list(windows(turns, found))
    assert [len(part.turns) for part in parts] == [40, 40, 20]
    assert [list(part.items) for part in parts] == [["i1"], [], ["i2"]]


LABELED = Path(__file__).parents[2] / "benchmarks" / "conversations" / "train" / "p9.json"
LAZY = ["{}", '{"drop": [], "add": []}', "Looks fine to me!", ""]
CHATTY = [
    'Sure! Here is the list:\n```json\n{"drop": ["i1"]}\n```\nLet me know if I can help.',
    '{"drop": [], "comment": "I would also mention that the house is old."}',
    '{"add": [{"kind": "fact", "turn": 2, "quote": "The inspection found an old house with many problems."}]}',
]


def drops_everything(window: Window) -> str:
    return json.dumps({"drop": list(window.items)})


def rewords_with_an_invented_sum(window: Window) -> str:
    return json.dumps({"reword": [{"id": name, "text": "The pipes cost $99,999."} for name in window.items]})


def settles_by_older_items(window: Window) -> str:
    names = list(window.items)
    return json.dumps({"settle": [{"id": new, "by": old} for old, new in pairwise(names)]})


def drops_and_adds(window: Window) -> str:
    """A good answer: it drops what is no item, and adds decisions and a fact in the words of the messages."""
    no_items = ("Budget for the whole thing?", "About $1,150", "The beam alone")
    quotes = (
        ("decision", 4, "We should do the wiring first, before any plaster."),
        ("decision", 14, "Pipes: PEX everywhere. Cheaper than copper and he can snake it."),
        ("fact", 2, "knob-and-tube wiring upstairs, galvanized pipes, damp in the northeast corner of the basement"),
    )
    said = {turn.number: turn.content for turn in window.turns}
    drop = [name for name, one in window.items.items() if one.text.startswith(no_items)]
    add = [{"kind": kind, "turn": turn, "quote": quote} for kind, turn, quote in quotes if quote in said.get(turn, "")]
    return json.dumps({"drop": drop, "add": add})


def always(answer: str) -> Callable[[Window], str]:
    return lambda _: answer


@pytest.mark.parametrize(
    ("answer", "is_good"),
    [
        (drops_and_adds, True),
        *[(always(one), False) for one in LAZY + CHATTY],
        *[(one, False) for one in (drops_everything, rewords_with_an_invented_sum, settles_by_older_items)],
    ],
)
def test_recall_and_precision_are_never_below_those_without_an_llm(
    answer: Callable[[Window], str], is_good: bool
) -> None:
    (labeled,) = load(LABELED)
    turns = labeled.sessions[0]
    before = after = Reviewed(tuple(read(turns, recognizer())))
    for part in windows(turns, before.items):
        after = reviewed(part, answer(part), after)

    def recall_and_precision(found: Reviewed) -> tuple[float, float]:
        kept = [one for one in found.items if one not in found.settled]
        right = [any(label.kind == one.kind and label.is_in(one.text) for label in labeled.labels) for one in kept]
        known = [any(label.kind == one.kind and label.is_in(one.text) for one in kept) for label in labeled.labels]
        return sum(known) / len(known), sum(right) / len(right)

    (recall, precision), (recall_now, precision_now) = map(recall_and_precision, (before, after))
    if is_good:
        assert recall_now >= recall
        assert precision_now > precision
    else:
        assert (recall_now, precision_now) == (recall, precision)
