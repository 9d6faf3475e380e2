"""`clarity`, `anchor`, `unanchor`: each shows something true of a real workspace, for a person and for a program."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mcp_server.model import Role
from tests.conftest import Run
from tests.pressing import converse


@pytest.fixture
def talked(run: Run) -> Run:
    run("observe", "ClaraCore and focus-engine and the oven", "--session", "s")
    run("observe", "the oven is out of order, says ClaraCore", "--session", "s", "--role", "agent")
    run("observe", "is the oven | ok?", "--session", "s")
    return run


def as_json(run: Run, *arguments: str) -> Any:
    return json.loads(run(*arguments, "--json"))


def test_the_status_and_its_scores(talked: Run) -> None:
    shown = talked("clarity")
    assert "[CLARITY CONTEXT]" in shown
    assert "claracore" in shown
    state = as_json(talked, "clarity", "--session", "s")
    assert (state["items"], state["exchanges"]) == (3, 2)
    assert "claracore" in talked("clarity", "scores")
    rows = as_json(talked, "clarity", "scores")["scores"]
    assert {row["id"]: row["references"] for row in rows} == {"claracore": 1, "focus-engine": 0, "oven": 0}
    assert all(abs(sum(row["terms"].values()) - row["score"]) < 1e-6 for row in rows)


def test_anchors_come_and_go_by_either_name(talked: Run, workspace: Path) -> None:
    assert "Nothing is anchored" in talked("anchor")
    assert "anchored" in talked("anchor", "ClaraCore", "--note", "our engine")
    assert as_json(talked, "clarity", "anchor", "oven") == {
        "item": "oven", "kind": "item", "on": True, "changed": True,
    }  # fmt: skip
    assert "our engine" in talked("anchor")
    assert [one["item"] for one in as_json(talked, "anchor")] == ["claracore", "oven"]
    assert "⚓ claracore" in talked("clarity")
    assert "no longer" in talked("clarity", "unanchor", "oven")
    assert as_json(talked, "unanchor", "claracore")["on"] is False
    assert "is not anchored" in talked("unanchor", "claracore", code=1)
    assert "needs an item" in talked("anchor", "--note", "x", code=2)
    assert (workspace / "anchors.yaml").exists()


def test_stats_config_and_prune(talked: Run, workspace: Path) -> None:
    assert "- items: 3" in talked("clarity", "stats")
    assert as_json(talked, "clarity", "stats")["items"] == 3
    assert '"halfLife": 5' in talked("clarity", "config")
    assert as_json(talked, "clarity", "config")["pruning"]["maxContextItems"] == 50
    assert "Nothing to prune" in talked("clarity", "prune")
    said: list[tuple[Role, str]] = [("user", f"so, and number {number}?") for number in range(15)]
    converse(workspace, [*said, ("user", "the oven again")], "s", None)
    before = as_json(talked, "clarity", "scores")
    assert "would leave the block" in talked("clarity", "prune", "--dry-run")
    assert as_json(talked, "clarity", "scores") == before
    assert [one["item"]["id"] for one in as_json(talked, "clarity", "prune")["gone"]] == ["focus-engine"]
    assert as_json(talked, "clarity", "stats")["pruned"] == 1


@pytest.mark.usefixtures("empty_memory")
def test_without_a_conversation_it_says_how_to_begin(run: Run) -> None:
    assert "observe opens one" in run("clarity", code=1)
    assert "no session 'x'" in run("clarity", "scores", "--session", "x", code=1)
    assert "options come after" in run("clarity", "--json", "scores", code=2)
    assert json.loads(run("status", "clarity", "--json"))["clarity"]["session"] == "none yet"
