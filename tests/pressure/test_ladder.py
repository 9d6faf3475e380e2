"""The ladder: what goes, in which order, and what never does."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.app import open_memory
from mcp_server.conversations.observe import ContextChunk, NewTurn, Observed, observe
from mcp_server.forgetting.forget import forget
from mcp_server.forgetting.target import ForgetTarget
from mcp_server.memory import Memory
from mcp_server.model import Caller, Delivery, ToolCall
from mcp_server.pressure import advisor, ladder
from mcp_server.pressure.advisor import IN_ADD, STATES, Advice, advise, phase_of
from mcp_server.pressure.ladder import EXCERPT_TOKENS, Protected, Scored, newest
from mcp_server.relevance.advisor_items import ContextItem, Lexicon
from mcp_server.relevance.chunks import ChunkScore, Decision, LiveChunk
from mcp_server.settings import Context
from mcp_server.status.status import status
from tests.conftest import KEYWORDS_ONLY, Clock
from tests.holding import holding

pytestmark = pytest.mark.anyio

RULES = Context()
AT = datetime(2026, 3, 1, tzinfo=UTC)


def chunk(
    number: int,
    similarity: float,
    tokens: int = 1000,
    *,
    important: bool = False,
    system: bool = False,
    immune: int = 0,
) -> Scored:
    live = LiveChunk(f"c{number}", "message", number, 0, tokens, AT, important=important, system=system, immune=immune)
    return live, ChunkScore(similarity, 0, 0)


def protected(scored: list[Scored], *anchored: str) -> Protected:
    return Protected(newest([chunk for chunk, _ in scored], RULES), frozenset(anchored), exchange=3)


def curate(scored: list[Scored], *anchored: str, target: int = 0) -> list[Decision]:
    return ladder.curate(scored, target, protected(scored, *anchored), RULES)


def compact(scored: list[Scored], target: int, *anchored: str, large: int = 2000) -> list[Decision]:
    return ladder.compact(scored, target, protected(scored, *anchored), RULES, large)


def tail(start: int = 90) -> list[Scored]:
    """Five chunks that are kept for being the newest."""
    return [chunk(number, 0, 10) for number in range(start, start + 5)]


def actions(scored: list[Scored], target: int) -> dict[str, str]:
    return {decision.chunk.id: decision.action for decision in compact(scored, target)}


def test_curation_drops_the_lowest_scores_up_to_the_cutoff_and_no_more_than_needed() -> None:
    decided = {d.chunk.id: d.action for d in curate([chunk(1, 0.3), chunk(2, 0.31), *tail()])}
    assert decided["c1"] == "drop"
    assert decided["c2"] == "keep"
    assert all(decided[f"c{number}"] == "keep" for number in range(90, 95))
    decided = {d.chunk.id: d.action for d in curate([chunk(1, 0.2), chunk(2, 0.1), *tail()], target=1500)}
    assert (decided["c1"], decided["c2"]) == ("keep", "drop")


def test_a_short_chunk_stays_when_a_long_one_of_about_the_same_score_makes_the_room() -> None:
    scored = [chunk(1, 0.19, 20), chunk(2, 0.2, 900), *tail()]
    assert [d.chunk.id for d in curate(scored, target=500) if d.action == "drop"] == ["c2"]
    assert actions([chunk(1, 0.29, 20), chunk(2, 0.3, 190), *tail()], 200) == {
        **{f"c{number}": "keep" for number in (1, *range(90, 95))},
        "c2": "drop",
    }


def test_important_anchored_system_and_just_recovered_chunks_are_never_dropped() -> None:
    guarded = [chunk(1, 0, important=True), chunk(2, 0), chunk(3, 0, system=True), chunk(4, 0, immune=4)]
    assert all(d.action == "keep" for d in curate([*guarded, *tail()], "c2"))
    assert "drop" not in {d.action for d in compact([*guarded, *tail()], 0, "c2")}
    assert curate([chunk(4, 0, immune=3), *tail()])[0].action == "drop", "immunity ends with its exchange"


def test_compaction_goes_step_by_step_and_no_further_than_it_must() -> None:
    tool = (LiveChunk("tool", "tool", 1, 1, 2000, AT, one_line=20), ChunkScore(0.6, 0, 0))
    scored = [tool, chunk(2, 0.4), chunk(3, 0.1), chunk(4, 0.2), chunk(5, 0.9, 3000), *tail()]
    everything = 2000 + 3000 + 3000 + 50

    def left(less: int) -> list[tuple[str, int]]:
        decisions = {d.chunk.id: (d.action, d.tokens) for d in compact(scored, everything - less)}
        return [decisions[name] for name in ("tool", "c5", "c2", "c3", "c4")]

    whole: list[tuple[str, int]] = [("keep", 2000), ("keep", 3000), *[("keep", 1000)] * 3]
    assert left(0) == whole
    assert left(1000) == [("one line", 20), *whole[1:]]
    assert left(2400) == [("one line", 20), ("excerpt", 2580), *whole[2:]]
    assert left(3400) == [("one line", 20), ("excerpt", 2000), ("summarise", 500), *whole[3:]]
    assert left(4400) == [("one line", 20), ("excerpt", 2000), ("summarise", 500), ("drop", 0), ("keep", 1000)]


def test_nothing_above_keep_goes_while_something_below_it_or_something_larger_remains() -> None:
    scored = [chunk(1, 0.9, 300), chunk(2, 0.6, 300), chunk(3, 0.1, 400), chunk(4, 1.0, 1500, important=True), *tail()]
    one = {d.chunk.id: (d.action, d.tokens) for d in compact(scored, 1000)}
    assert one == {**one, "c1": ("keep", 300), "c2": ("keep", 300), "c3": ("drop", 0), "c4": ("excerpt", 350)}
    two = {d.chunk.id: d.action for d in compact(scored, 500)}
    assert (two["c1"], two["c2"], two["c4"]) == ("excerpt", "drop", "excerpt")


def test_what_is_protected_but_too_long_becomes_an_excerpt_at_last() -> None:
    scored = [*(chunk(n, 1.0, 5000) for n in range(4)), chunk(4, 1.0, 100)]
    decisions = compact(scored, 2100, large=200)
    assert [d.tokens for d in decisions] == [500, 500, 500, 500, 100]
    assert [d.action for d in decisions] == ["excerpt"] * 4 + ["keep"]
    assert [d.tokens for d in compact(scored, 0)] == [EXCERPT_TOKENS] * 4 + [100]


def test_nobody_can_shorten_what_only_a_client_has() -> None:
    named = replace(chunk(1, 1.0, 5000)[0], kind="file", name="src/a.py"), ChunkScore(0, 0, 0)
    decisions = compact([named, *tail()], 100, "c1")
    assert decisions[0].action == "keep"
    assert compact([named, *tail()], 100)[0].action == "drop"


def test_what_nobody_could_compare_is_kept_by_curation_and_goes_last() -> None:
    scored = [chunk(1, 0), chunk(2, 0.4, 100), *tail()]
    unknown = replace(protected(scored), unknown=frozenset({"c1"}))
    assert ladder.curate(scored, 0, unknown, RULES)[0].why == "not indexed yet"
    one = {d.chunk.id: d.action for d in ladder.compact(scored, 1050, unknown, RULES, 2000)}
    assert (one["c1"], one["c2"]) == ("keep", "drop")


def test_the_limit_cuts_every_text_to_an_equal_part_and_system_messages_too() -> None:
    scored = [chunk(1, 0, 5000, system=True), chunk(2, 0, 3000, important=True), chunk(3, 0, 100)]
    decisions = ladder.limit(scored, 1100)
    assert [d.tokens for d in decisions] == [500, 500, 100]
    assert [d.tokens for d in ladder.limit(scored, 9000)] == [5000, 3000, 100]
    assert all(d.tokens >= ladder.LEAST_EXCERPT for d in ladder.limit(scored, 0))


def test_a_summary_is_never_summarised_again() -> None:
    summary = (LiveChunk("s", "message", 1, 0, 400, AT, form="summary"), ChunkScore(0.4, 0, 0))
    assert actions([summary, *tail()], 440)["s"] == "drop"


chunks = st.lists(
    st.tuples(st.floats(0, 0.9), st.integers(1, 3000), st.booleans(), st.booleans()), min_size=1, max_size=40
)


@given(chunks, st.integers(0, 40_000))
def test_a_decision_for_every_chunk_and_system_messages_untouched(
    drawn: list[tuple[float, int, bool, bool]], target: int
) -> None:
    scored = [chunk(n, s, t, important=i, system=y) for n, (s, t, i, y) in enumerate(drawn)]
    decisions = compact(scored, target)
    assert [d.chunk for d in decisions] == [one for one, _ in scored]
    assert all(d.action == "keep" for d in decisions if d.chunk.system)
    assert all(d.tokens <= d.chunk.tokens for d in decisions)
    fixed = sum(d.chunk.tokens for d in decisions if d.chunk.system)
    least = fixed + sum(min(EXCERPT_TOKENS, d.chunk.tokens) for d in decisions if not d.chunk.system)
    assert sum(d.tokens for d in decisions) <= max(target, least)


LIMIT = 4_000
OLD = tuple(ContextChunk("file", f"docs/old{n}.txt", 100) for n in range(4))
API = ContextChunk("skill", "skills/api-design-framework", 650, tags=("api", "rest"))


STATE = f"{STATES}/s.json"


async def say(
    memory: Memory, content: str, client: int | None = None, *, delivery: Delivery = "add", **more: object
) -> Observed:
    turn = NewTurn("user", content, "s", delivery=delivery, context_tokens=client)
    return await observe(memory, replace(turn, **more), Caller())  # type: ignore[arg-type]  # fields by name


async def test_under_seventy_percent_nothing_is_said_and_nothing_is_written(small: Memory) -> None:
    said = await say(small, "Design a REST endpoint", 2_799, chunks=(*OLD, API))
    assert not any("Context at" in note for note in said.notes)
    assert not small.files.exists(STATE)


async def test_from_seventy_percent_on_the_answer_names_what_is_needed_least(small: Memory, clock: Clock) -> None:
    await say(small, "Design a REST endpoint", 2_000, chunks=(*OLD, API))
    clock.forward(hours=3)
    said = (await say(small, "The REST API needs pagination", 2_900)).markdown
    assert "Context at 72%." in said
    assert "prune file docs/old0.txt: 2 points, 100 tokens (unrelated to the prompt; 1 access)" in said
    assert "skills/api" not in said
    assert IN_ADD in said


async def test_the_state_stands_in_its_file_in_the_seeds_shape(small: Memory, clock: Clock) -> None:
    await say(small, "Design a REST endpoint", 2_000, chunks=(*OLD, API))
    clock.forward(hours=3)
    await say(small, "The REST API needs pagination", 2_900)
    state = json.loads(small.files.read_text(STATE))
    assert (state["session_id"], state["total_context_tokens"], state["context_budget"]) == ("s", 2_900, LIMIT)
    api = next(item for item in state["items"] if item["id"] == "skill:api-design-framework")
    assert api["score"] == {"recency": 0, "frequency": 2, "relevance": 10, "total": 12}
    assert {one["estimated_savings"] for one in state["pruning_recommendations"]} == {100}


async def test_on_the_first_prompt_only_relevance_tells_items_apart(small: Memory) -> None:
    await say(small, "Design a REST endpoint", 3_000, chunks=(*OLD, API))
    seen = await advisor.view_of(small, "s", client_tokens=3_000)
    scores = {item.id: (score.recency, score.frequency, score.total) for item, score in seen.advice.scores}
    assert scores["file:docs/old0.txt"] == (10, 0, 10)
    assert scores["skill:api-design-framework"] == (10, 0, 20)


async def test_a_repeated_load_is_an_access(small: Memory) -> None:
    for number in range(7):
        await say(small, f"REST endpoint number {number}", chunks=(API,))
    (item,) = (await advisor.view_of(small, "s")).items
    assert item.accesses == 7


async def test_files_that_tools_read_are_judged_too(small: Memory, clock: Clock) -> None:
    call = ToolCall("Read", "src/oven.py", "line " * 50, ("src/oven.py",))
    await say(small, "Look at the oven")
    await say(small, "I see", role="agent", tool_calls=(call,))
    advice = (await advisor.view_of(small, "s", "the oven", asked=True)).advice
    ((item, score),) = advice.scores
    assert (item.id, score.relevance, score.why) == ("file:src/oven.py", 10, "named in the prompt: oven")
    assert (await advisor.view_of(small, "s", "the oven")).advice == Advice("quiet")


async def test_rapid_growth_names_the_folder_that_was_loaded(small: Memory, clock: Clock) -> None:
    await say(small, "Look at the code", 1_000)
    clock.forward(minutes=3)
    loaded = tuple(ContextChunk("file", f"src/lib/{n}.py", 10) for n in range(6))
    said = (await say(small, "And now at the library", 2_900, chunks=loaded)).markdown
    assert "Rapid context growth detected" in said
    assert "6 files of src/lib came in within five minutes" in said


async def test_slow_growth_is_no_alarm(small: Memory, clock: Clock) -> None:
    await say(small, "Look at the code", 1_000, chunks=OLD)
    clock.forward(minutes=6)
    assert "Rapid" not in (await say(small, "And now at the library", 2_900)).markdown


async def test_where_all_of_it_matters_old_decisions_and_skills_are_named(small: Memory) -> None:
    for _ in range(8):
        await say(small, "Design a REST API", 100, chunks=(API,))
    said = (await say(small, "Design the REST API", 3_300)).markdown
    assert "archive old decisions" in said


@pytest.mark.parametrize(
    ("delivery", "advised"), [("add", "/compact"), ("replace", 'prune(strategy="compact", dry_run=false)')]
)
async def test_from_ninety_five_percent_on_there_is_only_one_thing_to_do(
    small: Memory, delivery: Delivery, advised: str
) -> None:
    said = (await say(small, "Design a REST API", 3_900, chunks=OLD, delivery=delivery)).markdown
    assert "critical: compact it now" in said
    assert advised in said
    assert "docs/old0.txt" not in said


async def test_it_can_be_switched_off(workspace: Path, clock: Clock) -> None:
    environ = KEYWORDS_ONLY | {"CONTEXT_MANAGER_ADVISOR__ENABLED": "false"}
    async with open_memory(workspace, environ, clock=clock) as memory:
        assert "Context at" not in (await say(memory, "Design a REST API", 199_000)).markdown


async def test_a_broken_lexicon_of_the_users_own_is_named_and_does_not_stop_the_advice(
    workspace: Path, clock: Clock
) -> None:
    environ = KEYWORDS_ONLY | {"CONTEXT_MANAGER_ADVISOR__LEXICON": "mine.yaml"}
    async with open_memory(workspace, environ, clock=clock) as memory:
        (workspace / "mine.yaml").write_text("generic: [node.js]\n")
        said = (await say(memory, "Design a REST API", 170_000, chunks=OLD)).markdown
        assert "Context at 85%" in said
        assert "'node.js' is not one word" in said
        assert any("mine.yaml: " in problem for problem in (await status(memory)).problems)


async def test_what_is_to_be_forgotten_leaves_its_state_too(small: Memory, workspace: Path) -> None:
    loaded = ContextChunk("file", "notes/vault code 4711.txt", 100, tags=("vault code 4711",))
    await say(small, "Look at it", 3_000, chunks=(loaded,))
    assert holding(workspace, "vault code 4711")
    await forget(small, ForgetTarget(text="vault code 4711"))
    assert holding(workspace, "vault code 4711") == []


NOW = datetime(2026, 1, 18, 10, 30, tzinfo=UTC)
EMPTY = Lexicon({}, {}, frozenset())


def item(path: str, minutes: float = 500, accesses: int = 0, tokens: int = 500, loaded: float = 500) -> ContextItem:
    since, last = (NOW - timedelta(minutes=ago) for ago in (loaded, minutes))
    return ContextItem(f"file:{path}", "file", path, since, last, accesses, tokens)


def ask(items: list[ContextItem], share: float, **more: bool) -> Advice:
    return advise(items, "the oven", share, NOW, EMPTY, **more)


SPREAD = [
    item("a.md"),  # 0
    item("b.md", 100, 4),  # 2 + 6
    item("c.md", 20, 2),  # 6 + 4
    item("d.md", 3, 2),  # 10 + 4
    item("e.md", 3, 8),  # 10 + 8
    item("oven.md", 3, 12),  # 30
    item("oven-b.md", 3, 12),
    item("oven-c.md", 3, 12),
]


@pytest.mark.parametrize(
    ("share", "phase"),
    [
        (0.69, "quiet"),
        (0.70, "identify"),
        (0.80, "aggressive"),
        (0.90, "critical"),
        (0.95, "too late"),
        (1.4, "too late"),
    ],
)
def test_phases_follow_the_gauge(share: float, phase: str) -> None:
    assert phase_of(share) == phase


def test_from_eighty_percent_on_scores_under_ten_go_and_ten_to_fifteen_are_reviewed() -> None:
    proposed = [(one.item.path, one.proposal) for one in ask(SPREAD, 0.85).recommendations]
    assert proposed == [("a.md", "prune"), ("b.md", "prune"), ("c.md", "review"), ("d.md", "review")]


def test_from_ninety_percent_on_all_under_sixteen_go_with_a_warning() -> None:
    advice = ask(SPREAD, 0.92)
    assert {one.proposal for one in advice.recommendations} == {"prune"}
    assert len(advice.recommendations) == 4
    assert "critical" in advice.warnings[0]


def test_at_most_five_are_named_with_what_they_save() -> None:
    advice = ask([item(f"{n}.md", tokens=100) for n in range(40)], 0.85)
    assert (len(advice.recommendations), advice.savings) == (5, 500)
