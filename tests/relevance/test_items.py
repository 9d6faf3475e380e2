"""Which items of a live context the advisor judges, and the state that it stores."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from mcp_server.model import ToolCall, Turn
from mcp_server.pressure.advisor import advise, state_of
from mcp_server.relevance.advisor_items import ESTIMATES, Lexicon, items_of, short_name
from mcp_server.relevance.chunks import ChunkKind, LiveChunk, chunks_of

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


def test_what_is_cold_is_no_item_any_more() -> None:
    assert items_of([named("file", "a.py", form="cold")], {}, estimated=True) == []


def test_a_file_that_was_changed_later_than_it_was_read_counts_from_then() -> None:
    (item,) = items_of([named("file", "a.py", mtime=LATER)], {}, estimated=True)
    assert item.last_accessed == LATER


def test_names_of_skills_and_agents_are_short() -> None:
    names = ("skills/api-design/SKILL.md", "agents/backend.md", "api")
    assert [short_name(name) for name in names] == ["api-design", "backend", "api"]


def test_the_state_has_the_seeds_fields_and_no_others() -> None:
    chunks = [
        named("skill", "skills/api", tags=("api",)),
        named("file", "src/api.py", mtime=AT),
        named("agent", "agents/db", topics=("schema",)),
    ]
    items = items_of(chunks, {}, estimated=True)
    advice = advise(items, "nothing of it", 0.75, AT + timedelta(hours=3), EMPTY)
    state = state_of("abc123", advice, items, 8500, 12000, AT)
    assert list(state) == [
        "session_id",
        "updated_at",
        "total_context_tokens",
        "context_budget",
        "items",
        "pruning_recommendations",
    ]
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
