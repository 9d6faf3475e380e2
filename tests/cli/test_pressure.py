"""`health`, `drops`, `cold-storage`, `recover --chunk-id`, `logs stats` and `reset`, for a person and for a program."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.conftest import Run
from tests.pressing import converse

pytestmark = pytest.mark.usefixtures("small_contexts")


@pytest.fixture
def grown(run: Run, workspace: Path) -> Run:
    """The same after a conversation that was compacted."""
    part = "Part {0} of the fence needs paint of kind {0}; the ladder is in the shed. " * 4
    converse(workspace, [("user", part.format(number)) for number in range(11)], "s")
    return run


@pytest.mark.usefixtures("empty_memory")
def test_an_empty_memory_says_so_everywhere(run: Run) -> None:
    assert "No conversation is open" in run("health")
    assert "Nothing was dropped" in run("drops")
    assert "Cold storage is empty" in run("cold-storage", "list")
    assert "The logs are empty" in run("logs", "stats")
    assert "Nothing to recover" in run("recover")
    assert json.loads(run("health", "--json")) == json.loads(run("drops", "--json")) == []
    assert json.loads(run("cold-storage", "list", "--json"))["records"] == 0


def test_health_shows_bars_and_notifies_only_over_the_share(grown: Run) -> None:
    shown = grown("health")
    assert "█" in shown
    assert "of 1,000" in shown
    assert "compaction in" in shown
    (one,) = json.loads(grown("health", "--json"))
    assert 0.3 < one["pct_used"] < 0.5
    assert grown("health", "--notify-if-pct", "0.5") == ""
    assert "s is at" in grown("health", "--notify-if-pct", "0.1")
    assert "0<=x<=1" in grown("health", "--notify-if-pct", "50", code=2)
    grown("observe", "Full.", "--session", "s", "--context-tokens", "900")
    assert "s is at 90%" in grown("health", "--notify-if-pct", "0.5")


def test_a_dropped_chunk_is_listed_and_comes_back_at_once_or_is_only_shown(grown: Run) -> None:
    listed = json.loads(grown("drops", "--session", "s", "--json"))
    chunk = listed[-1]["chunk_id"]
    assert chunk in grown("drops", "--session", "s")
    assert chunk in grown("cold-storage", "list", "--session", "s")
    assert "would be recovered" in grown("recover", "--chunk-id", chunk, "--dry-run")
    assert chunk in grown("cold-storage", "list")
    done = grown("recover", "--chunk-id", chunk)
    assert done.startswith(f"recovered: {chunk}")
    assert chunk not in grown("cold-storage", "list")
    assert "(not in cold storage any more)" in grown("drops", "--session", "s")
    (undo,) = re.findall(r"context-manager recover (before-\w+) --apply", done)
    assert "went back to cold storage" in grown("recover", undo, "--apply")
    assert chunk in grown("cold-storage", "list")
    assert "context-manager:" in grown("drops", "--session", "nobody", code=1)


def test_recover_takes_one_thing_at_a_time(grown: Run) -> None:
    assert "give one of" in grown("recover", "x", "--query", "y", code=2)
    assert "--apply needs" in grown("recover", "--apply", code=2)
    assert "give one of them" in grown("recover", "--chunk-id", "x", "--apply", "--dry-run", code=2)
    assert "equally well" in grown("recover", "--query", "ladder shed", "--apply", code=1)
    assert "kind 0" in grown("recover", "--query", "fence paint")


def test_the_logs_are_a_table_and_a_chart(grown: Run) -> None:
    shown = grown("logs", "stats")
    for part in ("Why chunks were dropped", "Scores of what was dropped", "Tokens saved", "█", "compaction", "median"):
        assert part in shown
    stats = json.loads(grown("logs", "stats", "--json"))["stats"]
    assert sum(stats["reasons"].values()) == sum(one["count"] for one in stats["scores"])
    assert stats["compaction"]["total"] > 0
    assert "The logs are empty" in grown("logs", "stats", "--since", "2999-01-01")


def test_reset_says_what_it_deletes_before_it_does(grown: Run, workspace: Path) -> None:
    looked = grown("reset")
    assert "This would be deleted:" in looked
    assert "This stays: raw/" in looked
    assert (workspace / ".local/logs/context/drops.jsonl").exists()
    done = grown("reset", "--force")
    assert "This is deleted:" in done
    assert done.rstrip().endswith("Done.")
    assert not (workspace / ".local/logs/context/drops.jsonl").exists()
    assert json.loads(grown("session", "list", "--json"))[0]["turns"] == 11
    assert json.loads(grown("cold-storage", "list", "--json"))["records"] > 0
