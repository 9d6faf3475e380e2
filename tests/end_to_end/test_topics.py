"""Over stdio with real processes: a message activates a topic, and its playbook is in the resource."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.servers import done, eventually, served
from tests.gitting import write
from tests.llm.endpoint import Endpoint, Reply, endpoint
from tests.serving import call, resource, say
from tests.topics.playbooks import EMAIL

pytestmark = pytest.mark.anyio

REVIEW = """\
---
type: topic
triggers:
  - {type: pattern, match: '\\b(?:PR|pull request|review)\\b'}
subscriptions: [knowledge/procedures/code-review.md, knowledge/projects/_active.md]
activation: gated
priority: high
---

# GitHub PR review

Review a pull request (PR) that came in: read the diff, run the tests, comment on what must change.
"""


def without_examples(root: Path) -> None:
    for example in (root / "topics").glob("*.md"):
        example.unlink()


async def test_a_new_email_brings_the_triage_and_what_it_subscribes_to(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    async with served(root) as server:
        session = await say(server.client, "Good morning")
        without_examples(root)
        write(root, "topics/email-triage.md", EMAIL)
        write(root, "knowledge/procedures/email-workflow.md", "# Email workflow\n\nAnswer customers within a day.\n")
        before = await resource(server.client, f"context://compiled/{session}")
        answer = await call(
            server.client, "observe", role="user", content="A new email arrived, is it urgent or spam?", session=session
        )
        compiled = await resource(server.client, f"context://compiled/{session}")
        receipt = await resource(server.client, f"context://receipt/{session}")
    assert "Email Triage" not in before
    assert "topics now active: email-triage (pattern “email”)" in answer
    assert "1. Classify: urgent / actionable / informational / spam" in compiled
    assert "Answer customers within a day." in compiled
    assert "- topics/email-triage.md:18-" in receipt
    assert "active: pattern “email”" in receipt
    assert "subscription of email-triage" in receipt


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
        assert "stays out" in await done(root, "topics", "deactivate", "email-triage", "--session", session)

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


@contextmanager
def talking(*replies: Reply, patience: str = PATIENT) -> Iterator[tuple[Endpoint, dict[str, str]]]:
    """An endpoint that speaks OpenAI's protocol, and the environment that points a server at it."""
    with endpoint(*replies) as at:
        yield (
            at,
            {
                "CONTEXT_MANAGER_LLM__PROVIDER": "openai",
                "CONTEXT_MANAGER_LLM__MODEL": "large",
                "CONTEXT_MANAGER_LLM__SMALL_MODEL": "small",
                "CONTEXT_MANAGER_LLM__BASE_URL": at.url,
                "CONTEXT_MANAGER_LLM__RETRIES": "0",
                "CONTEXT_MANAGER_WATCHERS__GATE_TIMEOUT_SECONDS": patience,
            },
        )


def gate_line(root: Path) -> dict[str, Any]:
    lines = (root / ".local" / "logs" / "context" / "gate.jsonl").read_text().splitlines()
    line: dict[str, Any] = json.loads(lines[-1])
    return line


async def workspace_with_a_topic(tmp_path: Path) -> Path:
    root = tmp_path / "memory"
    await done(root, "init")
    for shipped in (root / "topics").glob("*.md"):
        shipped.unlink()
    (root / "topics" / "review.md").write_text(TOPIC)
    return root


ANSWERS = [
    (Reply("YES"), True, "llm", "the LLM said yes"),
    (Reply("NO"), False, "llm", "the LLM said no"),
    (Reply("banana"), True, "arithmetic", "neither YES nor NO"),
    (Reply(raw=b"{no json"), True, "arithmetic", "no answer from the LLM"),
    (Reply("broken", status=500), True, "arithmetic", "no answer from the LLM"),
]


async def test_the_turn_completes_whatever_the_gates_endpoint_answers(tmp_path: Path) -> None:
    root = await workspace_with_a_topic(tmp_path)
    with talking(*(reply for reply, *_ in ANSWERS)) as (at, environ):
        async with served(root, env=environ) as server:
            for number, (_, active, by, why) in enumerate(ANSWERS):
                asked = f"{ASK} It is number {number}."  # what was judged once is not asked again
                answer = await server.call("observe", role="user", content=asked, session=f"s{number}")
                assert "turn 1 recorded" in answer
                assert ("review" in answer) is active, why
                line = gate_line(root)
                assert (line["topic_name"], line["gate_result"], line["decided_by"]) == ("review", active, by)
                assert why in line["why"]
                assert len(at.asked) == number + 1
                assert (at.asked[-1]["model"], at.asked[-1]["max_tokens"]) == ("small", 1)
                assert asked in at.asked[-1]["messages"][0]["content"]


async def test_an_endpoint_that_does_not_answer_costs_the_turn_its_limit(tmp_path: Path) -> None:
    root = await workspace_with_a_topic(tmp_path)
    with talking(Reply("NO"), Reply(waits=True), patience=IMPATIENT) as (at, environ):
        async with served(root, env=environ) as server:
            await server.call("observe", role="user", content="The review of that PR: a diff with tests?")
            answer = await server.call("observe", role="user", content=ASK)
    assert "recorded" in answer
    assert "review" in answer
    line = gate_line(root)
    assert (line["gate_result"], line["decided_by"]) == (True, "arithmetic")
    assert "no answer from the LLM within 3 s" in line["why"]
    assert ASK in at.asked[-1]["messages"][0]["content"]
