"""Without an index that serves, the files are read; and it is mended."""

from __future__ import annotations

import pytest

from mcp_server.errors import Unavailable
from mcp_server.search.query import parse_query, plain_query
from mcp_server.storage.values import Filters
from tests.storage.index.conftest import EVERYTHING, NOW, HashEmbedder, Make, Workspace, live, paths

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("garbage", [b"garbage " * 4096, b"", b"SQLite format 3\0" + b"\xff" * 9000])
async def test_garbage_in_the_index_file_is_noticed_served_around_and_mended(
    ws: Workspace, indexed: Make, garbage: bytes
) -> None:
    ws.write("knowledge/reference/a.md", "a walrus")
    ws.say("s1", "a walrus too")
    index = indexed(HashEmbedder())
    await index.rebuild()
    assert len(await paths(index, "walrus")) == 2
    place = live(ws)
    for ending in ("-wal", "-shm"):
        place.with_name(place.name + ending).unlink(missing_ok=True)
    place.write_bytes(garbage)
    other = indexed(HashEmbedder())
    found = await other.candidates(plain_query("walrus"))
    assert found.used == "scan"
    assert len(found.found) == 2
    assert "index" in found.messages[0]
    assert other.needs_care
    assert (await other.status()).state in ("broken", "missing")
    await other.refresh()
    assert (await other.candidates(plain_query("walrus"))).used == "hybrid"
    assert not other.needs_care


async def test_an_index_deleted_under_its_readers_is_noticed_and_mended(ws: Workspace, indexed: Make) -> None:
    ws.write("knowledge/reference/a.md", "a walrus")
    index = indexed(HashEmbedder())
    await index.rebuild()
    assert (await index.candidates(plain_query("walrus"))).used == "hybrid"
    for place in (ws.files.local / "index").iterdir():
        place.unlink()
    found = await index.candidates(plain_query("walrus"))
    assert (found.used, len(found.found)) == ("scan", 1)
    assert index.needs_care
    await index.refresh()
    assert (await index.candidates(plain_query("walrus"))).used == "hybrid"


async def test_an_index_folder_that_cannot_be_made_is_said_and_scanned_around(ws: Workspace, indexed: Make) -> None:
    ws.write("knowledge/reference/a.md", "a walrus")
    ws.write(".local/index", "a file where a folder should be")
    index = indexed(HashEmbedder())
    with pytest.raises(Unavailable, match="index"):
        await index.rebuild()
    assert (await index.candidates(plain_query("walrus"))).used == "scan"


async def test_the_scan_knows_the_same_filters(ws: Workspace, indexed: Make) -> None:
    ws.say("s1", "a blue walrus", project="p:1", name="Ana")
    ws.say("s2", "a walrus, blue", project="p:2", name="Boris")
    ws.write("knowledge/people/w.md", "walrus expert")
    index = indexed()

    async def scanned(text: str, filters: Filters = EVERYTHING) -> set[str]:
        found = await index.candidates(parse_query(text, NOW), filters)
        assert found.used == "scan"
        return {one.passage.text for one in found.found}

    assert await scanned('"blue walrus"') == {"a blue walrus"}
    assert await scanned("walrus -blue") == {"walrus expert"}
    assert await scanned("walrus", Filters(projects=frozenset({"p:2"}))) == {"a walrus, blue", "walrus expert"}
    assert await scanned("walrus", Filters(speaker="Ana")) == {"a blue walrus"}
    assert await scanned("walrus", Filters(exclude_session="s1", category="conversation")) == {"a walrus, blue"}
    assert await scanned("walrus", Filters(exclude_session="s1", exclude_from=99)) == await scanned("walrus")
    assert await scanned("zebra") == set()
