"""`topics list|activate|deactivate` for a person and for a program."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import Run


@pytest.mark.usefixtures("empty_memory")
def test_topics_are_listed_and_switched(run: Run, workspace: Path) -> None:
    before = json.loads(run("topics", "list", "--json"))
    assert [topic["name"] for topic in before["topics"]] == [
        "pull-request-review",
        "python-3",
        "deployment",
        "email-triage",
        "weekly-review",
    ]
    assert {topic["name"] for topic in before["topics"] if topic["activation"] == "manual"} == {
        "deployment",
        "weekly-review",
    }
    assert before["session"] is None
    assert "no conversation yet" in run("topics", "activate", "deployment", code=1)

    said = run("observe", "Please go through my inbox and sort the unread mails", "--session", "s")
    assert "topics now active: email-triage (pattern “go through my inbox" in said
    listed = run("topics", "list")
    assert "# Topics: 5, 1 active in s" in listed
    assert "for 3 more exchanges" in listed
    assert "deployment is active now, until you deactivate it (session s)" in run("topics", "activate", "Deployment")
    assert json.loads(run("topics", "deactivate", "deployment", "--json"))["changed"] is True
    assert "is already off" in run("topics", "deactivate", "deployment")
    assert json.loads(run("status", "topics", "--session", "s", "--json"))["topics"]["active"].keys() == {
        "email-triage"
    }

    (workspace / "topics" / "bad.md").write_text("---\ntriggers:\n  - type: patern\n---\n", encoding="utf-8")
    assert "- topics/bad.md: line 3: `triggers.0`: 'patern' is not a type of trigger" in run("topics", "list")
    assert "did you mean 'email-triage'?" in run("topics", "activate", "emial", code=1)
    assert "no session 'x'" in run("topics", "list", "--session", "x", code=1)
