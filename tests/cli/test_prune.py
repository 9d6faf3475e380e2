"""`prune` for a person and for a program."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import Run
from tests.pressing import converse
from tests.workspaces import bytes_of

pytestmark = pytest.mark.usefixtures("small_contexts")


@pytest.fixture
def said(run: Run, workspace: Path) -> Run:
    """The same after a conversation of some turns."""
    part = "Part {} of the garden fence needs paint and new nails; the ladder is in the shed. " * 2
    converse(workspace, [("user", part.replace("{}", str(number))) for number in range(9)], "s")
    return run


def test_a_compaction_is_shown_and_then_applied(said: Run, workspace: Path) -> None:
    before = bytes_of(workspace)
    looked = said("prune", "--strategy", "compact")
    assert "would go to cold storage" in looked
    assert bytes_of(workspace) == before
    assert "prune auto" in said("prune")
    assert bytes_of(workspace) == before
    assert "went to cold storage" in said("prune", "--strategy", "compact", "--apply")
    assert list((workspace / ".local/cold-storage/s").glob("*.jsonl"))


def test_a_program_gets_everything(said: Run) -> None:
    looked = json.loads(said("prune", "--strategy", "compact", "--target", "5", "--json"))
    assert (looked["strategy"], looked["dry_run"], looked["session"]) == ("compact", True, "s")
    assert looked["tokens_after"] < looked["tokens_before"]
    assert {"id", "what", "why", "tokens", "after"} == set(looked["gone"][0])
    done = json.loads(said("prune", "--strategy", "compact", "--target", "5", "--apply", "--json"))
    assert set(done["undo"]) == {one["id"] for one in done["gone"] + done["fading"]}


@pytest.mark.parametrize("strategy", ["auto", "advisor", "clarity", "compact", "memory", "files"])
def test_each_strategy_says_something_true_of_the_last_conversation(said: Run, strategy: str) -> None:
    looked = json.loads(said("prune", "--strategy", strategy, "--json"))
    assert looked["strategy"] == strategy
    assert looked["session"] == (None if strategy in ("memory", "files") else "s")
    assert f"prune {strategy}: " in said("prune", "--strategy", strategy, "--apply")


def test_without_a_conversation_it_says_so(run: Run) -> None:
    run("init")
    assert "which session?" in run("prune", code=1)
    assert "MEMORY.md" in run("prune", "--strategy", "memory")


def test_the_lexicon_is_printed_so_that_a_copy_can_be_edited(run: Run, workspace: Path) -> None:
    run("init")
    text = run("prune", "--lexicon")
    assert "technologies:" in text
    assert json.loads(run("prune", "--lexicon", "--json"))["lexicon"].startswith(text.splitlines()[0])
