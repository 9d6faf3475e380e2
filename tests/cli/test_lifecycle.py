"""`extract`, `condense` and `archive` for a person and for a program."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from mcp_server.cli.main import main

Run = Callable[..., str]


@pytest.fixture
def run(workspace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Runs a command; checks its exit code, gives what it said."""
    monkeypatch.setenv("CONTEXT_MANAGER_SEARCH__EMBEDDER", "none")
    monkeypatch.delenv("CLAUDE_PROJECT_DIR", raising=False)
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, code: int = 0) -> str:
        capsys.readouterr()
        assert main(["--workspace", str(workspace), *arguments]) == code, capsys.readouterr().err
        captured = capsys.readouterr()
        return captured.out if code == 0 else captured.err

    return run


def test_a_conversation_becomes_knowledge_when_it_ends_and_can_be_looked_at_before(run: Run, workspace: Path) -> None:
    run("observe", "I adopted two kittens in Zagreb yesterday.", "--session", "s")
    looked = run("extract", "--session", "s", "--dry-run")
    assert "+## What happened" in looked
    assert "dry run: nothing has changed" in looked
    assert not (workspace / "knowledge/people/user.md").exists()
    run("session", "end", "s")
    assert "kittens" in (workspace / "knowledge/people/user.md").read_text()
    assert "1 known already" in run("extract")
    assert json.loads(run("extract", "--anew", "--json"))["files"] == []
    assert "no extractor 'x'" in run("extract", "--only", "x", code=1)


def test_condensing_and_archiving_say_what_they_did(run: Run, workspace: Path) -> None:
    run("observe", "I decided to keep Postgres 15 for the billing tables.", "--session", "s")
    run("session", "end", "s")
    assert "+- " in run("condense", "weekly", "--dry-run")
    assert json.loads(run("condense", "weekly", "--json"))["files"][0]["path"] == "knowledge/memory/MEMORY.md"
    assert "0 files changed" in run("condense", "weekly")
    assert "knowledge/people/_index.md" not in run("condense", "daily")
    (journal,) = (workspace / "knowledge/journal").glob("*.md")
    path = f"knowledge/journal/{journal.name}"
    assert "would go" in run("archive", path, "--dry-run")
    assert journal.exists()
    assert "bring back: recover" in run("archive", path)
    assert (workspace / "archive/journal" / journal.name).exists()
    nothing = run("archive")
    assert "archive: journals: " in nothing
    assert "Nothing was to be archived." in nothing
    assert "prune" not in nothing
    assert json.loads(run("archive", "--json"))["archived"][0]["gone"] == []
