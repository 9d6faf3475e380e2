"""The log of the gate: whether a topic was used, and what tuning proposes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.app import open_memory
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.memory import Memory
from mcp_server.model import Caller, ToolCall
from mcp_server.storage.logs import append_or_drop
from mcp_server.topics.gate_log import KnownDecision, decisions, message_hash, proposals, quality, used
from mcp_server.topics.listing import switch
from tests.conftest import KEYWORDS_ONLY, Clock
from tests.topics.playbooks import only

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
async def memory(place: Path | str, clock: Clock) -> AsyncIterator[Memory]:
    async with open_memory(place, KEYWORDS_ONLY, clock=clock) as opened:
        only(opened, deployment=DEPLOYMENT)
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


async def test_what_the_user_switches_is_what_they_think_of_the_decision(memory: Memory) -> None:
    await say(memory, "user", ASK)
    await switch(memory, "deployment", "talk", on=False)
    assert last(memory)["was_useful"] is False
    assert last(memory)["outcome"] == "the user deactivated it"
    quiet = DEPLOYMENT.replace("priority: high", "priority: low")
    memory.files.write_atomic("topics/deployment.md", quiet)
    await observe(memory, NewTurn("user", "The production of the play was a success", session="other"), AGENT)
    assert last(memory)["gate_result"] is False
    await switch(memory, "deployment", "other", on=True)
    assert last(memory)["was_useful"] is True
    assert last(memory)["outcome"] == "the user activated it"


async def test_the_log_can_be_switched_off(place: Path | str, clock: Clock) -> None:
    off = {**KEYWORDS_ONLY, "CONTEXT_MANAGER_WATCHERS__LOG_GATE": "false"}
    async with open_memory(place, off, clock=clock) as memory:
        memory.files.write_atomic("topics/deployment.md", DEPLOYMENT)
        await say(memory, "user", ASK)
        await switch(memory, "deployment", "talk", on=False)
        assert list(decisions(memory)) == []


def write(memory: Memory, number: int, value: float, useful: bool | None) -> None:
    """A decision in the log, with what became of it."""
    at = {"session_id": "talk", "message_hash": f"m{number}", "topic_name": "deployment"}
    decision = {"event": "gate_decision", "was_useful": None, "matched": ["keywords: production"]}
    append_or_drop(memory.files, "gate", at | decided(value) | decision)
    if useful is not None:
        outcome = {"event": "gate_outcome", "was_useful": useful, "why": "a test said so"}
        append_or_drop(memory.files, "gate", at | outcome)


def decided(value: float) -> dict[str, Any]:
    """A decision of the gate without an LLM, at threshold .15 and margin .13."""
    given = {"tier1_matched": True, "tier2_score": value, "value": value, "threshold": 0.15, "margin": 0.13}
    return given | {"gate_result": value >= 0.28, "decided_by": "arithmetic"}


def past(value: float, useful: bool, **given_: Any) -> KnownDecision:
    return KnownDecision(**{"topic_name": "mail", "was_useful": useful, **decided(value), **given_})


def test_a_higher_threshold_is_proposed_where_low_values_were_useless() -> None:
    known = [past(0.3, False) for _ in range(6)] + [past(0.5, True) for _ in range(6)]
    (one,) = proposals(known)
    assert (one.topic, one.known, one.threshold) == ("mail", 12, 0.15)
    assert 0.2 < one.proposed < 0.35, "between the useless and the useful ones"
    assert (one.before.precision, one.after.precision, one.after.recall) == (0.5, 1.0, 1.0)


def test_a_lower_threshold_is_proposed_where_what_stayed_out_was_asked_for() -> None:
    known = [past(0.2, True) for _ in range(6)] + [past(0.5, True) for _ in range(6)] + [past(0.05, False)]
    (one,) = proposals(known)
    assert one.proposed <= 0.07
    assert one.after.recall == 1.0


def test_nothing_is_proposed_on_few_decisions_or_for_what_others_decided() -> None:
    assert proposals([past(0.3, False)] * 7) == []
    assert proposals([past(0.3, False, decided_by="llm")] * 4 + [past(0.3, True, decided_by="llm")] * 8) == []
    assert proposals([past(0.5, True)] * 20) == []


def test_a_topic_without_triggers_is_out_under_its_threshold_whoever_would_decide() -> None:
    one = past(0.3, True, tier1_matched=False, decided_by="llm", gate_result=True)
    assert one.at(0.3)
    assert not one.at(0.31)


@given(st.lists(st.tuples(st.booleans(), st.booleans())))
def test_precision_and_recall_stay_between_0_and_1(decisions: list[tuple[bool, bool]]) -> None:
    found = quality(decisions)
    assert 0 <= found.precision <= 1
    assert 0 <= found.recall <= 1
    assert 0 <= found.f <= 1


OWN = ("canari", "smoke", "rollback", "pipelin")


def test_an_answer_with_three_of_its_own_words_used_a_topic() -> None:
    assert used(OWN, {"smoke", "canari", "rollback", "yes"}, (), ())
    assert not used(OWN, {"smoke", "canari", "yes"}, (), ())


@pytest.mark.parametrize(
    ("touched", "is_its"),
    [
        ("knowledge/procedures/deploy.md", True),
        ("/home/ada/.context-manager/knowledge/procedures/deploy.md", True),
        ("C:\\memory\\knowledge\\procedures\\deploy.md", True),
        ("knowledge/procedures/redeploy.md", False),
        ("deploy.md", False),
        ("", False),
    ],
)
def test_an_answer_that_touched_its_file_used_a_topic(touched: str, is_its: bool) -> None:
    assert used((), set(), ("knowledge/procedures/deploy.md",), (touched,)) is is_its
