"""`status clarity` and `anchor`: each shows something true of a real workspace, for a person and for a program."""

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
    shown = talked("status", "clarity")
    assert "[CLARITY CONTEXT]" in shown
    assert "claracore" in shown
    state = as_json(talked, "status", "clarity", "--session", "s")
    assert (state["items"], state["exchanges"]) == (3, 2)
    assert "claracore" in talked("status", "clarity", "--scores")
    rows = as_json(talked, "status", "clarity", "--scores")["scores"]
    assert {row["id"]: row["references"] for row in rows} == {"claracore": 1, "focus-engine": 0, "oven": 0}
    assert all(abs(sum(row["terms"].values()) - row["score"]) < 1e-6 for row in rows)


def test_anchors_are_set_listed_and_removed(talked: Run, workspace: Path) -> None:
    assert "Nothing is anchored" in talked("anchor")
    assert "anchored" in talked("anchor", "ClaraCore", "--note", "our engine")
    assert as_json(talked, "anchor", "oven") == {
        "item": "oven", "kind": "item", "on": True, "changed": True,
    }  # fmt: skip
    assert "our engine" in talked("anchor")
    assert [one["item"] for one in as_json(talked, "anchor")] == ["claracore", "oven"]
    assert "⚓ claracore" in talked("status", "clarity")
    assert "no longer" in talked("anchor", "oven", "--off")
    assert as_json(talked, "anchor", "claracore", "--off")["on"] is False
    assert "is not anchored" in talked("anchor", "claracore", "--off", code=1)
    assert "need an item" in talked("anchor", "--note", "x", code=2)
    assert (workspace / "anchors.yaml").exists()


def test_stats_config_and_prune(talked: Run, workspace: Path) -> None:
    assert "- items: 3" in talked("status", "clarity", "--stats")
    assert as_json(talked, "status", "clarity", "--stats")["items"] == 3
    assert "clarity.scoring.half_life: 5" in talked("config", "get", "clarity")
    said: list[tuple[Role, str]] = [("user", f"so, and number {number}?") for number in range(15)]
    converse(workspace, [*said, ("user", "the oven again")], "s", None)
    before = as_json(talked, "status", "clarity", "--scores")
    assert "focus-engine" in talked("prune", "--strategy", "clarity")
    assert as_json(talked, "status", "clarity", "--scores") == before
    assert [one["id"] for one in as_json(talked, "prune", "--strategy", "clarity", "--apply")["gone"]] == [
        "focus-engine"
    ]
    assert as_json(talked, "status", "clarity", "--stats")["pruned"] == 1


@pytest.mark.usefixtures("empty_memory")
def test_without_a_conversation_it_says_how_to_begin(run: Run) -> None:
    assert "observe opens one" in run("status", "clarity", code=1)
    assert "no session 'x'" in run("status", "clarity", "--scores", "--session", "x", code=1)
    assert "--json comes after" in run("status", "--json", "clarity", code=2)
    assert json.loads(run("status", "--json"))["clarity"]["session"] == "none yet"
