"""Two threads look, and one waits for the other: whatever becomes of a search, the next one is answered."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import anyio
import numpy as np
import pytest
from anyio.to_thread import run_sync
from numpy.typing import NDArray

from tests.storage.index.conftest import HashEmbedder, Make, Workspace, paths

pytestmark = pytest.mark.anyio

PATIENCE = 60


class Obstinate(HashEmbedder):
    """Fails, or waits until it is let go, whenever it is told to."""

    def __init__(self) -> None:
        self.fails = False
        self.asked, self.let_go = threading.Event(), threading.Event()
        self.let_go.set()

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.asked.set()
        assert self.let_go.wait(PATIENCE)
        if self.fails:
            raise RuntimeError("no vector today")
        return super().embed(texts)


@pytest.fixture
def embedder() -> Obstinate:
    return Obstinate()


async def test_what_goes_wrong_by_meaning_comes_out_and_stops_no_later_search(
    ws: Workspace, indexed: Make, embedder: Obstinate
) -> None:
    ws.write("knowledge/reference/a.md", "a walrus")
    index = indexed(embedder)
    await index.rebuild()
    embedder.fails = True
    with anyio.fail_after(PATIENCE):
        for _ in range(2):
            with pytest.raises(RuntimeError, match="no vector today"):
                await paths(index, "walrus")
        embedder.fails = False
        assert await paths(index, "walrus") == ["knowledge/reference/a.md"]


async def test_a_search_that_is_given_up_stops_no_later_one(ws: Workspace, indexed: Make, embedder: Obstinate) -> None:
    ws.write("knowledge/reference/a.md", "a walrus")
    index = indexed(embedder)
    await index.rebuild()
    with anyio.fail_after(PATIENCE):
        embedder.asked.clear()
        embedder.let_go.clear()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(paths, index, "walrus")
            await run_sync(embedder.asked.wait)
            tasks.cancel_scope.cancel()
        embedder.let_go.set()
        assert await paths(index, "walrus") == ["knowledge/reference/a.md"]
        for turns in range(12):  # … at whatever moment
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(paths, index, "walrus")
                for _ in range(turns):
                    await anyio.lowlevel.checkpoint()
                tasks.cancel_scope.cancel()
        assert await paths(index, "walrus") == ["knowledge/reference/a.md"]


async def test_many_searches_at_once_are_all_answered(ws: Workspace, indexed: Make) -> None:
    for number in range(20):
        ws.write(f"knowledge/reference/f{number}.md", f"walrus number {number} of the harbour")
    index = indexed(HashEmbedder())
    await index.rebuild()
    alone = await paths(index, "walrus of the harbour")
    answers: list[list[str]] = []

    async def ask(mode: str) -> None:
        answers.append(await paths(index, "walrus of the harbour", mode=mode))

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                for mode in ("hybrid", "keyword", "vector"):
                    tasks.start_soon(ask, mode)
    assert len(answers) == 24
    assert sum(answer == alone for answer in answers) >= 8
