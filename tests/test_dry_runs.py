"""Whatever only shows what it would do leaves every byte of the workspace as it was: each command and each tool."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from mcp_server.storage.sqlite import driver
from tests.conftest import Run
from tests.pressing import converse, errand
from tests.serving import PLAIN, call, connected
from tests.workspaces import bytes_of

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("fast_notes")]

STRATEGIES = ("auto", "clarity", "advisor", "compact", "memory", "files")
PROPOSED = "Ana keeps bees."
SMALL = {"CONTEXT_MANAGER_CONTEXT__LIMIT_TOKENS": "1000", "CONTEXT_MANAGER_CONTEXT__AUTO_RECOVER": "0"}

COMMANDS = (
    *(f"prune --strategy {name} --session s1" for name in STRATEGIES),
    "prune",
    "prune --strategy compact --target 5",
    "recover",
    "recover --query tulips",
    "recover CHUNK",
    "recover knowledge/memory/MEMORY.md@HEAD",
    "forget ladder",
    "forget --turn s1#2",
    "forget --session s2",
    "reset",
    "reset --index",
    "approve",
    "approve PROPOSAL",
    "approve PROPOSAL --reject",
    "approve --all",
    "extract",
    "condense weekly",
    "project rename OLD new",
    "project merge OLD other",
    "topics tune",
    "uninstall --all --purge",
    "recover --session s1",
    "status gauges",
    "status logs",
    "config get",
)
"""Those that have a dry run, those whose other form does something, and those that only look."""


def held(root: Path) -> dict[str, str]:
    """A hash of every file, and every row of the state; without the index, which notes when it looked at a file."""
    files = {path: found for path, found in bytes_of(root).items() if "/index/" not in path}
    connection = driver().module.connect(root / ".local" / "state.db")  # two libraries in one process break its locks
    tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
    rows = {table: repr(connection.execute(f"SELECT * FROM {table}").fetchall()) for (table,) in tables}
    connection.close()
    return files | rows


def test_no_command_that_only_shows_changes_a_byte(run: Run, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SMALL.items():
        monkeypatch.setenv(name, value)
    converse(workspace, [("user", errand(number)) for number in range(10)], "s1")
    for session, project in (("s3", "other"), ("s2", "boats")):
        run("observe", "We talk of other things.", "--session", session, "--project", project)
    run("remember", "The ladder stands in the paint-shed.")
    run("remember", "The ladder has nine rungs.")
    memory = workspace / "knowledge" / "memory" / "MEMORY.md"
    memory.write_text(memory.read_text() + "".join(f"- 2026-01-01: Old fact {n}.\n" for n in range(190)))
    run("remember", PROPOSED, "--kind", "identity")
    (proposal,) = json.loads(run("approve", "--json"))["proposals"]
    chunk = json.loads(run("recover", "--session", "s1", "--json"))[0]["id"]
    run("search", "ladder")  # the index knows what was written by hand
    values = {"CHUNK": chunk, "PROPOSAL": proposal["proposal"]["id"], "OLD": "boats"}
    changed: dict[str, list[str]] = {}
    before = held(workspace)
    for command in COMMANDS:
        for more in ((), ("--json",)):
            assert run(*(values.get(word, word) for word in command.split()), *more), command
        after = held(workspace)
        if after != before:
            changed[command] = [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
        before = after
    assert changed == {}


async def test_no_tool_that_only_shows_changes_a_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SMALL.items():
        monkeypatch.setitem(PLAIN, name, value)
    async with connected(tmp_path) as client:
        for number in range(10):
            await call(client, "observe", role="user", content=errand(number), session="s1", delivery="replace")
        await call(client, "remember", content="The ladder has nine rungs.", session="s1")
        listed = await call(client, "recover")
        chunk = re.findall(r" · (c[0-9a-f]{11})$", listed, re.MULTILINE)[0]
        looks: list[tuple[str, dict[str, str]]] = [
            *(("prune", {"strategy": strategy, "session": "s1"}) for strategy in STRATEGIES),
            ("recover", {}),
            ("recover", {"id": chunk}),
            ("recover", {"query": "tulips"}),
            ("recover", {"id": "knowledge/memory/MEMORY.md@HEAD"}),
        ]
        before = held(tmp_path)
        for tool, arguments in looks:
            assert await call(client, tool, **arguments)
            assert held(tmp_path) == before, (tool, arguments)
