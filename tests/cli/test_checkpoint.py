"""`context-manager checkpoint create|list|show|diff`."""

from __future__ import annotations

import json

import pytest

from tests.conftest import Run


@pytest.mark.usefixtures("empty_memory")
def test_what_was_written_down_is_listed_shown_and_compared(run: Run) -> None:
    assert "Make one" in run("checkpoint", "list")
    run("observe", "Decision: use two files for the cache", "--session", "s1")
    said = run("checkpoint", "create", "--note", "before the rewrite")
    assert "session s1, after turn 1: 1 decision" in said
    run("observe", "TODO: call Ana about the berth", "--session", "s1")
    run("anchor", "ClaraCore")
    made = json.loads(run("checkpoint", "create", "--session", "s1", "--json"))
    assert made["open_items"] == ["call Ana about the berth"]

    newest, oldest = json.loads(run("checkpoint", "list", "--json"))
    assert newest["id"] == made["id"]
    assert oldest["id"] in said
    listed = run("checkpoint", "list", "--session", "s1")
    assert "asked for: before the rewrite" in listed
    assert oldest["id"] not in run("checkpoint", "list", "--limit", "1")
    assert run("checkpoint", "list", "--session", "other") == run("checkpoint", "list", "--session", "none")

    shown = run("checkpoint", "show", made["id"])
    assert "## Open items\n- call Ana about the berth" in shown
    assert "## State" not in shown, "what programs need stands in the file"
    assert json.loads(run("checkpoint", "show", made["id"], "--json"))["decisions"] == made["decisions"]

    assert "anchors taken away: claracore" in run("checkpoint", "diff", oldest["id"]).lower()
    between = json.loads(run("checkpoint", "diff", newest["id"], oldest["id"], "--json"))
    assert any("anchors" in line for line in between["diff"])


@pytest.mark.usefixtures("empty_memory")
def test_what_is_wrong_is_said_with_the_nearest_id(run: Run) -> None:
    assert "no conversation yet" in run("checkpoint", "create", code=1)
    run("observe", "Hello", "--session", "kitchen")
    made = json.loads(run("checkpoint", "create", "--json"))["id"]
    assert f"did you mean '{made}'?" in run("checkpoint", "show", made[:-1], code=1)
    assert "did you mean 'kitchen'?" in run("checkpoint", "create", "--session", "kitchem", code=1)


def test_status_names_the_last_one(run: Run) -> None:
    run("observe", "Hello", "--session", "s1")
    made = json.loads(run("checkpoint", "create", "--json"))["id"]
    assert f"last checkpoint: {made}" in run("status", "sessions")
    assert json.loads(run("status", "sessions", "--json"))["sessions"]["checkpoints"] == 1
