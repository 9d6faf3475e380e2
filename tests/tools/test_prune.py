from __future__ import annotations

from pathlib import Path

import pytest
from mcp import Client

from tests.serving import PLAIN, call, connected, refused

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A context holds 2,000 tokens."""
    monkeypatch.setitem(PLAIN, "CONTEXT_MANAGER_CONTEXT__LIMIT_TOKENS", "2000")


async def converse(client: Client, delivery: str) -> list[str]:
    """A conversation in which files are loaded; the answers."""
    answers = []
    for number in range(12):
        words = f"Tell me what the paint for fence number {number} costs, and which nails it needs. " * 3
        turn = {"role": "user", "content": words, "session": "s", "delivery": delivery}
        loaded = [{"type": "file", "id": f"src/part{number}.py", "tokens": 50}]
        answers.append(await call(client, "observe", **turn, chunks=loaded, context_tokens=900 + 80 * number))
    return answers


async def test_the_connections_own_session_needs_no_handle(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        await call(client, "observe", role="user", content="Hello there")
        assert "session ses_" in await call(client, "prune")
        assert "knowledge files" in await call(client, "prune", strategy="files")


async def test_what_cannot_be_is_said_in_words(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        assert "name a session" in await refused(client, "prune")
        assert "argument 'strategy'" in await refused(client, "prune", strategy="all")
        assert "takes no target" in await refused(client, "prune", strategy="files", target=1)


@pytest.mark.parametrize("delivery", ["add", "replace"])
async def test_pruning_is_told_then_done_recoverably_and_says_how_to_make_room_in_a_clients_own_window(
    tmp_path: Path, delivery: str
) -> None:
    async with connected(tmp_path) as client:
        said = await converse(client, delivery)
        turns = len(said)
        for strategy in ("compact", "auto", "advisor", "clarity", "memory", "files"):
            for dry_run in (True, False):
                said.append(await call(client, "prune", strategy=strategy, session="s", dry_run=dry_run))
    told, done = said[turns : turns + 2]
    assert "would go to cold storage" in told
    assert 'prune(strategy="compact", dry_run=false) does it' in told
    assert "went to cold storage" in done
    assert "bring back: recover c" in done
    if delivery == "add":
        speak = [text for text in said if "cold storage" in text or "Context at" in text]
        assert len(speak) > 5
        assert all("/compact" in text for text in speak)
        assert all("mirror" in text for text in speak)
    else:
        assert not any("/compact" in text for text in said)
