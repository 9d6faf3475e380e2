"""Topics outlive a server that is killed, and no answer of an LLM's endpoint keeps a turn from being recorded."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.servers import done, eventually, served
from tests.gitting import write
from tests.llm.endpoint import Endpoint, Reply, endpoint
from tests.serving import PLAIN, call, connected, resource, say
from tests.topics.playbooks import EMAIL

pytestmark = pytest.mark.anyio


def without_examples(root: Path) -> None:
    for example in (root / "topics").glob("*.md"):
        example.unlink()


async def test_a_killed_server_forgets_no_topic_and_another_process_switches_it(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    async with served(root) as server:
        session = await say(server.client, "Good morning")
        without_examples(root)
        write(root, "topics/email-triage.md", EMAIL.replace("gated ", "auto "))
        await say(server.client, "an email came", session=session)
        server.kill()
    async with served(root) as server:
        uri = f"context://compiled/{session}"
        assert "Email Triage" in await resource(server.client, uri)
        assert "is off now" in await done(root, "topics", "deactivate", "email-triage", "--session", session)

        async def gone() -> bool:
            return "Email Triage" not in await resource(server.client, uri)

        await eventually(gone)


TOPIC = """---
type: topic
description: Reviewing a pull request, its diff and its tests.
triggers:
  - {type: keywords, match: [PR, review]}
priority: medium
---

# Review

Read the description, then the tests, then the diff. Comment kindly, approve when only nitpicks are left.
"""
ASK = "Can you review the PR that just came in, its diff and tests?"


PATIENT, IMPATIENT = "30", "3"
"""Seconds: less than forever, and more than it takes to load a client."""


@pytest.fixture
def talking(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Endpoint]]:
    """Starts an endpoint that speaks OpenAI's protocol, to which the servers of the test are pointed."""
    with ExitStack() as stack:

        def start(*replies: Reply, patience: str = PATIENT) -> Endpoint:
            at = stack.enter_context(endpoint(*replies))
            for name, value in {
                "LLM__PROVIDER": "openai",
                "LLM__MODEL": "large",
                "LLM__SMALL_MODEL": "small",
                "LLM__BASE_URL": at.url,
                "LLM__RETRIES": "0",
                "WATCHERS__GATE_TIMEOUT_SECONDS": patience,
            }.items():
                monkeypatch.setitem(PLAIN, f"CONTEXT_MANAGER_{name}", value)
            return at

        yield start


def gate_line(root: Path) -> dict[str, Any]:
    lines = (root / ".local" / "logs" / "context" / "gate.jsonl").read_text().splitlines()
    line: dict[str, Any] = json.loads(lines[-1])
    return line


@pytest.fixture
def root(workspace: Path, empty_memory: None) -> Path:
    """A workspace with one topic."""
    without_examples(workspace)
    (workspace / "topics" / "review.md").write_text(TOPIC)
    return workspace


ANSWERS = [
    (Reply("YES"), True, "llm", "the LLM said yes"),
    (Reply("NO"), False, "llm", "the LLM said no"),
    (Reply("banana"), True, "arithmetic", "neither YES nor NO"),
    (Reply(raw=b"{no json"), True, "arithmetic", "no answer from the LLM"),
    (Reply("broken", status=500), True, "arithmetic", "no answer from the LLM"),
]


async def test_the_turn_completes_whatever_the_gates_endpoint_answers(
    root: Path, talking: Callable[..., Endpoint]
) -> None:
    at = talking(*(reply for reply, *_ in ANSWERS))
    async with connected(root) as client:
        for number, (_, active, by, why) in enumerate(ANSWERS):
            asked = f"{ASK} It is number {number}."  # what was judged once is not asked again
            answer = await call(client, "observe", role="user", content=asked, session=f"s{number}")
            assert "turn 1 recorded" in answer
            assert ("review" in answer) is active, why
            line = gate_line(root)
            assert (line["topic_name"], line["gate_result"], line["decided_by"]) == ("review", active, by)
            assert why in line["why"]
            assert len(at.asked) == number + 1
            assert (at.asked[-1]["model"], at.asked[-1]["max_tokens"]) == ("small", 1)
            assert asked in at.asked[-1]["messages"][0]["content"]


async def test_an_endpoint_that_does_not_answer_costs_the_turn_its_limit(
    root: Path, talking: Callable[..., Endpoint]
) -> None:
    at = talking(Reply("NO"), Reply(waits=True), patience=IMPATIENT)
    async with connected(root) as client:
        await call(client, "observe", role="user", content="The review of that PR: a diff with tests?")
        answer = await call(client, "observe", role="user", content=ASK)
    assert "recorded" in answer
    assert "review" in answer
    line = gate_line(root)
    assert (line["gate_result"], line["decided_by"]) == (True, "arithmetic")
    assert "no answer from the LLM within 3 s" in line["why"]
    assert ASK in at.asked[-1]["messages"][0]["content"]
