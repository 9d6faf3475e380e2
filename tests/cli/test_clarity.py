"""`status clarity` and `anchor`: each shows something true of a real workspace, for a person and for a program."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mcp_server.model import Delivery, Role
from tests.conftest import Run
from tests.pressing import converse, errand

pytestmark = pytest.mark.usefixtures("empty_memory", "fast_notes")


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
    fates = as_json(talked, "prune", "--strategy", "clarity", "--apply")["fates"]
    assert [one["id"] for one in fates if one["fate"] == "gone"] == ["focus-engine"]
    assert as_json(talked, "status", "clarity", "--stats")["pruned"] == 1


def test_without_a_conversation_it_says_how_to_begin(run: Run) -> None:
    assert "`observe` opens one" in run("status", "clarity", code=1)
    assert "no session 'x'" in run("status", "clarity", "--scores", "--session", "x", code=1)
    assert "--json comes after" in run("status", "--json", "clarity", code=2)
    assert json.loads(run("status", "--json"))["clarity"]["session"] == "none yet"


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


TELLING = (
    "prune --strategy compact --session s1",
    "prune --strategy compact --session s1 --apply",
    "prune --session s1",
    "prune --session s1 --strategy compact --target 5 --apply",
    "prune --session s1 --strategy advisor --apply",
    "status gauges --notify-if-pct 0.0",
    "status gauges",
    "status logs",
    "recover CHUNK",
    "recover CHUNK --apply",
)


@pytest.mark.usefixtures("small_contexts")
@pytest.mark.parametrize("delivery", ["add", "replace"])
def test_every_command_that_tells_of_pruning_says_whose_context_it_is(
    run: Run, workspace: Path, monkeypatch: pytest.MonkeyPatch, delivery: Delivery
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    converse(workspace, [("user", errand(number)) for number in range(8)], "s1", delivery)
    for command in TELLING:
        chunk = ""
        if "CHUNK" in command:
            chunk = json.loads(run("recover", "--session", "s1", "--json"))[0]["id"]
        text = " ".join(run(*(chunk if word == "CHUNK" else word for word in command.split())).split())
        assert text, command
        if delivery == "add":
            assert "mirror" in text, (command, text)
            assert "/compact" in text or "paste it there" in text, (command, text)
        else:
            assert "mirror" not in text, (command, text)
            assert "/compact" not in text, (command, text)
