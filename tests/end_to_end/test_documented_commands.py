"""Every `context-manager` line in a shell block of the README and of docs/ runs, page by page, in the page's order."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import KEYWORDS_ONLY
from tests.gitting import git
from tests.preloaded import context_manager
from tests.running import run
from tests.test_readme import PAGES, named, shell_lines

FACTS = ("Marta moved to Basel and lives in Basel since May.", "The vault's code is 4711, said Filip.")
SECRET = f"ghp_{'a1B2c3D4' * 4}"
HARBOUR = "knowledge/reference/harbour.md"
ON_POSTGRESQL = "context-manager members "
"""Such lines need a database; test_team_http.py runs them."""


def lines_to_run(page: Path) -> list[str]:
    return [line for line in shell_lines(page) if not line.startswith(ON_POSTGRESQL)]


RUNNING = [page for page in PAGES if lines_to_run(page)]


@dataclass(frozen=True, slots=True)
class Reader:
    """A reader of the documentation: a home folder with earlier conversations, and a memory with a git remote."""

    home: Path

    @property
    def memory(self) -> Path:
        return self.home / ".context-manager"

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        ours = ("CONTEXT_MANAGER_", "CLAUDE", "XDG_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        env = {**kept, **KEYWORDS_ONLY, "HOME": str(self.home)}
        return run(context_manager(*arguments), cwd=self.home, env=env)

    def done(self, *arguments: str) -> str:
        done = self.run(*arguments)
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)
        return done.stdout

    def git(self, *arguments: str) -> str:
        return git(self.memory, *arguments)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home folder in which every documented command has something to work on."""
    reader = Reader(tmp_path_factory.mktemp("reader") / "home")
    transcript = {"type": "user", "uuid": "u1", "parentUuid": None, "sessionId": "11111111-1111-4111-8111-111111111111"}
    line = json.dumps(
        {
            **transcript,
            "timestamp": "2026-02-03T10:00:00Z",
            "cwd": "/p",
            "message": {"role": "user", "content": "The berth costs 40 euros."},
        }
    )
    (reader.home / ".claude" / "projects" / "p").mkdir(parents=True)
    (reader.home / ".claude" / "projects" / "p" / "11111111-1111-4111-8111-111111111111.jsonl").write_text(line + "\n")
    (reader.home / "notes").mkdir()
    (reader.home / "notes" / "boat.md").write_text("# Boat\n\nThe boat is painted in April.\n")
    reader.done("init")
    for fact in FACTS:
        reader.done("remember", fact, "--path", HARBOUR)
    for number, (role, text) in enumerate([("user", "Shall ClaraCore use SQLite?"), ("agent", "Yes."), ("user", "ok")]):
        reader.done("observe", text, "--role", role, "--session", "ses_a1b2", "--turn-id", f"t{number}")
    reader.done("checkpoint", "create", "--session", "ses_a1b2")
    with zipfile.ZipFile(reader.home / "data-2026-02-16.zip", "w") as downloaded:
        said = [{"uuid": "n1", "sender": "human", "text": "The mast is lowered in October."}]
        conversation = {"uuid": "22222222-2222-4222-8222-222222222222", "name": "Mast", "chat_messages": said}
        downloaded.writestr("conversations.json", json.dumps([conversation]))
    git(reader.home, "init", "--quiet", "--bare", "remote.git")
    reader.git("add", "--all")
    reader.git("commit", "--quiet", "-m", "facts about the harbour")
    (reader.memory / "knowledge" / "reference" / "old-notes.md").write_text(f"# Keys\n\nThe key is {SECRET}.\n")
    reader.git("remote", "add", "origin", str(reader.home / "remote.git"))
    return reader.home


@pytest.fixture
def reader(prepared: Path, tmp_path: Path) -> Reader:
    shutil.copytree(prepared, tmp_path / "home", symlinks=True)
    reader = Reader(tmp_path / "home")
    reader.git("remote", "set-url", "origin", str(reader.home / "remote.git"))
    return reader


def filled(line: str, reader: Reader) -> list[str]:
    """Returns the arguments of a documented line, with values of the reader's memory for the placeholders."""
    line = line.replace("COMMIT", reader.git("log", "-1", "--format=%H", "--", HARBOUR))
    if re.search(r"(?<!--session )\bID\b", line):
        checkpoint = json.loads(reader.done("checkpoint", "list", "--json"))[0]["id"]
        line = re.sub(r"(?<!--session )\bID\b", checkpoint, line)
    line = re.sub(r"(?<=--session )(?:ID|SESSION)\b", "ses_a1b2", line).replace("ses_a1b2#7", "ses_a1b2#1")
    line = re.sub(r"\bPATH\b", HARBOUR, line).replace("~", str(reader.home))
    return shlex.split(line.replace("2026-02-01", "HEAD"))[1:]


@pytest.mark.parametrize("page", RUNNING, ids=named)
def test_every_command_of_the_page_runs(reader: Reader, page: Path) -> None:
    for line in lines_to_run(page):
        done = reader.run(*filled(line, reader))
        expected = 1 if "doctor --secrets" in line else 0  # it finds the one that is stored
        assert done.returncode == expected, (line, done.stdout, done.stderr)
        assert done.stdout.strip(), line
