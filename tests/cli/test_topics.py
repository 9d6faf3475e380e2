"""`topics test`, `topics log` and `topics tune`, as a person sees them."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest

from mcp_server.app import open_memory
from tests.conftest import KEYWORDS_ONLY, Run
from tests.topics.test_gate_log import write

TOPIC = """---
type: topic
description: Reviewing a pull request, its diff and its tests.
triggers:
  - {type: keywords, match: [PR, review]}
  - {type: pattern, match: '/^print "/m', scope: output, correction_hint: print is a function}
subscriptions: [knowledge/procedures/review.md]
priority: high
---

# Review

Read the description, then the tests, then the diff.
"""


@pytest.fixture(autouse=True)
def topics(empty_memory: None, workspace: Path) -> Path:
    """The folder of topics, in which there are two."""
    folder = workspace / "topics"
    for shipped in folder.glob("*.md"):
        shipped.unlink()
    (folder / "review.md").write_text(TOPIC)
    (folder / "manual.md").write_text(TOPIC.replace("priority: high", "activation: manual"))
    (workspace / "knowledge" / "procedures").mkdir(exist_ok=True)
    (workspace / "knowledge" / "procedures" / "review.md").write_text("# How we review\n\nBe kind.\n")
    return folder


def test_a_message_is_followed_tier_by_tier(run: Run) -> None:
    shown = run("topics", "test", "Please review my PR, its diff and tests", "--text")
    assert "1 of 2 come in, 1 were considered and stay out" in shown
    assert "● review  comes in" in shown
    assert "○ manual  stays out" in shown
    assert "Please [review] my PR" in shown
    assert "at 7–13" in shown
    assert "line 5" in shown
    assert "threshold 0.15" in shown
    assert "sure enough without the gate" in shown
    assert "manual: only you activate it" in shown
    assert "topics/review.md" in shown
    assert "subscription of review" in shown
    assert "Be kind." in shown
    assert "tokens" in shown


def test_json_has_every_number(run: Run) -> None:
    found = json.loads(run("topics", "test", "Please review my PR, its diff and tests", "--json"))
    review, manual = found["topics"]
    assert (review["topic"], review["active"], manual["active"]) == ("review", True, False)
    first = review["tier1"][0]
    assert (first["kind"], first["said"], first["start"], first["end"]) == ("keywords", "review", 7, 13)
    assert review["tier2"]["score"] >= review["tier2"]["threshold"] == 0.15
    assert review["tier3"]["way"] == "activate"
    assert found["injected"]["tokens"] > 0
    assert [one["included"] for one in found["injected"]["items"]] == [True, True]
    assert found["not_considered"] == 0


def test_what_an_agent_says_earns_a_correction(run: Run) -> None:
    shown = run("topics", "test", "--output", 'Sure:\nprint "hello"')
    assert "a correction needs no gate" in shown
    assert "correction: review" in shown
    assert "Nothing would come" not in shown


def test_the_arithmetic_of_the_gate_is_shown(run: Run) -> None:
    shown = run("topics", "test", "the newspaper's review of that restaurant by the harbour was devastating")
    assert "the gate decides" in shown
    assert "gate without LLM:" in shown
    assert "Nothing would come into the context." in shown


def test_a_message_about_nothing_says_so_and_many_topics_are_cut(topics: Path, run: Run) -> None:
    assert "0 of 2 come in, 0 were considered" in run("topics", "test", "ok, thanks")
    for number in range(15):
        (topics / f"other{number}.md").write_text(TOPIC.replace("priority: high", "activation: manual"))
    assert "4 more that stay out (--all)" in run("topics", "test", "review the PR")
    assert "(--all)" not in run("topics", "test", "review the PR", "--all")


def test_trying_a_message_writes_nothing(workspace: Path, run: Run) -> None:
    run("topics", "test", "Please review my PR, its diff and tests")
    assert not (workspace / ".local" / "logs" / "context" / "gate.jsonl").exists()
    assert "No decision is logged" in run("topics", "log")


def test_the_log_shows_decisions_and_what_became_of_them(run: Run) -> None:
    run("observe", "--role", "user", "--session", "talk", "Please review my PR, its diff and tests")
    shown = run("topics", "log")
    assert "review" in shown
    assert "keywords: review" in shown
    (line,) = json.loads(run("topics", "log", "--json", "--topic", "review"))
    assert (line["topic_name"], line["was_useful"]) == ("review", None)
    run("topics", "deactivate", "review", "--session", "talk")
    (line,) = json.loads(run("topics", "log", "--json", "--session", "talk"))
    assert line["was_useful"] is False
    assert "No decision" in run("topics", "log", "--session", "other")


def test_tuning_shows_before_and_after_and_writes_on_request(topics: Path, workspace: Path, run: Run) -> None:
    async def decide() -> None:
        async with open_memory(workspace, KEYWORDS_ONLY) as memory:
            for number in range(12):
                write(memory, number, 0.3 if number % 2 else 0.5, useful=not number % 2)

    (topics / "deployment.md").write_text(TOPIC)
    anyio.run(decide)
    shown = run("topics", "tune")
    assert "12 decisions logged, 12 of them with a known use" in shown
    assert "0.50 → 1.00" in shown
    assert "Nothing is written." in shown
    assert "written: topics/deployment.md" in run("topics", "tune", "--apply")
    assert "similarity_threshold" in (topics / "deployment.md").read_text()
    assert json.loads(run("topics", "tune", "--json"))["known"] == 12
