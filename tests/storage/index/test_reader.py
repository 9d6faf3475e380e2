"""What is found, and with which values."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.search import ranking
from mcp_server.search.query import parse_query, plain_query
from mcp_server.storage.values import Candidates
from tests.searching import candidates_of, passage_of, values_of
from tests.storage.index.conftest import NOW, Build, HashEmbedder, Make, Workspace, paths

pytestmark = pytest.mark.anyio


async def test_a_folder_is_indexed_and_found_by_words_and_by_meaning(ws: Workspace, indexed: Make) -> None:
    ws.write("knowledge/people/ana.md", "# Ana\n\n## Work\n\nAna is a cellist in Novi Sad.\n")
    ws.write("knowledge/reference/tea.md", "# Tea\n\nGreen tea is steeped at 80 degrees.\n")
    index = indexed(HashEmbedder())
    assert await index.rebuild() == 2
    found = await candidates_of(index, parse_query("where does the cellist live?", NOW))
    best = ranking.rank(found.asked, values_of(found))[0].candidate
    passage = passage_of(found, best)
    assert (passage.path, passage.start, passage.end) == ("knowledge/people/ana.md", 3, 5)
    assert passage.title == "Ana › Work"
    assert found.used == "hybrid"
    assert best.cosine is not None
    assert best.cosine > 0.2


async def test_a_hit_in_a_transcript_knows_its_turn(ws: Workspace, built: Build) -> None:
    path = ws.say("s1", "hello there", name="Ana")
    ws.say("s1", "the tram to Petrovaradin leaves at noon", name="Boris")
    index = await built(HashEmbedder())
    found = await candidates_of(index, plain_query("when does the tram leave?"), mode="keyword")
    (one,) = found.found
    lines = (ws.root / path).read_text().split("\n")
    assert "the tram to Petrovaradin leaves at noon" in "\n".join(lines[one.passage.start - 1 : one.passage.end])
    assert (one.passage.turn, one.passage.speaker, one.passage.session) == (2, "Boris", "s1")


@pytest.mark.parametrize("query", ["kuća", "kuca", "KUĆA", "Đorđe", "djordje đorđe"])
async def test_diacritics_fold(ws: Workspace, built: Build, query: str) -> None:
    ws.write("knowledge/people/a.md", "Đorđe ima kuću. Kuca je velika.")
    index = await built()
    assert await paths(index, query, mode="keyword") == ["knowledge/people/a.md"]


@pytest.mark.parametrize("query", ["办公室在哪里?", '"新办公室"', "王芳什么时候搬?"])
async def test_chinese_is_found_by_keywords(ws: Workspace, built: Build, query: str) -> None:
    ws.write("knowledge/people/a.md", "王芳下周搬到新办公室。")
    ws.write("knowledge/people/b.md", "今天天气很好,我们去公园散步。")
    index = await built()
    assert await paths(index, query, mode="keyword") == ["knowledge/people/a.md"]


async def test_names_of_speakers_are_no_keywords(ws: Workspace, built: Build) -> None:
    ws.say("s1", "I bought a cello", name="Ana")
    index = await built()
    found = await candidates_of(index, plain_query("What did Ana buy?"))
    assert found.asked.people == {"Ana"}


async def test_bm25_is_what_sqlite_says(ws: Workspace, built: Build) -> None:
    for number in range(12):
        ws.write(f"knowledge/reference/f{number}.md", "running wolves " * (number % 3 + 1) + "forest " * number)
    index = await built()
    found = await candidates_of(index, plain_query("wolf running"), mode="keyword")
    connection = sqlite3.connect(next((ws.files.local / "index").glob("*.db")))
    expected = dict(
        connection.execute(
            "SELECT f.path, -bm25(knowledge_fts) FROM knowledge_fts "
            "JOIN knowledge_meta m ON m.id = knowledge_fts.rowid "
            "JOIN files f ON f.id = m.file WHERE knowledge_fts MATCH 'wolf OR running'"
        )
    )
    connection.close()
    assert {c.path: c.bm25 for c in values_of(found)} == pytest.approx(expected)


async def test_words_next_to_each_other_are_counted(ws: Workspace, built: Build) -> None:
    ws.write("knowledge/reference/a.md", "the blue car")
    ws.write("knowledge/reference/b.md", "a car, blue")
    index = await built()
    found = await candidates_of(index, plain_query("blue car"))
    assert {c.path[-4]: c.pairs for c in values_of(found)} == {"a": 1, "b": 0}


async def test_the_neighbours_of_a_match_are_candidates_too(ws: Workspace, built: Build) -> None:
    for said in ("unrelated", "which tram goes to Petrovaradin?", "number nine", "thanks", "far away"):
        ws.say("s1", said)
    index = await built()
    found = await candidates_of(index, plain_query("tram to Petrovaradin"))
    assert sorted(one.passage.turn or 0 for one in found.found) == [1, 2, 3, 4]
    ranked = ranking.rank(found.asked, values_of(found))
    assert "number nine" in [passage_of(found, one.candidate).text for one in ranked[:2]]


@given(text=st.text() | st.text(alphabet="\"-*():^+ aNEARORANDNOTcategory:since:{}'\\", max_size=40))
def test_any_text_is_a_query(text: str, any_index: Callable[[str], Candidates]) -> None:
    assert any_index(text).used in ("hybrid", "keyword")


@pytest.fixture(scope="module")
def any_index(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Candidates]:
    import anyio

    ws = Workspace(tmp_path_factory.mktemp("any"))
    ws.write("knowledge/reference/a.md", "near and or not category since a b c")
    ws.say("s", 'hello -world "quoted"')

    async def build() -> None:
        index = ws.index(HashEmbedder())
        await index.rebuild()
        await index.close()

    anyio.run(build)

    def search(text: str) -> Candidates:
        async def run() -> Candidates:
            index = ws.index(HashEmbedder())
            try:
                found = await candidates_of(index, parse_query(text, NOW))
                ranking.rank(found.asked, values_of(found))
                return found
            finally:
                await index.close()

        return anyio.run(run)

    return search
