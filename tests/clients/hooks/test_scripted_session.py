"""Thirty prompts in a project that the memory knows: little is pushed, it is right, and nothing twice."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from mcp_server.app import catch_up, open_memory
from mcp_server.context.windows import PUSHED
from mcp_server.conversations import sessions
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.memory import Memory
from mcp_server.model import Caller
from mcp_server.storage import logs
from tests.clients.hooks.scripted_session import EARLIER, ELSEWHERE, MEMORY, PROCEDURE, PROMPTS, Prompt
from tests.clients.hooks.windows import ClaudeWindow
from tests.conftest import Clock, project_folder

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("fast_notes")]

NOTHING_ON = ("ok", "thanks", "/clear", "continue", "👍", "!git status", "# buy milk", "yes, do it")


@pytest.fixture
async def window(
    tmp_path: Path, clock: Clock, new_id: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[ClaudeWindow]:
    """A window in a project, on a memory that has heard of it before. With real embeddings: they decide."""
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    folder = project_folder(tmp_path / "work" / "harbor app", "harbor")
    async with open_memory(tmp_path / "memory", {}, clock=clock, new_id=new_id) as memory:
        await furnish(memory, folder)
        yield ClaudeWindow(memory, tmp_path / "claude" / "projects", folder, "0a0a-session-of-thirty")


async def furnish(memory: Memory, folder: Path) -> None:
    """The earlier conversations and the files."""
    told = [(name, day, turns, str(folder)) for name, (day, turns) in EARLIER.items()]
    told.append(("balcony", "2026-02-08", ELSEWHERE, ""))
    for name, day, turns, place in told:
        at = datetime.fromisoformat(f"{day}T10:00:00").replace(tzinfo=UTC)
        for number, (role, content) in enumerate(turns):
            turn = NewTurn(role, content, session=name, at=at + timedelta(minutes=number))
            await observe(memory, turn, Caller(folder=place or None))
        await sessions.end_session(memory, name)
    memory.files.write_atomic("knowledge/memory/MEMORY.md", MEMORY)
    memory.files.write_atomic("knowledge/procedures/release.md", PROCEDURE)
    await catch_up(memory)


async def test_thirty_prompts(window: ClaudeWindow) -> None:
    brief = await window.start()
    assert 0 < window.memory.tokens.count(brief) <= 600
    assert "Marko reviews every pull request" in brief
    shown, tokens = brief, 0
    known: list[bool] = []
    pushed: list[str] = []
    relevant: list[bool] = []
    for prompt in PROMPTS:
        text = await window.prompt(prompt.text, prompt.answer)
        record = next(
            line for line in logs.newest_first(window.memory.files, PUSHED) if line["event"] != "SessionStart"
        )
        assert record["text"] == text
        assert record["tokens"] == window.memory.tokens.count(text) <= 300
        await window.memory.index.refresh()
        shown += text
        tokens += record["tokens"]
        known += [any(mark in shown for mark in prompt.relevant)] if prompt.relevant else []
        found = [one["id"] for one in record["considered"] if one["included"]]
        passages = [one for one in found if "#" not in one]  # "continue on harbor" gets the end of the last session
        assert bool(passages) != ("#" in "".join(found)) or not found
        assert not (prompt.text in NOTHING_ON and passages), prompt.text
        pushed += passages
        relevant += [_is_relevant(window.memory, one, prompt) for one in passages]

    assert len(pushed) == len(set(pushed)), "no passage twice"
    assert sum(relevant) / len(relevant) >= 1 / 3
    assert sum(known) >= 11, "the window holds the answer, from this prompt or an earlier one"
    assert tokens <= 100 * len(PROMPTS)


def _is_relevant(memory: Memory, identity: str, prompt: Prompt) -> bool:
    path, _, lines = identity.rpartition(":")
    first, last = (int(number) for number in lines.split("-"))
    text = "\n".join(memory.files.read_text(path).splitlines()[first - 1 : last])
    return any(mark in text for mark in prompt.relevant)
