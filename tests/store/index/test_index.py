"""The index through its port: what is found, by whom, and what happens when it breaks."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_server.core.scoring import ranking
from mcp_server.core.text.query import parse_query, plain_query
from mcp_server.store.index import schema
from mcp_server.store.index.answers import Candidates
from mcp_server.store.index.filters import Filters
from mcp_server.store.index.index import Index
from tests.store.index.conftest import START, HashEmbedder, Workspace

pytestmark = pytest.mark.anyio
EVERYTHING = Filters()
NOW = datetime(2026, 6, 1, tzinfo=UTC)
Make = Callable[..., Index]


async def paths(index: Index, text: str, filters: Filters = EVERYTHING, **options: object) -> list[str]:
    """The paths of what is found, best first."""
    found = await index.candidates(parse_query(text, NOW), filters, **options)  # type: ignore[arg-type]
    return [one.candidate.path for one in ranking.rank(found.asked, found.candidates)]


async def texts(index: Index, text: str, filters: Filters = EVERYTHING) -> set[str]:
    found = await index.candidates(parse_query(text, NOW), filters, "keyword")
    return {found.passage(c).text for c in found.candidates}


async def test_a_folder_is_indexed_and_found_by_words_and_by_meaning(ws: Workspace, indexed: Make) -> None:
    ws.write("knowledge/people/ana.md", "# Ana\n\n## Work\n\nAna is a cellist in Novi Sad.\n")
    ws.write("knowledge/reference/tea.md", "# Tea\n\nGreen tea is steeped at 80 degrees.\n")
    index = indexed(HashEmbedder())
    assert await index.rebuild() == 2
    found = await index.candidates(parse_query("where does the cellist live?", NOW))
    best = ranking.rank(found.asked, found.candidates)[0].candidate
    passage = found.passage(best)
    assert (passage.path, passage.start, passage.end) == ("knowledge/people/ana.md", 3, 5)
    assert passage.title == "Ana › Work"
    assert found.used == "hybrid"
    assert best.cosine is not None
    assert best.cosine > 0.2


async def test_a_hit_in_a_transcript_knows_its_turn(ws: Workspace, indexed: Make) -> None:
    path = ws.say("s1", "hello there", name="Ana")
    ws.say("s1", "the tram to Petrovaradin leaves at noon", name="Boris")
    index = indexed(HashEmbedder())
    await index.rebuild()
    found = await index.candidates(plain_query("when does the tram leave?"), mode="keyword")
    (one,) = found.found
    lines = (ws.root / path).read_text().split("\n")
    assert "the tram to Petrovaradin leaves at noon" in "\n".join(lines[one.passage.start - 1 : one.passage.end])
    assert (one.passage.turn, one.passage.speaker, one.passage.session) == (2, "Boris", "s1")
    assert [p.turn for p in await index.neighbours(one.passage)] == [1]


@pytest.mark.parametrize("query", ["kuća", "kuca", "KUĆA", "Đorđe", "djordje đorđe"])
async def test_diacritics_fold(ws: Workspace, indexed: Make, query: str) -> None:
    ws.write("knowledge/people/a.md", "Đorđe ima kuću. Kuca je velika.")
    index = indexed()
    await index.rebuild()
    assert await paths(index, query, mode="keyword") == ["knowledge/people/a.md"]


async def test_operators_do_what_they_say(ws: Workspace, indexed: Make) -> None:
    ws.write("knowledge/reference/a.md", "a big blue car stands here")
    ws.write("knowledge/reference/b.md", "a blue and fast car stands there")
    ws.write("knowledge/people/c.md", "Cora likes her car")
    ws.write("knowledge/journal/2026-04-03.md", "bought a car today")
    index = indexed()
    await index.rebuild()
    assert await texts(index, '"blue car"') == {"a big blue car stands here"}
    assert await texts(index, "car -fast -bought -Cora") == {"a big blue car stands here"}
    assert await texts(index, "car category:person") == {"Cora likes her car"}
    assert await texts(index, "car since:2026-04-03 until:2026-04") == {"bought a car today"}
    assert await texts(index, "car until:2026-04-02") == set()
    assert len(await texts(index, "car")) == 4


async def test_a_search_stays_in_its_project_and_sees_what_is_global(ws: Workspace, indexed: Make) -> None:
    ws.say("s1", "the password rotation of apollo", project="git:x/apollo")
    ws.say("s2", "the password rotation of zeus", project="git:x/zeus")
    ws.say("s3", "the password rotation at home")
    ws.write("knowledge/projects/apollo/notes.md", "password rotation notes")
    index = indexed(HashEmbedder())
    await index.rebuild()
    mine = Filters(projects=frozenset({"git:x/apollo", "slug:apollo"}))
    for mode in ("hybrid", "keyword", "vector"):
        found = set(await paths(index, "password rotation", mine, mode=mode))
        assert len(found) == 3
        assert not any("zeus" in path or "s2" in path for path in found)
    assert len(await paths(index, "password rotation")) == 4
    assert len(await paths(index, "password rotation", Filters(projects=frozenset()))) == 1


async def test_filters_for_session_speaker_and_leaving_out_a_session(ws: Workspace, indexed: Make) -> None:
    ws.say("s1", "we met at the harbour", name="Ana")
    ws.say("s1", "yes, the harbour", name="Boris")
    ws.say("s2", "another harbour", name="Ana")
    index = indexed(HashEmbedder())
    await index.rebuild()

    async def turns(filters: Filters) -> set[tuple[str, int | None]]:
        found = await index.candidates(plain_query("harbour"), filters)
        return {(one.passage.session, one.passage.turn) for one in found.found}

    assert await turns(Filters(session="s1")) == {("s1", 1), ("s1", 2)}
    assert await turns(Filters(exclude_session="s1")) == {("s2", 1)}
    assert await turns(Filters(exclude_session="s1", exclude_from=2)) == {("s1", 1), ("s2", 1)}
    assert await turns(Filters(speaker="Ana")) == {("s1", 1), ("s2", 1)}
    assert await turns(Filters(session="nobody")) == set()
    assert await turns(Filters(since=START, until=START)) == set()


async def test_names_of_speakers_are_no_keywords(ws: Workspace, indexed: Make) -> None:
    ws.say("s1", "I bought a cello", name="Ana")
    index = indexed()
    await index.rebuild()
    found = await index.candidates(plain_query("What did Ana buy?"))
    assert found.asked.people == {"Ana"}


async def test_frequencies_are_those_of_the_scope(ws: Workspace, indexed: Make) -> None:
    ws.say("s1", "alpha beta", project="p:1")
    ws.say("s2", "alpha gamma", project="p:2")
    index = indexed()
    await index.rebuild()
    found = await index.candidates(plain_query("alpha gamma"), Filters(projects=frozenset({"p:1"})))
    assert found.passages == 1
    assert dict(zip(found.asked.lookup, found.frequencies, strict=True)) == {"alpha": 1, "gamma": 0}


async def test_bm25_is_what_sqlite_says(ws: Workspace, indexed: Make) -> None:
    for number in range(12):
        ws.write(f"knowledge/reference/f{number}.md", "running wolves " * (number % 3 + 1) + "forest " * number)
    index = indexed()
    await index.rebuild()
    found = await index.candidates(plain_query("wolf running"), mode="keyword")
    connection = sqlite3.connect(next((ws.files.local / "index").glob("*.db")))
    expected = dict(
        connection.execute(
            "SELECT f.path, -bm25(knowledge_fts) FROM knowledge_fts "
            "JOIN knowledge_meta m ON m.id = knowledge_fts.rowid "
            "JOIN files f ON f.id = m.file WHERE knowledge_fts MATCH 'wolf OR running'"
        )
    )
    connection.close()
    assert {c.path: c.bm25 for c in found.candidates} == pytest.approx(expected)


async def test_words_next_to_each_other_are_counted(ws: Workspace, indexed: Make) -> None:
    ws.write("knowledge/reference/a.md", "the blue car")
    ws.write("knowledge/reference/b.md", "a car, blue")
    index = indexed()
    await index.rebuild()
    found = await index.candidates(plain_query("blue car"))
    assert {c.path[-4]: c.pairs for c in found.candidates} == {"a": 1, "b": 0}


@given(text=st.text() | st.text(alphabet="\"-*():^+ aNEARORANDNOTcategory:since:{}'\\", max_size=40))
@settings(max_examples=150)
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
                found = await index.candidates(parse_query(text, NOW))
                ranking.rank(found.asked, found.candidates)
                return found
            finally:
                await index.close()

        return anyio.run(run)

    return search


# ---------------------------------------------------------------- staying up to date


async def test_a_grown_transcript_adds_its_new_turns_only(ws: Workspace, indexed: Make) -> None:
    path = ws.say("s1", "first words")
    index = indexed(HashEmbedder())
    await index.rebuild()
    before = await ids(ws)
    ws.say("s1", "second words")
    assert await index.refresh() == 1
    after = await ids(ws)
    assert before < after
    assert len(after) == 2
    assert [p.ordinal for p in await index.document(path)] == [0, 1]


async def test_closing_a_transcript_rewrites_nothing(ws: Workspace, indexed: Make) -> None:
    from dataclasses import replace

    path = ws.say("s1", "first words")
    ws.say("s1", "second words")
    index = indexed(HashEmbedder())
    await index.rebuild()
    before = await ids(ws)
    head = ws.transcripts.read(path).head
    ws.transcripts.seal(path, replace(head, ended=NOW, tokens_in=100))
    assert await index.refresh() == 1
    assert await ids(ws) == before


async def test_an_edited_file_keeps_the_sections_that_did_not_change(ws: Workspace, indexed: Make) -> None:
    ws.write("knowledge/reference/a.md", "# A\n\none\n\n# B\n\ntwo\n")
    index = indexed()
    await index.rebuild()
    before = await ids(ws)
    ws.write("knowledge/reference/a.md", "# A\n\none\n\n# B\n\nthree\n")
    await index.apply(["knowledge/reference/a.md"])
    assert len(before & await ids(ws)) == 1
    assert await texts(index, "two") == set()
    assert await paths(index, "three") == ["knowledge/reference/a.md"]


async def test_deleted_and_moved_files_follow(ws: Workspace, indexed: Make) -> None:
    ws.write("knowledge/reference/a.md", "walrus")
    ws.write("knowledge/reference/deep/b.md", "penguin")
    index = indexed(HashEmbedder())
    await index.rebuild()
    (ws.root / "knowledge/reference/deep").rename(ws.root / "knowledge/reference/moved")
    (ws.root / "knowledge/reference/a.md").unlink()
    await index.apply(["knowledge/reference/deep", "knowledge/reference/moved", "knowledge/reference/a.md"])
    assert await paths(index, "walrus penguin", mode="keyword") == ["knowledge/reference/moved/b.md"]


async def test_a_change_within_the_same_instant_and_size_is_seen(ws: Workspace, indexed: Make) -> None:
    ws.write("knowledge/reference/a.md", "aaaa")
    stat = (ws.root / "knowledge/reference/a.md").stat()
    index = indexed()
    await index.rebuild()
    ws.write("knowledge/reference/a.md", "bbbb")
    os.utime(ws.root / "knowledge/reference/a.md", ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert await index.refresh() == 1
    assert await paths(index, "bbbb") == ["knowledge/reference/a.md"]


async def test_looking_at_what_did_not_change_writes_nothing(ws: Workspace, indexed: Make) -> None:
    ws.write("knowledge/reference/a.md", "aaaa")
    index = indexed()
    await index.rebuild()
    before = await index.data_version()
    assert await index.refresh() == 0
    assert await index.apply(["knowledge/reference/a.md", "knowledge/reference/none.md", "raw"]) == 0
    assert await index.data_version() == before


async def test_another_process_notices_a_change(ws: Workspace, indexed: Make) -> None:
    index, other = indexed(), indexed()
    await index.rebuild()
    before = await other.data_version()
    ws.write("knowledge/reference/a.md", "walrus")
    await index.refresh()
    assert await other.data_version() != before
    assert await paths(other, "walrus") == ["knowledge/reference/a.md"]


EDITS = st.lists(
    st.tuples(
        st.sampled_from(["say", "say", "write", "delete", "seal", "by hand"]),
        st.integers(0, 2),
        st.text(alphabet="ab \n#-\u010d\x00`>", max_size=30)
        | st.sampled_from(["word " * 400, "---\nbad: [\n---\ntext", "# T\n\nx\n\n## U\n\ny"]),
    ),
    max_size=8,
)


@given(edits=EDITS)
@settings(max_examples=25)
def test_a_rebuilt_index_equals_the_one_that_followed(
    edits: list[tuple[str, int, str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    import anyio

    ws = Workspace(tmp_path_factory.mktemp("law"))

    async def run() -> None:
        index = ws.index(HashEmbedder())
        await index.rebuild()
        for what, which, text in edits:
            edit(ws, what, which, text)
            await index.refresh()
        followed = await index.fingerprint()
        await index.rebuild()
        assert await index.fingerprint() == followed
        await index.close()

    anyio.run(run)


def edit(ws: Workspace, what: str, which: int, text: str) -> None:
    document = f"knowledge/reference/f{which}.md"
    session = f"s{which}"
    known = ws.ends.get(session)
    match what:
        case "say" if known is None or (ws.root / known[0]).stat().st_mode & 0o200:
            if known is None or (ws.root / known[0]).stat().st_size == known[1]:
                ws.say(session, text)
        case "write":
            ws.write(document, text)
        case "delete":
            (ws.root / document).unlink(missing_ok=True)
        case "seal" if known is not None:
            ws.transcripts.seal(known[0], ws.transcripts.read(known[0]).head)
        case "by hand" if known is not None:
            (ws.root / known[0]).chmod(0o600)
            with (ws.root / known[0]).open("a") as file:
                file.write(text)


# ---------------------------------------------------------------- what is broken


async def test_broken_files_are_named_and_stop_nothing(ws: Workspace, indexed: Make) -> None:
    ws.write("knowledge/reference/yaml.md", "---\ntitle: [unclosed\n---\n\nthe walrus text")
    ws.write("knowledge/reference/nul.md", b"walrus\0")
    ws.write("knowledge/reference/latin.md", b"walrus \xe9t\xe9")
    ws.write("raw/conversations/2026/05/01/0900-x-y.md", "no front matter, but a walrus")
    ws.write("raw/conversations/2026/05/01/0901-x-y.md", "---\nsession_id: [\n---\n\n# x\n\n## 09:00 — user\nwalrus\n")
    ws.write("knowledge/reference/good.md", "good walrus")
    index = indexed(HashEmbedder())
    await index.rebuild()
    problems = "\n".join((await index.status()).problems)
    for name in ("yaml.md", "nul.md", "latin.md", "0900-x-y.md", "0901-x-y.md"):
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


async def test_without_its_embedder_an_index_serves_keywords_and_is_completed_later(
    ws: Workspace, indexed: Make
) -> None:
    ws.write("knowledge/reference/a.md", "a walrus")
    index = indexed(HashEmbedder())
    await index.rebuild()
    generation = (await index.status()).generation
    without = indexed(None, "hash")
    ws.write("knowledge/reference/b.md", "a second walrus")
    await without.refresh()
    found = await without.candidates(plain_query("walrus"))
    assert found.used == "keyword"
    assert len(found.found) == 2
    assert "hash" in found.messages[0]
    assert (await without.status()).generation == generation
    again = indexed(HashEmbedder())
    assert (await again.status()).not_embedded == 1
    await again.refresh()
    assert (await again.status()).not_embedded == 0
    followed = await again.fingerprint()
    await again.rebuild()
    assert await again.fingerprint() == followed


async def test_without_sqlite_vec_numpy_finds_the_same(
    ws: Workspace, indexed: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        ws.say(f"s{number % 4}", f"word{number} word{number + 1} word{number + 2}", project=f"p:{number % 2}")
    index = indexed(HashEmbedder())
    await index.rebuild()
    near = Filters(projects=frozenset({"p:1"}), exclude_session="s3")
    with_vec = await paths(index, "word7 word8", near, mode="vector")
    monkeypatch.setattr(schema, "load_vectors", lambda connection: False)
    without = indexed(HashEmbedder())
    assert await paths(without, "word7 word8", near, mode="vector") == with_vec
    status = await without.status()
    assert status.vectors == "numpy"
    assert any("NumPy" in message for message in status.messages)
    ws.say("s0", "word7 word8 again")
    await without.refresh()
    monkeypatch.undo()
    again = indexed(HashEmbedder())
    assert len(await paths(again, "word7 word8", mode="vector")) == 31  # the vector table is stale: NumPy serves
    await again.refresh()
    followed = await again.fingerprint()
    await again.rebuild()
    assert await again.fingerprint() == followed


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
    foreign = [ws.files.local / "index" / name for name in ("memory-0-hash-1.db", "memory-1-openai-4.db")]
    for place in foreign:
        place.write_text("not ours")
    await index.rebuild()
    names = {place.name for place in (ws.files.local / "index").glob("memory-1-hash-*.db")}
    assert names == {"memory-1-hash-1.db", "memory-1-hash-2.db"}
    await other.candidates(plain_query("walrus"))
    await index.rebuild()
    await other.candidates(plain_query("walrus"))
    names = {place.name for place in (ws.files.local / "index").glob("memory-1-hash-*.db")}
    assert "memory-1-hash-1.db" not in names
    assert all(place.read_text() == "not ours" for place in foreign)


async def test_an_index_folder_that_cannot_be_made_is_said_and_scanned_around(ws: Workspace, indexed: Make) -> None:
    ws.write("knowledge/reference/a.md", "a walrus")
    ws.write(".local/index", "a file where a folder should be")
    index = indexed(HashEmbedder())
    from mcp_server.errors import Unavailable

    with pytest.raises(Unavailable, match="index"):
        await index.rebuild()
    assert (await index.candidates(plain_query("walrus"))).used == "scan"


def live(ws: Workspace) -> Path:
    folder = ws.files.local / "index"
    number = next(folder.glob("*.current")).read_text()
    return next(folder.glob(f"*-{number}.db"))


async def ids(ws: Workspace) -> set[int]:
    connection = sqlite3.connect(live(ws))
    try:
        return {row[0] for row in connection.execute("SELECT id FROM knowledge_meta")}
    finally:
        connection.close()


async def test_the_neighbours_of_a_match_are_candidates_too(ws: Workspace, indexed: Make) -> None:
    for said in ("unrelated", "which tram goes to Petrovaradin?", "number nine", "thanks", "far away"):
        ws.say("s1", said)
    index = indexed()
    await index.rebuild()
    found = await index.candidates(plain_query("tram to Petrovaradin"))
    assert sorted(one.passage.turn or 0 for one in found.found) == [1, 2, 3, 4]
    ranked = ranking.rank(found.asked, found.candidates)
    assert "number nine" in [found.passage(one.candidate).text for one in ranked[:2]]
