"""`topics test`, `topics log` and `topics tune`, as a person sees them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mcp_server.cli.main import main
from tests.conftest import KEYWORDS_ONLY, copied
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
def workspace(tmp_path: Path, new_workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace with two topics, for commands."""
    root = tmp_path / "memory"
    for name, value in {**KEYWORDS_ONLY, "CONTEXT_MANAGER_HOME": str(root), "COLUMNS": "140"}.items():
        monkeypatch.setenv(name, value)
    copied(new_workspace, root)
    for shipped in (root / "topics").glob("*.md"):
        shipped.unlink()
    (root / "topics" / "review.md").write_text(TOPIC)
    (root / "topics" / "manual.md").write_text(TOPIC.replace("priority: high", "activation: manual"))
    (root / "knowledge" / "procedures").mkdir(exist_ok=True)
    (root / "knowledge" / "procedures" / "review.md").write_text("# How we review\n\nBe kind.\n")
    return root


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(list(arguments)) == 0
    return capsys.readouterr().out


def test_a_message_is_followed_tier_by_tier(capsys: pytest.CaptureFixture[str]) -> None:
    shown = said(capsys, "topics", "test", "Please review my PR, its diff and tests", "--text")
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


def test_json_has_every_number(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(said(capsys, "topics", "test", "Please review my PR, its diff and tests", "--json"))
    review, manual = found["topics"]
    assert (review["topic"], review["active"], manual["active"]) == ("review", True, False)
    first = review["tier1"][0]
    assert (first["kind"], first["said"], first["start"], first["end"]) == ("keywords", "review", 7, 13)
    assert review["tier2"]["score"] >= review["tier2"]["threshold"] == 0.15
    assert review["tier3"]["way"] == "activate"
    assert found["injected"]["tokens"] > 0
    assert [one["included"] for one in found["injected"]["items"]] == [True, True]
    assert found["not_considered"] == 0


def test_what_an_agent_says_earns_a_correction(capsys: pytest.CaptureFixture[str]) -> None:
    shown = said(capsys, "topics", "test", "--output", 'Sure:\nprint "hello"')
    assert "a correction needs no gate" in shown
    assert "correction: review" in shown
    assert "Nothing would come" not in shown


def test_the_arithmetic_of_the_gate_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    shown = said(capsys, "topics", "test", "the newspaper's review of that restaurant by the harbour was devastating")
    assert "the gate decides" in shown
    assert "gate without LLM:" in shown
    assert "Nothing would come into the context." in shown


def test_a_message_about_nothing_says_so_and_many_topics_are_cut(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "0 of 2 come in, 0 were considered" in said(capsys, "topics", "test", "ok, thanks")
    for number in range(15):
        (workspace / "topics" / f"other{number}.md").write_text(TOPIC.replace("priority: high", "activation: manual"))
    assert "4 more that stay out (--all)" in said(capsys, "topics", "test", "review the PR")
    assert "(--all)" not in said(capsys, "topics", "test", "review the PR", "--all")


def test_trying_a_message_writes_nothing(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said(capsys, "topics", "test", "Please review my PR, its diff and tests")
    assert not (workspace / ".local" / "logs" / "context" / "gate.jsonl").exists()
    assert "No decision is logged" in said(capsys, "topics", "log")


def test_the_log_shows_decisions_and_what_became_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    said(capsys, "observe", "--role", "user", "--session", "talk", "Please review my PR, its diff and tests")
    shown = said(capsys, "topics", "log")
    assert "review" in shown
    assert "keywords: review" in shown
    (line,) = json.loads(said(capsys, "topics", "log", "--json", "--topic", "review"))
    assert (line["topic_name"], line["was_useful"]) == ("review", None)
    said(capsys, "topics", "deactivate", "review", "--session", "talk")
    (line,) = json.loads(said(capsys, "topics", "log", "--json", "--session", "talk"))
    assert line["was_useful"] is False
    assert "No decision" in said(capsys, "topics", "log", "--session", "other")


@pytest.mark.anyio
async def test_tuning_shows_before_and_after_and_writes_on_request(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from mcp_server.app import open_memory

    (workspace / "topics" / "deployment.md").write_text(TOPIC)
    async with open_memory(workspace, KEYWORDS_ONLY) as memory:
        for number in range(12):
            write(memory, number, 0.3 if number % 2 else 0.5, useful=not number % 2)
    from anyio.to_thread import run_sync

    def ran(*arguments: str) -> str:
        return said(capsys, *arguments)

    shown = await run_sync(ran, "topics", "tune")
    assert "12 decisions logged, 12 of them with a known use" in shown
    assert "0.50 → 1.00" in shown
    assert "Nothing is written." in shown
    assert "written: topics/deployment.md" in await run_sync(ran, "topics", "tune", "--apply")
    assert "similarity_threshold" in (workspace / "topics" / "deployment.md").read_text()
    found = json.loads(await run_sync(ran, "topics", "tune", "--json"))
    assert found["known"] == 12
