"""The advisor in the answer of `observe`, and the state that it stores."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from mcp_server.app import open_memory
from mcp_server.conversations.observe import ContextChunk, NewTurn, Observed, observe
from mcp_server.forgetting.forget import forget
from mcp_server.forgetting.target import ForgetTarget
from mcp_server.memory import Memory
from mcp_server.model import Caller, Delivery, ToolCall
from mcp_server.pressure import advisor
from mcp_server.pressure.advisor import IN_ADD, Advice
from mcp_server.status.status import status
from mcp_server.storage.logs import advisor_path
from tests.conftest import KEYWORDS_ONLY, Clock
from tests.holding import holding
from tests.pressing import limited

pytestmark = pytest.mark.anyio

LIMIT = 4_000
OLD = tuple(ContextChunk("file", f"docs/old{n}.txt", 100) for n in range(4))
API = ContextChunk("skill", "skills/api-design-framework", 650, tags=("api", "rest"))


@pytest.fixture
async def small(workspace: Path, clock: Clock, new_id: Callable[[], str]) -> AsyncIterator[Memory]:
    """A memory whose context holds 4,000 tokens."""
    async with open_memory(workspace, limited(LIMIT), clock=clock, new_id=new_id) as opened:
        yield opened


async def say(
    memory: Memory, content: str, client: int | None = None, *, delivery: Delivery = "add", **more: object
) -> Observed:
    turn = NewTurn("user", content, "s", delivery=delivery, context_tokens=client)
    return await observe(memory, replace(turn, **more), Caller())  # type: ignore[arg-type]  # fields by name


async def test_under_seventy_percent_nothing_is_said_and_nothing_is_written(small: Memory) -> None:
    said = await say(small, "Design a REST endpoint", 2_799, chunks=(*OLD, API))
    assert not any("Context at" in note for note in said.notes)
    small.advisor.close()  # waits for the writer
    assert not small.files.exists(advisor_path("s"))


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
    small.advisor.close()  # waits for the writer
    state = json.loads(small.files.read_text(advisor_path("s")))
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
        assert "mine.yaml: line 1: 'node.js' is not one word" in said
        assert any("mine.yaml: line 1" in problem for problem in (await status(memory)).problems)


async def test_what_is_to_be_forgotten_leaves_its_state_too(small: Memory, workspace: Path) -> None:
    loaded = ContextChunk("file", "notes/vault code 4711.txt", 100, tags=("vault code 4711",))
    await say(small, "Look at it", 3_000, chunks=(loaded,))
    small.advisor.close()  # waits for the writer
    assert holding(workspace, "vault code 4711")
    await forget(small, ForgetTarget(text="vault code 4711"))
    assert holding(workspace, "vault code 4711") == []
