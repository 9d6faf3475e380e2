"""The tracker: counts in constant time, bounded, and the same again when read back."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from mcp_server.core.clarity.tracker import MOST_CANDIDATES, MOST_ITEMS, Tracker
from mcp_server.core.model import Role
from mcp_server.core.scoring.clarity import ClarityWeights

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


def test_what_was_silent_for_longest_goes_first_and_anchored_items_stay() -> None:
    tracker = heard([("user", "FirstThing")])
    tracker.anchor("FirstThing", True, AT)
    for number in range(MOST_ITEMS + 50):
        tracker.hear("user", f"NameX{number}", AT)
    assert len(tracker.items) == MOST_ITEMS
    assert "firstthing" in tracker.items
    assert "namex0" not in tracker.items
    for number in range(MOST_CANDIDATES + 50):
        tracker.hear("user", f"wordy{number}", AT)
    assert len(tracker.candidates) == MOST_CANDIDATES


def test_anchoring_takes_effect_once_and_can_be_taken_back() -> None:
    tracker = heard([("user", "ClaraCore")])
    assert tracker.anchor("claracore", True, AT)
    assert not tracker.anchor("ClaraCore", True, AT)
    assert tracker.anchor("claracore", False, AT)
    assert not tracker.anchor("unknown", False, AT)


@given(messages, st.integers(0, 40))
def test_a_tracker_that_was_stored_goes_on_as_if_it_had_not_been(turns: list[tuple[Role, str]], cut: int) -> None:
    whole, half = heard(turns), heard(turns[:cut])
    again = Tracker.from_dict(json.loads(json.dumps(half.as_dict(AT))))
    for role, text in turns[cut:]:
        again.hear(role, text, AT)
    assert again == whole
    assert list(again.items) == list(whole.items)


@given(messages, said)
def test_anchoring_never_lowers_a_rank(turns: list[tuple[Role, str]], name: str) -> None:
    tracker = heard([*turns, ("user", "ClaraCore")])
    before = [item.id for item, _ in tracker.scores(W)].index("claracore")
    tracker.anchor("claracore", True, AT)
    assert [item.id for item, _ in tracker.scores(W)].index("claracore") <= before
