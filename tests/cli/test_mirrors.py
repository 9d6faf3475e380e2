"""In `add` everything that tells of pruning says whose context it is and what the user can do; in `replace` nothing
speaks of a client's window."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mcp_server.model import Delivery
from tests.conftest import Run
from tests.pressing import converse, errand

TELLING = (
    "prune --strategy compact --session s1",
    "prune --strategy compact --session s1 --apply",
    "prune --session s1",
    "prune --session s1 --strategy compact --target 5 --apply",
    "prune --session s1 --strategy advisor --apply",
    "status gauges --notify-if-pct 0.0",
    "status gauges",
    "session drops --session s1",
    "session drops --recoverable",
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
            chunk = json.loads(run("session", "drops", "--recoverable", "--json"))["list"][0]["chunk_id"]
        text = " ".join(run(*(chunk if word == "CHUNK" else word for word in command.split())).split())
        assert text, command
        if delivery == "add":
            assert "mirror" in text, (command, text)
            assert "/compact" in text or "paste what it should see again" in text, (command, text)
        else:
            assert "mirror" not in text, (command, text)
            assert "/compact" not in text, (command, text)
