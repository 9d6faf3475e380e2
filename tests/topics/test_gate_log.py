"""What the log keeps of decisions, what became of them, and what tuning makes of that."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from mcp_server.app import open_memory
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.memory import Memory
from mcp_server.model import Caller, ToolCall
from mcp_server.storage.logs import append_or_drop
from mcp_server.topics.gate_log import decisions, message_hash
from mcp_server.topics.gate_tuning import tune
from mcp_server.topics.listing import switch
from tests.conftest import KEYWORDS_ONLY

pytestmark = pytest.mark.anyio

AGENT = Caller(source="mcp", client="test", session="talk")
ASK = "Deploy the release to production, please."

DEPLOYMENT = """---
type: topic
description: Shipping a release to production.
triggers:
  - {type: keywords, match: [deploy, production]}
subscriptions: [knowledge/procedures/deploy.md]
priority: high
---

# Deployment

Start with a canary at five percent. Watch latency and error rate. Run the smoke tests on staging. Keep the old version
warm. Tell the channel. Roll back first and ask questions later.
"""


@pytest.fixture
async def memory(workspace: Path, clock: Callable[[], datetime]) -> AsyncIterator[Memory]:
    async with open_memory(workspace, KEYWORDS_ONLY, clock=clock) as opened:
        (workspace / "topics").mkdir(exist_ok=True)
        for path in (workspace / "topics").glob("*.md"):
            path.unlink()
        (workspace / "topics" / "deployment.md").write_text(DEPLOYMENT)
        yield opened


async def say(memory: Memory, role: str, content: str, **fields: Any) -> None:
    await observe(memory, NewTurn(role, content, session="talk", **fields), AGENT)


def last(memory: Memory) -> dict[str, Any]:
    return next(iter(decisions(memory)))


async def test_a_decision_is_logged_with_s4s_fields(memory: Memory) -> None:
    await say(memory, "user", ASK)
    (line,) = decisions(memory)
    assert line["message_hash"] == message_hash(ASK)
    assert line["topic_name"] == "deployment"
    assert line["tier1_matched"] is True
    assert 0 < line["tier2_score"] <= 1
    assert line["gate_result"] is True
    assert line["was_useful"] is None
    assert line["timestamp"] == "2026-02-16T18:45:00Z"
    assert (line["session_id"], line["turn"], line["exchange"], line["priority"]) == ("talk", 1, 1, "high")
    assert line["matched"] == ["keywords: Deploy", "keywords: production"]
    assert ASK not in str(line), "a message's text stays in its transcript"


async def test_an_answer_that_uses_the_topics_own_words_makes_it_useful(memory: Memory) -> None:
    await say(memory, "user", ASK)
    await say(memory, "agent", "I deploy to production now.")
    assert last(memory)["was_useful"] is None, "those words were the user's"
    await say(memory, "agent", "The canary looks fine: latency is low, and the smoke tests are green.")
    assert last(memory)["was_useful"] is True
    assert last(memory)["outcome"] == "an answer used it"


async def test_an_answer_that_reads_its_file_makes_it_useful(memory: Memory) -> None:
    await say(memory, "user", ASK)
    read = ToolCall("read", "the procedure", files=("knowledge/procedures/deploy.md",))
    await say(memory, "agent", "Done.", tool_calls=(read,))
    assert last(memory)["was_useful"] is True


async def test_a_topic_that_nobody_used_in_its_life_was_useless(memory: Memory) -> None:
    await say(memory, "user", ASK)
    for number in range(memory.settings.watchers.topic_ttl):
        await say(memory, "user", f"And what is for lunch on day {number}?")
        await say(memory, "agent", f"Soup number {number}.")
        assert last(memory)["was_useful"] is None
    await say(memory, "user", "One more thing: is it raining?")
    await say(memory, "agent", "It is.")
    assert last(memory)["was_useful"] is False


async def test_what_the_user_switches_is_what_they_think_of_the_decision(memory: Memory, workspace: Path) -> None:
    await say(memory, "user", ASK)
    await switch(memory, "deployment", "talk", on=False)
    assert last(memory)["was_useful"] is False
    assert last(memory)["outcome"] == "the user deactivated it"

    quiet = DEPLOYMENT.replace("priority: high", "priority: low")
    (workspace / "topics" / "deployment.md").write_text(quiet)
    await observe(memory, NewTurn("user", "The production of the play was a success", session="other"), AGENT)
    assert last(memory)["gate_result"] is False
    await switch(memory, "deployment", "other", on=True)
    assert last(memory)["was_useful"] is True
    assert last(memory)["outcome"] == "the user activated it"


async def test_the_log_can_be_switched_off(workspace: Path, clock: Callable[[], datetime]) -> None:
    off = {**KEYWORDS_ONLY, "CONTEXT_MANAGER_WATCHERS__LOG_GATE": "false"}
    async with open_memory(workspace, off, clock=clock) as memory:
        (workspace / "topics").mkdir(exist_ok=True)
        (workspace / "topics" / "deployment.md").write_text(DEPLOYMENT)
        await say(memory, "user", ASK)
        await switch(memory, "deployment", "talk", on=False)
        assert list(decisions(memory)) == []


def write(memory: Memory, number: int, value: float, useful: bool | None) -> None:
    """A decision in the log, with what became of it."""
    at = {"session_id": "talk", "message_hash": f"m{number}", "topic_name": "deployment"}
    decision = {
        "event": "gate_decision",
        "tier1_matched": True,
        "tier2_score": value,
        "value": value,
        "threshold": 0.15,
        "margin": 0.13,
        "gate_result": value >= 0.28,
        "was_useful": None,
        "decided_by": "arithmetic",
        "matched": ["keywords: production"],
    }
    append_or_drop(memory.files, "gate", at | decision)
    if useful is not None:
        append_or_drop(
            memory.files, "gate", at | {"event": "gate_outcome", "was_useful": useful, "why": "a test said so"}
        )


async def test_tuning_proposes_and_writes_only_when_asked_to(memory: Memory, workspace: Path) -> None:
    for number in range(12):
        write(memory, number, 0.3 if number % 2 else 0.5, useful=not number % 2)
    write(memory, 99, 0.9, useful=None)
    append_or_drop(memory.files, "gate", {"event": "gate_decision", "topic_name": "deployment", "was_useful": True})
    before = (workspace / "topics" / "deployment.md").read_text()

    found = await tune(memory)
    assert (found.logged, found.known) == (14, 12)
    assert (found.before.precision, found.after.precision, found.after.recall) == (0.5, 1.0, 1.0)
    assert (workspace / "topics" / "deployment.md").read_text() == before

    done = await tune(memory, apply=True)
    assert done.written == ("topics/deployment.md",)
    after = (workspace / "topics" / "deployment.md").read_text()
    assert after != before
    assert memory.topics.read().topics["deployment"].similarity_threshold == done.proposals[0].proposed
    assert memory.git.show("topics/deployment.md", "HEAD") == after


async def test_an_empty_log_has_nothing_to_say(memory: Memory) -> None:
    found = await tune(memory, apply=True)
    assert (found.logged, found.proposals, found.written, found.nuisances) == (0, (), (), ())
