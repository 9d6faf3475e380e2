"""Which items of a live context the advisor judges, and the state that it stores."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mcp_server.model import Role, ToolCall, Turn
from mcp_server.pressure.advisor import advise, state_of
from mcp_server.relevance.advisor_items import ESTIMATES, Lexicon, items_of
from mcp_server.relevance.chunks import ChunkKind, LiveChunk, chunks_of
from mcp_server.relevance.clarity_scores import MOST_CANDIDATES, MOST_ITEMS, Tracker
from mcp_server.settings import ClarityScoring

AT = datetime(2026, 1, 18, 10, 30, tzinfo=UTC)
LATER = AT + timedelta(minutes=9)
EMPTY = Lexicon({}, {}, frozenset())


def named(kind: ChunkKind, name: str, **more: Any) -> LiveChunk:
    return LiveChunk(f"c-{name}", kind, 1, 1000, 300, AT, name=name, accessed=AT, **more)


def read(number: int, at: datetime, *files: str, result: str = "") -> Turn:
    return Turn(number, "agent", "", at, tool_calls=(ToolCall("Read", "x", result, files),))


def live(*turns: Turn) -> list[LiveChunk]:
    return [chunk for turn in turns for chunk in chunks_of("s", turn, lambda text: len(text.split()))]


def test_what_a_client_names_is_an_item_and_what_is_said_is_none() -> None:
    said = LiveChunk("c", "message", 1, 0, 50, AT)
    items = items_of(
        [said, named("skill", "skills/api-design/SKILL.md"), named("agent", "agents/ana.md")], {}, estimated=True
    )
    assert [item.id for item in items] == ["skill:api-design", "agent:ana"]


def test_files_that_tools_read_count_once_with_every_access() -> None:
    turns = [read(1, AT, "src/a.py", result="one two"), read(2, LATER, "./src/a.py", "src/b.py", result="one two")]
    first, second = items_of(live(*turns), {turn.number: turn for turn in turns}, estimated=False)
    assert (first.path, first.accesses, first.loaded, first.last_accessed) == ("src/a.py", 2, AT, LATER)
    assert len(first.chunks) == 2
    assert (second.path, second.accesses) == ("src/b.py", 1)


def test_a_file_whose_text_we_never_saw_counts_with_the_seeds_estimate_where_the_client_holds_it() -> None:
    turn = read(1, AT, "src/a.py")
    (inside,) = items_of(live(turn), {1: turn}, estimated=True)
    (ours,) = items_of(live(turn), {1: turn}, estimated=False)
    assert inside.tokens == ESTIMATES["file"]
    assert ours.tokens < 5


def test_a_file_counts_from_its_last_change_or_read_and_a_cold_file_does_not_count() -> None:
    assert items_of([named("file", "a.py", form="cold")], {}, estimated=True) == []
    (item,) = items_of([named("file", "a.py", mtime=LATER)], {}, estimated=True)
    assert item.last_accessed == LATER


def test_the_state_has_the_seeds_fields_and_no_others() -> None:
    chunks = [
        named("skill", "skills/api", tags=("api",)),
        named("file", "src/api.py", mtime=AT),
        named("agent", "agents/db", topics=("schema",)),
    ]
    items = items_of(chunks, {}, estimated=True)
    advice = advise(items, "nothing of it", 0.75, AT + timedelta(hours=3), EMPTY)
    state = state_of("abc123", advice, items, 8500, 12000, AT)
    fields = "session_id updated_at total_context_tokens context_budget items pruning_recommendations"
    assert list(state) == fields.split()
    skill, file, agent = state["items"]
    common = ["id", "type", "path", "loaded_at", "last_accessed", "access_count", "estimated_tokens", "tags"]
    assert list(skill) == [*common, "score"]
    assert list(file) == [*common, "mtime", "score"]
    assert list(agent) == [*common, "agent_id", "completed_at", "topics", "score"]
    assert (skill["loaded_at"], skill["score"]) == (
        "2026-01-18T10:30:00Z",
        {"recency": 0, "frequency": 2, "relevance": 0, "total": 2},
    )
    (recommended,) = state["pruning_recommendations"]
    assert list(recommended) == ["id", "score", "reason", "estimated_savings"]
    assert recommended["estimated_savings"] == 300


def test_from_ninety_five_percent_on_items_stand_there_without_a_score() -> None:
    items = items_of([named("file", "a.py")], {}, estimated=True)
    state = state_of("s", advise(items, "x", 0.96, AT, EMPTY), items, 96, 100, AT)
    assert "score" not in state["items"][0]
    assert state["pruning_recommendations"] == []


NOW = datetime(2026, 3, 1, 9, tzinfo=UTC)
W = ClarityScoring()
said = st.sampled_from(["ClaraCore", "focus-engine", "the oven", "SOUL.md", "web_search", "gardens", "ok thanks", ""])
messages = st.lists(st.tuples(st.sampled_from(["user", "agent", "system"]), st.lists(said).map(" ".join)), max_size=40)


def heard(turns: list[tuple[Role, str]]) -> Tracker:
    tracker = Tracker()
    for role, text in turns:
        tracker.hear(role, text, NOW)
    return tracker


def test_words_of_a_user_are_mentions_and_words_of_an_agent_add_no_items() -> None:
    tracker = heard([("user", "ClaraCore"), ("agent", "ClaraCore is up"), ("user", "and ClaraCore now?")])
    item = tracker.items["claracore"]
    assert (item.mentions, item.references, item.last_mention, tracker.exchange) == (2, 1, 2, 2)
    assert not heard([("user", "hi"), ("agent", "NewThing is here"), ("system", "OtherThing")]).items


def test_a_keyword_is_an_item_from_its_second_mention_on() -> None:
    once = heard([("user", "the oven")])
    assert not once.items
    once.hear("user", "the oven again", NOW)
    assert once.items["oven"].mentions == 2


def test_what_was_silent_for_longest_goes_first() -> None:
    tracker = heard([("user", "FirstThing")])
    for number in range(MOST_ITEMS + 50):
        tracker.hear("user", f"NameX{number}", NOW)
        tracker.hear("user", "SpokenOf", NOW)
    assert len(tracker.items) == MOST_ITEMS
    assert "spokenof" in tracker.items
    assert {"firstthing", "namex0"}.isdisjoint(tracker.items)
    for number in range(MOST_CANDIDATES + 50):
        tracker.hear("user", f"wordy{number}", NOW)
    assert len(tracker.candidates) == MOST_CANDIDATES


def test_anchors_are_laid_over_the_counts_and_change_none_of_them() -> None:
    tracker = heard([("user", "ClaraCore")])
    shown = tracker.with_anchors({"claracore": NOW, "winter berth": NOW})
    assert {item.id: (item.mentions, item.anchored) for item in shown.items.values()} == {
        "claracore": (1, True),
        "winter berth": (0, True),
    }
    assert not tracker.items["claracore"].anchored
    assert shown.score(shown.items["winter berth"], W).total == W.anchor_bonus
    assert shown.with_anchors({}).items["claracore"].anchored is False


def test_a_turn_counts_once_with_its_tools_and_their_files() -> None:
    tracker = Tracker()
    tracker.take(Turn(1, "user", "fix src/app.py with web_search", NOW))
    made = (ToolCall("web_search", "find", files=("src/app.py",)),)
    for _ in range(2):
        tracker.take(Turn(2, "agent", "done", NOW, tool_calls=made))
    assert {name: item.references for name, item in tracker.items.items()} == {"src/app.py": 1, "tool:web_search": 1}
    assert tracker.turn == 2


def test_times_are_kept_as_transcripts_keep_them() -> None:
    tracker = Tracker()
    tracker.hear("user", "ClaraCore", NOW.replace(microsecond=1999))
    assert tracker.items["claracore"].created == NOW.replace(microsecond=1000)
    assert Tracker.from_dict(json.loads(json.dumps(tracker.as_dict(NOW)))) == tracker


@given(messages, st.integers(0, 40))
def test_a_tracker_that_was_stored_goes_on_as_if_it_had_not_been(turns: list[tuple[Role, str]], cut: int) -> None:
    whole, half = heard(turns), heard(turns[:cut])
    again = Tracker.from_dict(json.loads(json.dumps(half.as_dict(NOW))))
    for role, text in turns[cut:]:
        again.hear(role, text, NOW)
    assert again == whole
    assert list(again.items) == list(whole.items)


@given(messages, said, st.sets(said.map(str.lower), max_size=3))
def test_anchoring_never_lowers_a_rank(turns: list[tuple[Role, str]], name: str, others: set[str]) -> None:
    tracker = heard([*turns, ("user", "ClaraCore"), ("user", name)])
    held = dict.fromkeys(sorted(others - {""}), NOW)
    for anchored in list(tracker.items):
        ranked = [item.id for item, _ in tracker.with_anchors(held).scores(W)]
        before = ranked.index(anchored) if anchored in ranked else len(ranked)  # a common word has no rank
        after = [item.id for item, _ in tracker.with_anchors({**held, anchored: NOW}).scores(W)].index(anchored)
        assert after <= before


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
        tracker.hear("user", f"and {number}?", NOW)
    assert tracker.score(tracker.items["claracore"], W).utility == 0
