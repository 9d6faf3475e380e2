"""Without the embedder, or without sqlite-vec."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from mcp_server.search.query import plain_query
from mcp_server.storage.local.index import generations
from mcp_server.storage.values import Filters, IndexQuery
from mcp_server.text.entries import Source
from tests.searching import candidates_of
from tests.storage.fingerprint import assert_as_rebuilt
from tests.storage.index.conftest import EVERYTHING, Build, HashEmbedder, Make, Workspace, paths

pytestmark = pytest.mark.anyio


class Leading(HashEmbedder):
    """Vectors that tell everything by their first numbers: an index compares no others of an embedder of this name."""

    name = "wordllama"
    dimensions = 256

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        found = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        found[:, : HashEmbedder.dimensions] = _SHORT.embed(texts)
        return found


_SHORT = HashEmbedder()
both_kinds = pytest.mark.parametrize("embedder", [HashEmbedder, Leading])


@both_kinds
async def test_without_its_embedder_an_index_serves_keywords_and_is_completed_later(
    ws: Workspace, indexed: Make, built: Build, embedder: type[HashEmbedder]
) -> None:
    ws.write("knowledge/reference/a.md", "a walrus")
    index = await built(embedder())
    generation = (await index.status()).generation
    without = indexed(None, embedder.name)
    ws.write("knowledge/reference/b.md", "a second walrus")
    await without.refresh()
    found = await candidates_of(without, plain_query("walrus"))
    assert found.used == "keyword"
    assert len(found.found) == 2
    assert embedder.name in found.messages[0]
    assert (await without.status()).generation == generation
    again = indexed(embedder())
    assert (await again.status()).not_embedded == 1
    await again.refresh()
    assert (await again.status()).not_embedded == 0
    await assert_as_rebuilt(again)


@both_kinds
async def test_without_sqlite_vec_numpy_finds_the_same(
    ws: Workspace, indexed: Make, built: Build, monkeypatch: pytest.MonkeyPatch, embedder: type[HashEmbedder]
) -> None:
    for number in range(30):
        ws.say(f"s{number % 4}", f"word{number} word{number + 1} word{number + 2}", project=f"p:{number % 2}")
    index = await built(embedder())
    near = Filters(projects=frozenset({"p:1"}), exclude_session="s3")
    with_vec = await paths(index, "word7 word8", near, mode="vector")
    monkeypatch.setattr(generations, "load_vectors", lambda connection: False)
    without = indexed(embedder())
    assert await paths(without, "word7 word8", near, mode="vector") == with_vec
    status = await without.status()
    assert status.vectors == "numpy"
    assert any("NumPy" in message for message in status.messages)
    ws.say("s0", "word7 word8 again")
    await without.refresh()
    monkeypatch.undo()
    again = indexed(embedder())
    assert len(await paths(again, "word7 word8", mode="vector")) == 31  # the vector table is stale: NumPy serves
    await again.refresh()
    await assert_as_rebuilt(again)


async def test_an_exchange_is_as_near_as_its_nearest_turn(ws: Workspace, indexed: Make, built: Build) -> None:
    path = ws.say("one", "Which rope do we take for the bowline?")
    for content in ("The red one.", "Fine.", "Lunch is at noon."):
        ws.say("one", content, role="agent")
    index = await built(HashEmbedder())
    answer, far, unknown = Source(path, 2), Source(path, 4), Source("raw/nothing.md", 1)
    asked, turns = IndexQuery("rope for a bowline", EVERYTHING), [answer, far, unknown]
    near = await index.answer([asked], lambda _, turns_near: turns_near(asked.text, turns))
    assert near.keys() == {answer, far}
    assert near[answer].turn < near[answer].mean < near[answer].best
    assert near[far].best < near[answer].best
    assert await indexed(None).answer([asked], lambda _, turns_near: turns_near("rope", [answer])) == {}
