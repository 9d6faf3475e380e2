"""In `add` everything that tells of pruning says whose context it is and what the user can do; in `replace` nothing
speaks of a client's window."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from mcp_server.cli.main import main
from tests.serving import PLAIN
from tests.test_wording import claims

SUBJECTS = ("the paint-shed and its ladder", "tulips in bed four of the garden", "the harbour and its winter berth")
TELLING = (
    "compact --now --dry-run --session s1",
    "compact --now --session s1",
    "prune --session s1 --dry-run",
    "prune --session s1 --strategy compact --target 5",
    "prune --session s1 --strategy advisor",
    "health",
    "health --notify-if-pct 0.0",
    "status gauges",
    "drops --session s1",
    "cold-storage list",
    "logs stats",
    "recover --chunk-id CHUNK --dry-run",
    "recover --chunk-id CHUNK",
)
Run = Callable[..., str]


@pytest.fixture
def run(workspace: Path, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Run:
    for name, value in (PLAIN | {"CONTEXT_MANAGER_CONTEXT__LIMIT_TOKENS": "1000", "COLUMNS": "400"}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("CLAUDE_PROJECT_DIR", raising=False)

    def run(*arguments: str) -> str:
        capsysbinary.readouterr()
        assert main(["--workspace", str(workspace), *arguments]) == 0, (arguments, capsysbinary.readouterr().err)
        return " ".join(capsysbinary.readouterr().out.decode().split())

    return run


@pytest.mark.parametrize("delivery", ["add", "replace"])
def test_every_command_that_tells_of_pruning_says_whose_context_it_is(run: Run, delivery: str) -> None:
    for number in range(8):
        about = SUBJECTS[number % 3]
        said = f"Part {number}: {about}. " + f"Much was done to {about} on day {number}. " * 5
        run("observe", said, "--session", "s1", "--delivery", delivery)
    for command in TELLING:
        chunk = ""
        if "CHUNK" in command:
            chunk = json.loads(run("cold-storage", "list", "--json"))["list"][0]["chunk_id"]
        text = run(*(chunk if word == "CHUNK" else word for word in command.split()))
        assert text, command
        assert claims(text) == [], command
        if delivery == "add":
            assert "mirror" in text, (command, text)
            assert "/compact" in text or "paste what it should see again" in text, (command, text)
        else:
            assert "mirror" not in text, (command, text)
            assert "/compact" not in text, (command, text)
