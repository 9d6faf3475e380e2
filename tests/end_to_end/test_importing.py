"""An import that is killed completes when it is run again; what the real Claude Code writes is understood."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from mcp_server.app import open_memory
from mcp_server.clients.importers.recording import CURSORS, capture
from mcp_server.clients.importers.run import import_path
from mcp_server.conversations.sessions import list_sessions, session_turns
from mcp_server.memory import Memory
from mcp_server.model import COMPACTION
from tests.clients.importers.claude_code_files import many
from tests.conftest import KEYWORDS_ONLY
from tests.end_to_end.claude import Desk, usable_claude
from tests.end_to_end.fake_anthropic import Asked, Calls, FakeAnthropic, Says
from tests.preloaded import context_manager

pytestmark = pytest.mark.anyio


async def everything_said(memory: Memory) -> dict[str, list[tuple[int, str | None, str]]]:
    rows = await list_sessions(memory, limit=1_000)
    return {
        row.session: [(t.number, t.turn_id, t.content) for t in await session_turns(memory, row.session)]
        for row in rows
    }


def import_and_kill(workspace: Path, projects: Path, wanted: int) -> bool:
    """Runs the command and kills it when it has recorded `wanted` sessions. Returns whether it was killed in time."""
    named = projects.parent / f"{wanted}.pid"
    command = context_manager("--workspace", str(workspace), "import", str(projects), pid_file=named)
    environment = {**os.environ, **KEYWORDS_ONLY}
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
        while run.poll() is None and len(list((workspace / "raw").rglob("*.md"))) < wanted:
            time.sleep(0.002)
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(named.read_text()) if named.exists() else run.pid, signal.SIGKILL)
    return run.returncode == -signal.SIGKILL


@pytest.mark.skipif(os.name == "nt", reason="kill -9 is a POSIX signal")
async def test_an_import_that_is_killed_completes_when_it_is_run_again(tmp_path: Path) -> None:
    projects, workspace = tmp_path / "projects", tmp_path / "killed"
    files = list(many(projects, 6))
    assert any([await anyio.to_thread.run_sync(import_and_kill, workspace, projects, wanted) for wanted in (1, 3)])
    async with open_memory(workspace, KEYWORDS_ONLY) as memory:
        report = await import_path(memory, projects)
        assert report.sessions == len(files)
        assert (await import_path(memory, projects, anew=True)).new_turns == 0
        after = await everything_said(memory)
    async with open_memory(tmp_path / "at-once", KEYWORDS_ONLY) as memory:
        await import_path(memory, projects)
        assert after == await everything_said(memory)


def model() -> Callable[[Asked], Says | Calls]:
    """Returns a model that runs a command and starts a subagent, once each, and else agrees."""
    left = [
        Calls("Bash", {"command": "echo harbour", "description": "List"}),
        Calls("Agent", {"description": "look", "prompt": "Say the colour.", "subagent_type": "general-purpose"}),
    ]

    def answer(asked: Asked) -> Says | Calls:
        if "summary" in asked.prompt:  # of a compaction
            return Says("They listed files and looked around.")
        if "colour" in asked.prompt:
            return Says("It is teal.")
        return left.pop(0) if left else Says(f"Understood: {asked.prompt[-40:]}")

    return answer


async def test_what_the_real_claude_code_writes_is_recorded(tmp_path: Path) -> None:
    first, fork = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
    with FakeAnthropic(model()) as api:
        home = tmp_path / "home"
        desk = Desk(usable_claude(), api, home, tmp_path / "work dir", tmp_path / "unused", plugin=home)  # no plugin
        projects = home / ".claude" / "projects"
        async with open_memory(tmp_path / "live", KEYWORDS_ONLY) as memory:

            async def ask(prompt: str, session: str, *options: str, final: bool = True) -> int:
                """Returns the number of new turns in the session after a prompt."""
                await anyio.to_thread.run_sync(desk.ask, prompt, "--allowedTools", "Bash", "Agent", *options)
                (path,) = projects.glob(f"*/{session}.jsonl")
                return await capture(memory, path, projects=projects, final=final)

            prompt = "please list the files and look around"
            assert await ask(prompt, first, "--session-id", first, final=False) >= 6
            await ask("/compact", first, "--resume", first)
            in_fork = ("--resume", first, "--fork-session", "--session-id", fork)
            assert await ask("the key lies in vault seven", fork, *in_fork) == 2
            for key in await memory.state.entries(CURSORS):
                await memory.state.remove(CURSORS, key)
            assert (await import_path(memory, projects)).new_turns == 0
            live = await everything_said(memory)
    async with open_memory(tmp_path / "once", KEYWORDS_ONLY) as memory:
        report = await import_path(memory, projects)
        assert report.format == "claude-code"
        assert await everything_said(memory) == live
        said = await session_turns(memory, first)
        (agent,) = [row.session for row in await list_sessions(memory) if row.kind == "subagent"]
        assert [turn.content for turn in await session_turns(memory, agent)] == ["Say the colour.", "It is teal."]
        assert "the key lies in vault seven" in [turn.content for turn in await session_turns(memory, fork)]
    assert said[0].content == prompt
    assert (said[1].tool_calls[0].summary, said[1].tool_calls[0].result) == ("List", "harbour")
    assert [turn.name for turn in said if turn.role == "system"] == [COMPACTION]
    assert not any("system-reminder" in turn.content for turn in said if turn.role == "user")
