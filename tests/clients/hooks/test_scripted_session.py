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
from tests.conftest import Clock

pytestmark = pytest.mark.anyio

NOTHING_ON = ("ok", "thanks", "/clear", "continue", "👍", "!git status", "# buy milk", "yes, do it")


@pytest.fixture
async def window(
    tmp_path: Path, clock: Clock, new_id: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[ClaudeWindow]:
    """A window in a project, on a memory that has heard of it before. With real embeddings: they decide."""
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    folder = tmp_path / "work" / "harbor app"
    folder.mkdir(parents=True)
    (folder / ".context-manager").write_text("harbor\n", "utf-8")
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


async def test_thirty_prompts(window: ClaudeWindow, capsys: pytest.CaptureFixture[str]) -> None:
    brief = await window.start()
    assert 0 < window.memory.tokens.count(brief) <= 600
    assert "Marko reviews every pull request" in brief
    rows: list[tuple[Prompt, int, list[str], list[bool]]] = []
    shown, known = brief, []
    for prompt in PROMPTS:
        text = await window.prompt(prompt.text, prompt.answer)
        record = next(
            line for line in logs.newest_first(window.memory.files, PUSHED) if line["event"] != "SessionStart"
        )
        assert record["text"] == text
        assert record["tokens"] == window.memory.tokens.count(text) <= 300
        await catch_up(window.memory)
        shown += text
        known += [any(mark in shown for mark in prompt.relevant)] if prompt.relevant else []
        found = [one["id"] for one in record["considered"] if one["included"]]
        passages = [one for one in found if "#" not in one]  # "continue on harbor" gets the end of the last session
        assert bool(passages) != ("#" in "".join(found)) or not found
        rows.append(
            (prompt, record["tokens"], passages, [_is_relevant(window.memory, one, prompt) for one in passages])
        )

    with capsys.disabled():
        print(_report(rows, window.memory.tokens.count(brief)))
    everything = [one for _, _, passages, _ in rows for one in passages]
    assert len(everything) == len(set(everything)), "no passage twice"
    assert not [prompt.text for prompt, _, passages, _ in rows if prompt.text in NOTHING_ON and passages]
    right = [one for *_, relevant in rows for one in relevant]
    assert sum(right) / len(right) >= 1 / 3
    assert sum(known) >= 11, "the window holds the answer, from this prompt or an earlier one"
    assert sum(tokens for _, tokens, _, _ in rows) <= 100 * len(rows)


def _is_relevant(memory: Memory, identity: str, prompt: Prompt) -> bool:
    path, _, lines = identity.rpartition(":")
    first, last = (int(number) for number in lines.split("-"))
    text = "\n".join(memory.files.read_text(path).splitlines()[first - 1 : last])
    return any(mark in text for mark in prompt.relevant)


def _report(rows: list[tuple[Prompt, int, list[str], list[bool]]], brief: int) -> str:
    lines = [
        "",
        f"{'prompt':<62} {'tokens':>6} {'passages':>8} {'relevant':>8}",
        f"{'(the brief, at the start)':<62} {brief:>6}",
    ]
    for prompt, tokens, passages, relevant in rows:
        counts = f"{len(passages):>8} {sum(relevant):>8}" if passages else ""
        lines.append(f"{prompt.text:<62} {tokens or '':>6} {counts}".rstrip())
    total = sum(tokens for _, tokens, _, _ in rows)
    silent = sum(not tokens for _, tokens, _, _ in rows)
    pushed = [one for *_, relevant in rows for one in relevant]
    known = sum(bool(prompt.relevant) for prompt, *_ in rows)
    lines.append(
        f"in all {total + brief:,} tokens: {brief:,} at the start, {total:,} with {len(rows)} prompts "
        f"({total / len(rows):.0f} each; nothing with {silent})"
    )
    lines.append(
        f"{len(pushed)} passages, {sum(pushed)} of them relevant ({sum(pushed) / max(1, len(pushed)):.0%}); "
        f"right with {sum(any(relevant) for *_, relevant in rows)} of the {known} prompts that the memory has "
        "something about, two of which ask for what was sent before"
    )
    return "\n".join(lines)
