"""Rebuilding: one generation serves until the next is whole."""

from __future__ import annotations

import pytest

from mcp_server.search.query import plain_query
from mcp_server.storage.local.index.vectors import SCHEMA
from tests.storage.index.conftest import HashEmbedder, Make, Workspace

pytestmark = pytest.mark.anyio


async def test_a_rebuild_serves_the_old_generation_until_it_is_done(ws: Workspace, indexed: Make) -> None:
    ws.write("knowledge/reference/a.md", "a walrus")
    index, other = indexed(HashEmbedder()), indexed(HashEmbedder())
    await index.rebuild()
    first = (await other.candidates(plain_query("walrus"))).generation
    during: list[str] = []

    def look(done: int, total: int) -> None:
        during.extend(place.name for place in (ws.files.local / "index").glob("*.db"))

    await index.rebuild(look)
    assert len(set(during)) == 2
    second = (await other.candidates(plain_query("walrus"))).generation
    assert int(second) > int(first)


async def test_old_generations_go_when_nobody_holds_them_and_others_files_stay(ws: Workspace, indexed: Make) -> None:
    ws.write("knowledge/reference/a.md", "a walrus")
    index, other = indexed(HashEmbedder()), indexed(HashEmbedder())
    await index.rebuild()
    await other.candidates(plain_query("walrus"))
    foreign = [ws.files.local / "index" / name for name in ("memory-0-hash-1.db", f"memory-{SCHEMA}-openai-4.db")]
    for place in foreign:
        place.write_text("not ours")
    await index.rebuild()
    names = {place.name for place in (ws.files.local / "index").glob(f"memory-{SCHEMA}-hash-*.db")}
    assert names == {f"memory-{SCHEMA}-hash-1.db", f"memory-{SCHEMA}-hash-2.db"}
    await other.candidates(plain_query("walrus"))
    await index.rebuild()
    await other.candidates(plain_query("walrus"))
    names = {place.name for place in (ws.files.local / "index").glob(f"memory-{SCHEMA}-hash-*.db")}
    assert f"memory-{SCHEMA}-hash-1.db" not in names
    assert all(place.read_text() == "not ours" for place in foreign)
