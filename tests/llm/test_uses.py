"""Each use of an LLM against a real endpoint: its answer is taken, the log says what for, and without a usable answer
the rules serve and the log says why."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from mcp_server.app import open_memory
from mcp_server.checkpoints import stored
from mcp_server.checkpoints.checkpoint import make
from mcp_server.checkpoints.enrich import enrich_all
from mcp_server.conversations.imports import record_session
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.history.committing import commit_changes
from mcp_server.knowledge.extract import extract
from mcp_server.knowledge.remember import NewFact, remember
from mcp_server.memory import Memory
from mcp_server.model import Caller
from mcp_server.pressure.reword import reword_all
from mcp_server.relevance.live_set import live_set
from mcp_server.storage import logs
from tests.conftest import KEYWORDS_ONLY
from tests.gitting import subjects
from tests.knowledge.test_extract import ANA, LINE, talk
from tests.llm.endpoint import Endpoint, Reply, endpoint
from tests.pressure.test_reword import BETTER, KNOBS, compact

pytestmark = pytest.mark.anyio
GARBAGE = Reply("Well, that depends.")
REFUSED = Reply("no money left", status=403)


def asking(served: Endpoint, **knobs: str) -> dict[str, str]:
    """An environment whose LLM is at the endpoint."""
    given = {"PROVIDER": "openai", "MODEL": "large", "SMALL_MODEL": "small", "BASE_URL": served.url, "RETRIES": "0"}
    return {**KNOBS, **{f"CONTEXT_MANAGER_LLM__{name}": value for name, value in given.items()}, **knobs}


def logged(memory: Memory) -> dict[str, dict[str, Any]]:
    """The last line of the log for each purpose."""
    return {line["purpose"]: line for line in reversed(list(logs.newest_first(memory.files, "llm")))}


async def summarised(memory: Memory) -> bool:
    """Whether a compaction's summary has the model's words."""
    await compact(memory)
    await reword_all(memory)
    found = [chunk.shown for chunk in await live_set(memory, "s") if chunk.form == "summary"]
    assert found, "the rules' summaries stand in any case"
    return BETTER in found


async def extracted(memory: Memory) -> bool:
    await record_session(memory, talk("I adopted two kittens from the shelter yesterday."))
    await extract(memory)
    assert "kittens" in memory.files.read_text(ANA)
    return str(LINE["text"]) in memory.files.read_text(ANA)


async def committed(memory: Memory) -> bool:
    await remember(memory, NewFact("Ana moved to Basel"), Caller())
    await commit_changes(memory)
    (newest,) = subjects(memory.disk.root, "-1")
    assert newest in ("memory: Ana lives in Basel now", "memory: MEMORY.md: Ana moved to Basel")
    return newest == "memory: Ana lives in Basel now"


async def enriched(memory: Memory) -> bool:
    await observe(memory, NewTurn("user", "Decision: use two files for the cache", session="s1"), Caller())
    made = await make(memory, "s1", "asked")
    await enrich_all(memory)
    decisions = (await stored.read(memory, made.id)).decisions
    assert decisions
    return decisions == ("Use two files for the cache, so that one can be rebuilt",)


USES = {
    "summary": (summarised, BETTER, "large"),
    "extraction": (extracted, json.dumps([LINE]), "large"),
    "commit message": (committed, "memory: Ana lives in Basel now", "small"),
    "enrichment": (
        enriched,
        json.dumps({"decisions": ["Use two files for the cache, so that one can be rebuilt"], "open_items": []}),
        "large",
    ),
}


@pytest.mark.parametrize("purpose", USES)
async def test_what_the_model_says_is_taken_and_the_log_says_what_it_was_for(
    workspace: Path, clock: Callable[[], datetime], purpose: str
) -> None:
    use, answer, model = USES[purpose]
    with endpoint(Reply(answer)) as served:
        async with open_memory(workspace, asking(served), clock=clock) as memory:
            assert await use(memory)
            assert (logged(memory)[purpose]["outcome"], logged(memory)[purpose]["model"]) == ("ok", model)


@pytest.mark.parametrize(("reply", "outcome"), [(GARBAGE, "ok"), (REFUSED, "failed")])
@pytest.mark.parametrize("purpose", USES)
async def test_without_a_usable_answer_the_rules_serve_and_the_log_says_why(
    workspace: Path, clock: Callable[[], datetime], purpose: str, reply: Reply, outcome: str
) -> None:
    with endpoint(reply) as served:
        async with open_memory(workspace, asking(served), clock=clock) as memory:
            assert not await USES[purpose][0](memory)
            line = logged(memory)[purpose]
            assert line["outcome"] == outcome
            assert ("error" in line) is (outcome == "failed")


async def test_gate_and_commit_messages_may_have_models_of_their_own(workspace: Path) -> None:
    own = {
        "CONTEXT_MANAGER_GIT__COMMIT_MESSAGE_MODEL": "tiny",
        "CONTEXT_MANAGER_WATCHERS__GATE_MODEL": "judge",
        "CONTEXT_MANAGER_LLM__SMALL_INPUT_PRICE": "1",
    }
    with endpoint(Reply("memory: Ana lives in Basel now")) as served:
        async with open_memory(workspace, asking(served, **KEYWORDS_ONLY, **own)) as memory:
            assert await committed(memory)
            assert memory.llm is not None
            await memory.llm.complete("Is it?", purpose="gate", max_tokens=1)
            await memory.llm.complete("Say more.", purpose="extraction", max_tokens=9)
            found = logged(memory)
    assert {name: line["model"] for name, line in found.items()} == {
        "commit message": "tiny",
        "gate": "judge",
        "extraction": "large",
    }
    assert found["gate"]["usd"] > 0
