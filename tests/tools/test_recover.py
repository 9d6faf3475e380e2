from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from mcp import Client

from mcp_server.app import open_memory
from tests.conftest import copied
from tests.serving import PLAIN, call, connected, refused

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True, scope="module")
def small() -> Iterator[None]:
    """A context holds 1,000 tokens."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(PLAIN, "CONTEXT_MANAGER_CONTEXT__LIMIT_TOKENS", "1000")
        yield


async def converse(client: Client, delivery: str = "replace") -> None:
    """A conversation that is compacted."""
    for number in range(16):
        words = f"Fence number {number} wants paint number {number} and nails, and the ladder is in the shed. " * 3
        await call(client, "observe", role="user", content=words, session="s", delivery=delivery)


@pytest.fixture(scope="module")
def talked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace after such a conversation."""
    root = tmp_path_factory.mktemp("talked") / "memory"

    async def talk() -> None:
        async with connected(root) as client:
            await converse(client)

    anyio.run(talk)
    return root


def ids(text: str) -> list[str]:
    return re.findall(r" · (c[0-9a-f]{11})$", text, re.MULTILINE)


async def test_a_chunk_is_listed_shown_brought_back_and_sent_away_again(talked: Path, tmp_path: Path) -> None:
    copied(talked, tmp_path / "talked")
    async with connected(tmp_path / "talked") as client:
        before = ids(await call(client, "recover"))
        assert before
        shown = await call(client, "recover", id=before[-1])
        assert "would be recovered" in shown
        assert "nothing has changed yet" in shown
        assert "Fence number 0 wants paint number 0" in shown
        assert "[… cut after 100 tokens" in await call(client, "recover", id=before[0], max_tokens=100)
        done = await call(client, "recover", id=before[-1], dry_run=False)
        assert done.startswith("recovered: ")
        assert before[-1] not in ids(await call(client, "recover"))
        (undo,) = re.findall(r"undo: recover (before-\w+)", done)
        assert "went back to cold storage" in await call(client, "recover", id=undo, dry_run=False)
        assert sorted(ids(await call(client, "recover"))) == sorted(before)


async def test_words_find_it_and_bring_it_back_where_they_mean_one_thing(talked: Path, tmp_path: Path) -> None:
    copied(talked, tmp_path / "talked")
    async with connected(tmp_path / "talked") as client:
        async with open_memory(tmp_path / "talked", PLAIN) as memory:
            await memory.index.refresh()  # the files alone do not tell 0 from 10
        assert "Fence number 0" in (await call(client, "recover", query="fence paint number 0")).splitlines()[1]
        assert "equally well" in await refused(client, "recover", query="ladder", dry_run=False)
        assert "can be recovered matches" in await refused(client, "recover", query="xylophone", dry_run=False)
        done = await call(client, "recover", query="fence number 0", dry_run=False)
        assert done.startswith("recovered: ")
        assert "Fence number 0 wants paint" in done


async def test_in_add_it_says_whose_window_it_is_not(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        await converse(client, "add")
        (first, *_) = ids(await call(client, "recover"))
        done = await call(client, "recover", id=first, dry_run=False)
        assert "mirror" in done
        assert "the client keeps its own window" in done


async def test_what_cannot_be_is_refused_with_the_next_step(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        assert "nothing to recover" in await call(client, "recover")
        assert "give an id" in await refused(client, "recover", dry_run=False)
        assert "in cold storage" in await refused(client, "recover", id="c00000000000")
        assert "names nothing to recover" in await refused(client, "recover", id="whatever")
