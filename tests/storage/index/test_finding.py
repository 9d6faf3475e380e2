"""Two threads look, and one waits for the other: whatever becomes of a search, the next one is answered."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence

import anyio
import numpy as np
import pytest
from anyio.to_thread import run_sync
from numpy.typing import NDArray

from mcp_server.errors import Unavailable
from mcp_server.search.query import parse_query, plain_query
from mcp_server.storage.index import searching
from mcp_server.storage.values import Filters
from tests.searching import candidates_of
from tests.storage.index.conftest import (
    EVERYTHING,
    NOW,
    START,
    Build,
    HashEmbedder,
    Make,
    Workspace,
    live,
    paths,
    texts,
)

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
    ws: Workspace, built: Build, embedder: Obstinate
) -> None:
    ws.write("knowledge/reference/a.md", "a walrus")
    index = await built(embedder)
    embedder.fails = True
    with anyio.fail_after(PATIENCE):
        for _ in range(2):
            with pytest.raises(RuntimeError, match="no vector today"):
                await paths(index, "walrus")
        embedder.fails = False
        assert await paths(index, "walrus") == ["knowledge/reference/a.md"]


async def test_a_search_that_is_given_up_stops_no_later_one(ws: Workspace, built: Build, embedder: Obstinate) -> None:
    ws.write("knowledge/reference/a.md", "a walrus")
    index = await built(embedder)
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


async def test_many_searches_at_once_are_all_answered(ws: Workspace, built: Build) -> None:
    for number in range(20):
        ws.write(f"knowledge/reference/f{number}.md", f"walrus number {number} of the harbour")
    index = await built(HashEmbedder())
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


WORDS = [
    f"{first}{second}" for first in ("sail", "mast", "rope", "wind") for second in ("", "or", "ing", "ed", "s", "er")
]


async def test_a_conversation_among_many_gives_the_same_candidates_either_way(
    ws: Workspace, built: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(4)
    for session in range(6):
        for _ in range(40):
            ws.say(f"s{session}", " ".join(chance.choices(WORDS, k=8)))
    index = await built(HashEmbedder())
    asked = [plain_query(" ".join(chance.choices(WORDS, k=4))) for _ in range(8)]
    scopes = [Filters(session="s2"), Filters(session="s3", exclude_session="s3", exclude_from=20)]
    found = [await candidates_of(index, query, where) for query in asked for where in scopes]
    monkeypatch.setattr(searching, "SMALL_SCOPE", -1)
    otherwise = [await candidates_of(index, query, where) for query in asked for where in scopes]
    assert any(one.found for one in found)
    for one, other in zip(found, otherwise, strict=True):
        assert one.frequencies == other.frequencies
        assert [each.candidate for each in one.found] == [each.candidate for each in other.found]


async def test_operators_do_what_they_say(ws: Workspace, built: Build) -> None:
    ws.write("knowledge/reference/a.md", "a big blue car stands here")
    ws.write("knowledge/reference/b.md", "a blue and fast car stands there")
    ws.write("knowledge/people/c.md", "Cora likes her car")
    ws.write("knowledge/journal/2026-04-03.md", "bought a car today")
    index = await built()
    assert await texts(index, '"blue car"') == {"a big blue car stands here"}
    assert await texts(index, "car -fast -bought -Cora") == {"a big blue car stands here"}
    assert await texts(index, "car category:person") == {"Cora likes her car"}
    assert await texts(index, "car since:2026-04-03 until:2026-04") == {"bought a car today"}
    assert await texts(index, "car until:2026-04-02") == set()
    assert len(await texts(index, "car")) == 4


async def test_a_search_stays_in_its_project_and_sees_what_is_global(ws: Workspace, built: Build) -> None:
    ws.say("s1", "the password rotation of apollo", project="git:x/apollo")
    ws.say("s2", "the password rotation of zeus", project="git:x/zeus")
    ws.say("s3", "the password rotation at home")
    ws.write("knowledge/projects/apollo/notes.md", "password rotation notes")
    index = await built(HashEmbedder())
    mine = Filters(projects=frozenset({"git:x/apollo", "slug:apollo"}))
    for mode in ("hybrid", "keyword", "vector"):
        found = set(await paths(index, "password rotation", mine, mode=mode))
        assert len(found) == 3
        assert not any("zeus" in path or "s2" in path for path in found)
    assert len(await paths(index, "password rotation")) == 4
    assert len(await paths(index, "password rotation", Filters(projects=frozenset()))) == 1


async def test_filters_for_session_speaker_and_leaving_out_a_session(ws: Workspace, built: Build) -> None:
    ws.say("s1", "we met at the harbour", name="Ana")
    ws.say("s1", "yes, the harbour", name="Boris")
    ws.say("s2", "another harbour", name="Ana")
    index = await built(HashEmbedder())

    async def turns(filters: Filters) -> set[tuple[str, int | None]]:
        found = await candidates_of(index, plain_query("harbour"), filters)
        return {(one.passage.session, one.passage.turn) for one in found.found}

    assert await turns(Filters(session="s1")) == {("s1", 1), ("s1", 2)}
    assert await turns(Filters(exclude_session="s1")) == {("s2", 1)}
    assert await turns(Filters(exclude_session="s1", exclude_from=2)) == {("s1", 1), ("s2", 1)}
    assert await turns(Filters(speaker="Ana")) == {("s1", 1), ("s2", 1)}
    assert await turns(Filters(session="nobody")) == set()
    assert await turns(Filters(since=START, until=START)) == set()


async def test_frequencies_are_those_of_the_scope(ws: Workspace, built: Build) -> None:
    ws.say("s1", "alpha beta", project="p:1")
    ws.say("s2", "alpha gamma", project="p:2")
    index = await built()
    found = await candidates_of(index, plain_query("alpha gamma"), Filters(projects=frozenset({"p:1"})))
    assert found.passages == 1
    assert dict(zip(found.asked.lookup, found.frequencies, strict=True)) == {"alpha": 1, "gamma": 0}


@pytest.mark.parametrize("garbage", [b"garbage " * 4096, b"", b"SQLite format 3\0" + b"\xff" * 9000])
async def test_garbage_in_the_index_file_is_noticed_served_around_and_mended(
    ws: Workspace, indexed: Make, built: Build, garbage: bytes
) -> None:
    ws.write("knowledge/reference/a.md", "a walrus")
    ws.say("s1", "a walrus too")
    index = await built(HashEmbedder())
    assert len(await paths(index, "walrus")) == 2
    place = live(ws)
    for ending in ("-wal", "-shm"):
        place.with_name(place.name + ending).unlink(missing_ok=True)
    place.write_bytes(garbage)
    other = indexed(HashEmbedder())
    found = await candidates_of(other, plain_query("walrus"))
    assert found.used == "scan"
    assert len(found.found) == 2
    assert "index" in found.messages[0]
    assert other.needs_care
    assert (await other.status()).state in ("broken", "missing")
    await other.refresh()
    assert (await candidates_of(other, plain_query("walrus"))).used == "hybrid"
    assert not other.needs_care


async def test_an_index_deleted_under_its_readers_is_noticed_and_mended(ws: Workspace, built: Build) -> None:
    ws.write("knowledge/reference/a.md", "a walrus")
    index = await built(HashEmbedder())
    assert (await candidates_of(index, plain_query("walrus"))).used == "hybrid"
    for place in (ws.files.local / "index").iterdir():
        place.unlink()
    found = await candidates_of(index, plain_query("walrus"))
    assert (found.used, len(found.found)) == ("scan", 1)
    assert index.needs_care
    await index.refresh()
    assert (await candidates_of(index, plain_query("walrus"))).used == "hybrid"


@pytest.mark.parametrize("nonsense", [b"\xff" * 200, b"", b"999999"])
async def test_a_pointer_of_the_index_that_says_nothing_is_written_anew(
    ws: Workspace, indexed: Make, nonsense: bytes
) -> None:
    ws.write("knowledge/reference/a.md", "a walrus")
    index, other = indexed(), indexed()
    await index.rebuild()
    (pointer,) = (ws.files.local / "index").glob("*.current")
    pointer.write_bytes(nonsense)
    for one in (index, other):
        assert await paths(one, "walrus") == ["knowledge/reference/a.md"]
    await index.refresh()
    assert (await candidates_of(other, plain_query("walrus"))).used == "keyword"


async def test_an_index_folder_that_cannot_be_made_is_said_and_scanned_around(ws: Workspace, indexed: Make) -> None:
    ws.write("knowledge/reference/a.md", "a walrus")
    ws.write(".local/index", "a file where a folder should be")
    index = indexed(HashEmbedder())
    with pytest.raises(Unavailable, match="index"):
        await index.rebuild()
    assert (await candidates_of(index, plain_query("walrus"))).used == "scan"


async def test_the_scan_knows_the_same_filters(ws: Workspace, indexed: Make) -> None:
    ws.say("s1", "a blue walrus", project="p:1", name="Ana")
    ws.say("s2", "a walrus, blue", project="p:2", name="Boris")
    ws.write("knowledge/people/w.md", "walrus expert")
    index = indexed()

    async def scanned(text: str, filters: Filters = EVERYTHING) -> set[str]:
        found = await candidates_of(index, parse_query(text, NOW), filters)
        assert found.used == "scan"
        return {one.passage.text for one in found.found}

    assert await scanned('"blue walrus"') == {"a blue walrus"}
    assert await scanned("walrus -blue") == {"walrus expert"}
    assert await scanned("walrus", Filters(projects=frozenset({"p:2"}))) == {"a walrus, blue", "walrus expert"}
    assert await scanned("walrus", Filters(speaker="Ana")) == {"a blue walrus"}
    assert await scanned("walrus", Filters(exclude_session="s1", category="conversation")) == {"a walrus, blue"}
    assert await scanned("walrus", Filters(exclude_session="s1", exclude_from=99)) == await scanned("walrus")
    assert await scanned("zebra") == set()
    ws.say("s1", "an otter")
    ws.write("knowledge/people/w.md", "otter expert")
    assert await scanned("otter") == {"an otter", "otter expert"}
    assert await scanned("walrus") == {"a blue walrus", "a walrus, blue"}
    (ws.root / "knowledge/people/w.md").unlink()
    assert await scanned("otter") == {"an otter"}
