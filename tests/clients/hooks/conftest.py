"""A project that the memory has heard of, and windows of Claude Code in it."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from mcp_server.app import open_memory
from mcp_server.clients.hooks import events
from mcp_server.context import push as inject
from mcp_server.conversations import sessions
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.memory import Memory
from mcp_server.model import Caller
from tests.clients.hooks.boathouse import FACT, LASTS, Open
from tests.clients.hooks.windows import ClaudeWindow
from tests.conftest import KEYWORDS_ONLY, Clock, project_folder


@pytest.fixture(autouse=True)
def patient_hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets hooks finish on a slow machine what they would otherwise leave for the next event."""
    monkeypatch.setattr(events, "PROMPT_CAPTURE_SECONDS", 60.0)
    monkeypatch.setattr(inject, "LIVE_SECONDS", 60.0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return project_folder(tmp_path / "a work" / "boat house", "boats")


@pytest.fixture
def window(memory: Memory, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Open:
    """Opens windows of Claude Code on the memory."""
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))

    def opened(session: str = "now", place: Path | None = None) -> ClaudeWindow:
        return ClaudeWindow(memory, tmp_path / "claude" / "projects", place or folder, session)

    return opened


@pytest.fixture(scope="session")
def told_workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace that was told where the key is, in a conversation of the project `boats`."""
    made = tmp_path_factory.mktemp("told") / "memory"
    place = project_folder(tmp_path_factory.mktemp("boats"), "boats")

    async def tell() -> None:
        async with open_memory(made, KEYWORDS_ONLY, clock=Clock()) as memory:
            for number, (role, text) in enumerate(
                [
                    ("user", FACT),
                    ("agent", "I will remember that."),
                    ("user", "We paint the hull in June."),
                    ("agent", "Noted."),
                    ("user", "Ana brings the brushes."),
                    ("agent", "Good."),
                    ("user", "The trailer has a flat tyre."),
                    ("agent", "I put it on the list."),
                ]
            ):
                turn = NewTurn(role, text, "earlier", turn_id=str(number))
                await observe(memory, turn, Caller(folder=str(place)))
            await sessions.end_session(memory, "earlier")
            memory.files.write_atomic("knowledge/projects/boats/context.md", f"{LASTS}\n")
            await memory.index.refresh()

    anyio.run(tell)
    return made


@pytest.fixture
def new_workspace(new_workspace: Path, request: pytest.FixtureRequest) -> Path:
    """The workspace that `memory` copies: a new one, or the one that was told."""
    made: Path = request.getfixturevalue("told_workspace") if "told" in request.fixturenames else new_workspace
    return made


@pytest.fixture
def told(memory: Memory) -> Memory:
    """Somebody told it where the key is, in an earlier conversation of the project."""
    return memory
