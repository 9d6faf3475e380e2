"""Files that are broken or large."""

from __future__ import annotations

import os
import sqlite3

import pytest

from mcp_server.search import ranking
from mcp_server.search.query import plain_query
from mcp_server.storage.local.index import generations as stems
from mcp_server.storage.local.index.generations import Stems
from tests.storage.index.conftest import HashEmbedder, Make, Workspace, paths

pytestmark = pytest.mark.anyio


async def test_broken_files_are_named_and_stop_nothing(ws: Workspace, indexed: Make) -> None:
    ws.write("knowledge/reference/yaml.md", "---\ntitle: [unclosed\n---\n\nthe walrus text")
    ws.write("knowledge/reference/bytes.md", b"walrus\0")
    ws.write("knowledge/reference/latin.md", b"walrus \xe9t\xe9")
    ws.write("raw/conversations/2026/05/01/0900-x-y.md", "no front matter, but a walrus")
    ws.write("raw/conversations/2026/05/01/0901-x-y.md", "---\nsession_id: [\n---\n\n# x\n\n## 09:00 — user\nwalrus\n")
    ws.write("knowledge/reference/good.md", "good walrus")
    index = indexed(HashEmbedder())
    await index.rebuild()
    problems = "\n".join((await index.status()).problems)
    for name in ("yaml.md", "bytes.md", "latin.md", "0900-x-y.md", "0901-x-y.md"):
        assert name in problems
    assert "good.md" not in problems
    assert len(set(await paths(index, "walrus"))) == 5


async def test_a_large_message_is_one_unit_of_many_passages(ws: Workspace, indexed: Make) -> None:
    ws.say("s1", "\n\n".join(f"paragraph {number} " + "filler words here " * 30 for number in range(3_100)))
    ws.say("s1", "small")
    index = indexed()
    await index.rebuild()
    found = await index.candidates(plain_query("paragraph 2718"))
    ranked = ranking.rank(found.asked, found.candidates)
    assert len({c.unit for c in found.candidates}) == len(ranked) == 2  # and its neighbour
    assert "paragraph 2718" in found.passage(ranked[0].candidate).text
    assert (await index.status()).passages > 2_000
    followed = await index.fingerprint()
    await index.rebuild()
    assert await index.fingerprint() == followed


async def test_what_is_no_plain_file_of_the_workspace_is_not_read(ws: Workspace, indexed: Make) -> None:
    ws.write(".local/http-token", "walrus secret")
    ws.write("knowledge/reference/good.md", "good walrus")
    folder = ws.root / "knowledge/reference"
    (folder / "link.md").symlink_to("../../.local/http-token")
    os.mkfifo(folder / "pipe.md")
    index = indexed()
    await index.rebuild()
    await index.apply([f"knowledge/reference/{name}.md" for name in ("link", "pipe", "good")])
    assert set(await paths(index, "walrus")) == {"knowledge/reference/good.md"}


async def test_times_and_numbers_that_no_database_holds_stop_nothing(ws: Workspace, indexed: Make) -> None:
    ws.write("knowledge/reference/old.md", "---\nupdated: 0001-01-01T00:00:00+05:00\n---\n\nold walrus")
    head = "---\nsession_id: x\nstarted: 2026-05-01T09:00:00Z\n---\n\n# x\n"
    turn = '\n## 09:00 — user\n<!-- {"turn":99999999999999999999} -->\nhuge walrus\n'
    ws.write("raw/conversations/2026/05/01/0900-x-y.md", head + turn)
    index = indexed()
    await index.rebuild()
    assert len(await paths(index, "walrus")) == 2


def test_stems_that_are_known_survive_that_too_many_are() -> None:
    connection = sqlite3.connect(":memory:")
    words = Stems(connection)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stems, "MOST", 3)
        first = words.numbers(["boats", "sail", "north"])
        assert words.numbers(["boat", "ships", "sail"])[::2] == first[:2]
    connection.close()
