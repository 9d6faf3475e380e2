"""The tracker: counts in constant time, bounded, and the same again when read back."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from mcp_server.model import Role, ToolCall, Turn
from mcp_server.relevance.clarity_scores import MOST_CANDIDATES, MOST_ITEMS, ClarityWeights, Tracker

AT = datetime(2026, 3, 1, 9, tzinfo=UTC)
W = ClarityWeights()

said = st.sampled_from(["ClaraCore", "focus-engine", "the oven", "SOUL.md", "web_search", "gardens", "ok thanks", ""])
messages = st.lists(st.tuples(st.sampled_from(["user", "agent", "system"]), st.lists(said).map(" ".join)), max_size=40)


def heard(turns: list[tuple[Role, str]]) -> Tracker:
    tracker = Tracker()
    for role, text in turns:
        tracker.hear(role, text, AT)
    return tracker


def test_a_user_mentions_and_an_agent_refers() -> None:
    tracker = heard([("user", "ClaraCore"), ("agent", "ClaraCore is up"), ("user", "and ClaraCore now?")])
    item = tracker.items["claracore"]
    assert (item.mentions, item.references, item.last_mention, tracker.exchange) == (2, 1, 2, 2)


def test_an_agent_brings_in_nothing_by_itself() -> None:
    assert not heard([("user", "hi"), ("agent", "NewThing is here"), ("system", "OtherThing")]).items


def test_a_keyword_is_an_item_from_its_second_mention_on() -> None:
    once = heard([("user", "the oven")])
    assert not once.items
    once.hear("user", "the oven again", AT)
    assert once.items["oven"].mentions == 2


def test_what_was_silent_for_longest_goes_first() -> None:
    tracker = heard([("user", "FirstThing")])
    for number in range(MOST_ITEMS + 50):
        tracker.hear("user", f"NameX{number}", AT)
        tracker.hear("user", "SpokenOf", AT)
    assert len(tracker.items) == MOST_ITEMS
    assert "spokenof" in tracker.items
    assert {"firstthing", "namex0"}.isdisjoint(tracker.items)
    for number in range(MOST_CANDIDATES + 50):
        tracker.hear("user", f"wordy{number}", AT)
    assert len(tracker.candidates) == MOST_CANDIDATES


def test_anchors_are_laid_over_the_counts_and_change_none_of_them() -> None:
    tracker = heard([("user", "ClaraCore")])
    shown = tracker.with_anchors({"claracore": AT, "winter berth": AT})
    assert {item.id: (item.mentions, item.anchored) for item in shown.items.values()} == {
        "claracore": (1, True),
        "winter berth": (0, True),
    }
    assert not tracker.items["claracore"].anchored
    assert shown.score(shown.items["winter berth"], W).total == W.anchor_bonus
    assert shown.with_anchors({}).items["claracore"].anchored is False


def test_a_turn_counts_once_with_its_tools_and_their_files() -> None:
    tracker = Tracker()
    tracker.take(Turn(1, "user", "fix src/app.py with web_search", AT))
    made = (ToolCall("web_search", "find", files=("src/app.py",)),)
    for _ in range(2):
        tracker.take(Turn(2, "agent", "done", AT, tool_calls=made))
    assert {name: item.references for name, item in tracker.items.items()} == {"src/app.py": 1, "tool:web_search": 1}
    assert tracker.turn == 2


def test_times_are_kept_as_transcripts_keep_them() -> None:
    tracker = Tracker()
    tracker.hear("user", "ClaraCore", AT.replace(microsecond=1999))
    assert tracker.items["claracore"].created == AT.replace(microsecond=1000)
    assert Tracker.from_dict(json.loads(json.dumps(tracker.as_dict(AT)))) == tracker


@given(messages, st.integers(0, 40))
def test_a_tracker_that_was_stored_goes_on_as_if_it_had_not_been(turns: list[tuple[Role, str]], cut: int) -> None:
    whole, half = heard(turns), heard(turns[:cut])
    again = Tracker.from_dict(json.loads(json.dumps(half.as_dict(AT))))
    for role, text in turns[cut:]:
        again.hear(role, text, AT)
    assert again == whole
    assert list(again.items) == list(whole.items)


@given(messages, said, st.sets(said.map(str.lower), max_size=3))
def test_anchoring_never_lowers_a_rank(turns: list[tuple[Role, str]], name: str, others: set[str]) -> None:
    tracker = heard([*turns, ("user", "ClaraCore"), ("user", name)])
    held = dict.fromkeys(sorted(others - {""}), AT)
    for anchored in list(tracker.items):
        ranked = [item.id for item, _ in tracker.with_anchors(held).scores(W)]
        before = ranked.index(anchored) if anchored in ranked else len(ranked)  # a common word has no rank
        after = [item.id for item, _ in tracker.with_anchors({**held, anchored: AT}).scores(W)].index(anchored)
        assert after <= before


@given(messages, st.sampled_from([W, ClarityWeights(half_life=1, recency_window=0, anchor_bonus=3)]))
def test_every_score_is_the_sum_of_its_terms(turns: list[tuple[Role, str]], weights: ClarityWeights) -> None:
    for _, score in heard(turns).with_anchors({"oven": AT}).scores(weights):
        assert abs(sum(score.terms().values()) - score.total) < 1e-9
        assert score.total >= 0


def test_five_exchanges_after_a_change_of_subject_the_new_one_is_on_top() -> None:
    dice, web = "roll a die, flip a coin, count heads and tails", "FastAPI routes, the router and its middleware"
    old: list[tuple[Role, str]] = [("user", f"please {dice}"), ("agent", f"please {dice}")]
    new: list[tuple[Role, str]] = [("user", f"please {web}"), ("agent", f"please {web}")]
    tracker = heard([*old * 50, *new * 5])
    ranked = [item.id for item, _ in tracker.scores(W)]
    assert {"fastapi", "router", "middleware"} <= set(ranked[:6])
    assert not {"coin", "heads", "die"} & set(ranked), "words of more than a third of all messages are no items"


def test_only_ten_references_of_the_last_twenty_exchanges_count() -> None:
    again: list[tuple[Role, str]] = [("agent", "I restart ClaraCore")]
    talked: list[tuple[Role, str]] = [("user", "ClaraCore is down"), *again * 14]
    tracker = heard(talked)
    claracore = tracker.items["claracore"]
    assert (claracore.references, tracker.score(claracore, W).utility) == (14, 150)
    for number in range(20):
        tracker.hear("user", f"and {number}?", AT)
    assert tracker.score(tracker.items["claracore"], W).utility == 0
