"""What the maintaining process does for hooks: what waited is worked off before the door opens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from mcp_server.app import open_memory
from mcp_server.clients.hooks import listener, offline, protocol
from mcp_server.memory import Memory
from tests.clients.hooks.asking import queued, responded
from tests.clients.hooks.windows import ClaudeWindow
from tests.conftest import project_folder
from tests.end_to_end.servers import eventually
from tests.serving import PLAIN

pytestmark = pytest.mark.anyio

FACT = "The staging database of the harbour app is called walrus and listens on port 6543."


async def test_what_waited_is_found_by_the_first_prompt_that_is_answered(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    monkeypatch.setattr(listener, "FIRST_SECONDS", 60.0)  # however slow this machine is
    project = project_folder(tmp_path / "a project", "harbour")
    async with open_memory(workspace, PLAIN) as memory:
        earlier = ClaudeWindow(memory, tmp_path / "projects", project, "one")
        earlier.write("user", FACT)
        earlier.write("assistant", "Noted.")
        ended: dict[str, object] = {
            "session_id": "one",
            "transcript_path": str(earlier.transcript),
            "cwd": str(earlier.folder),
        }
        offline.enqueue(str(memory.disk.local), "SessionEnd", ended)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listener.attend, memory)
            await eventually((memory.disk.local / protocol.ADDRESS).exists)
            prompt = "On which port does the staging database of the harbour app listen?"
            now: dict[str, Any] = {"session_id": "two", "cwd": str(earlier.folder), "prompt": prompt}
            answer = await responded(workspace, "UserPromptSubmit", **now)
            tasks.cancel_scope.cancel()
    assert "6543" in answer["hookSpecificOutput"]["additionalContext"]
    assert answer["systemMessage"].startswith("memory: 1 passage")
    assert queued(workspace / ".local") == []


async def test_the_tool_waits_for_it_too_but_only_while_a_server_is_starting(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "FIRST_SECONDS", 60.0)
    await listener.begun(memory)  # nobody starts: it does not wait for ever
    protocol.mark_starting(str(memory.disk.local))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listener.attend, memory)
        await listener.begun(memory)
        assert (memory.disk.local / protocol.ADDRESS).exists()
        tasks.cancel_scope.cancel()


async def test_where_nobody_can_listen_the_queue_is_worked_off_all_the_same(
    memory: Memory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def refused(memory: Memory, handle: listener.Handle) -> None:
        raise PermissionError("somebody else's folder")

    monkeypatch.setattr(listener, "listen", refused)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listener.attend, memory)
        await eventually(lambda: "somebody else's folder" in caplog.text)
        await responded(memory.disk.root, "Stop", transcript_path="/nowhere.jsonl")
        await eventually(lambda: queued(memory.disk.local) == [])
        tasks.cancel_scope.cancel()
