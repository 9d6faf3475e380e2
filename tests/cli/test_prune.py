"""`prune` for a person and for a program."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.conftest import KEYWORDS_ONLY, Run, copied
from tests.pressing import converse
from tests.workspaces import bytes_of

pytestmark = pytest.mark.usefixtures("small_contexts", "fast_notes")


def made(folder: Path, part: str, turns: int) -> Path:
    """Makes a memory with one conversation in a folder."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**KEYWORDS_ONLY, "CONTEXT_MANAGER_CONTEXT__LIMIT_TOKENS": "1000"}.items():
            patch.setenv(name, value)
        patch.chdir(folder)
        converse(folder / "memory", [("user", part.format(number, number)) for number in range(turns)], "s")
    return folder / "memory"


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    part = "Part {} of the garden fence needs paint and new nails; the ladder is in the shed. "
    return made(tmp_path_factory.mktemp("short"), f"{part}{part}", 9)


@pytest.fixture
def said(run: Run, workspace: Path, short: Path) -> Run:
    """The same after a conversation of some turns."""
    copied(short, workspace)
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
    assert looked["after"] < looked["before"]
    assert {"id", "what", "fate", "why", "tokens", "after"} == set(looked["fates"][0])
    done = json.loads(said("prune", "--strategy", "compact", "--target", "5", "--apply", "--json"))
    assert set(done["undo"]) == {one["id"] for one in done["fates"] if one["fate"] != "keep"}


@pytest.mark.usefixtures("empty_memory")
def test_without_a_conversation_it_says_so(run: Run) -> None:
    assert "name a session" in run("prune", code=1)
    assert "MEMORY.md" in run("prune", "--strategy", "memory")


@pytest.mark.usefixtures("empty_memory")
def test_the_lexicon_is_printed_so_that_a_copy_can_be_edited(run: Run) -> None:
    text = run("prune", "--lexicon")
    assert "technologies:" in text
    assert json.loads(run("prune", "--lexicon", "--json"))["lexicon"].startswith(text.splitlines()[0])


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    part = "Part {0} of the fence needs paint of kind {0}; the ladder is in the shed. " * 4
    return made(tmp_path_factory.mktemp("long"), part, 11)


@pytest.fixture
def grown(run: Run, workspace: Path, long: Path) -> Run:
    """The same after a conversation that was compacted."""
    copied(long, workspace)
    return run


@pytest.mark.usefixtures("empty_memory")
def test_an_empty_memory_says_so_everywhere(run: Run) -> None:
    assert "No conversation is open" in run("status", "gauges")
    assert "The logs are empty" in run("status", "logs")
    assert "Nothing to recover" in run("recover")
    assert json.loads(run("status", "gauges", "--json")) == json.loads(run("recover", "--json")) == []


def test_health_shows_bars_and_notifies_only_over_the_share(grown: Run) -> None:
    shown = grown("status", "gauges")
    assert "█" in shown
    assert "of 1,000" in shown
    assert "compaction in" in shown
    (one,) = json.loads(grown("status", "gauges", "--json"))
    assert 0.3 < one["pct_used"] < 0.5
    assert grown("status", "gauges", "--notify-if-pct", "0.5") == ""
    assert "s is at" in grown("status", "gauges", "--notify-if-pct", "0.1")
    assert "0<=x<=1" in grown("status", "gauges", "--notify-if-pct", "50", code=2)
    grown("observe", "Full.", "--session", "s", "--context-tokens", "900")
    assert "s is at 90%" in grown("status", "gauges", "--notify-if-pct", "0.5")


def test_a_dropped_chunk_is_listed_and_recovered_when_it_is_applied(grown: Run) -> None:
    chunk = json.loads(grown("recover", "--session", "s", "--json"))[-1]["id"]
    assert chunk in grown("recover", "--session", "s", "--query", "ladder shed", "--limit", "50")
    assert "would be recovered" in grown("recover", chunk)
    assert chunk in grown("recover", "--session", "s", "--limit", "50")
    done = grown("recover", chunk, "--apply")
    assert done.startswith(f"recovered: {chunk}")
    assert chunk not in grown("recover", "--session", "s", "--limit", "50")
    (undo,) = re.findall(r"context-manager recover (before-\w+) --apply", done)
    assert "went back to cold storage" in grown("recover", undo, "--apply")
    assert chunk in grown("recover", "--session", "s", "--limit", "50")
    assert "no session 'nobody'" in grown("recover", "--session", "nobody", code=1)


def test_recover_takes_one_thing_at_a_time(grown: Run) -> None:
    assert "not both" in grown("recover", "x", "--query", "y", code=2)
    assert "--apply needs" in grown("recover", "--apply", code=2)
    assert "equally well" in grown("recover", "--query", "ladder shed", "--apply", code=1)
    assert "kind 0" in grown("recover", "--query", "fence paint")


def test_the_logs_are_tables(grown: Run) -> None:
    shown = grown("status", "logs")
    for part in ("Why chunks were dropped", "Scores of dropped chunks", "Tokens saved", "curation", "median"):
        assert part in shown
    stats = json.loads(grown("status", "logs", "--json"))["stats"]
    assert sum(stats["reasons"].values()) == sum(one["count"] for one in stats["scores"])
    assert stats["curation"]["total"] > 0
    assert "The logs are empty" in grown("status", "logs", "--since", "2999-01-01")


def test_reset_says_what_it_deletes_before_it_does(grown: Run, workspace: Path) -> None:
    looked = grown("reset")
    assert "This would be deleted:" in looked
    assert "This stays: raw/" in looked
    assert (workspace / ".local/logs/context/drops.jsonl").exists()
    done = grown("reset", "--apply")
    assert "This is deleted:" in done
    assert done.rstrip().endswith("Done.")
    assert not (workspace / ".local/logs/context/drops.jsonl").exists()
    assert json.loads(grown("session", "list", "--json"))[0]["turns"] == 11
    assert json.loads(grown("recover", "--session", "s", "--json"))
