"""The index follows the files."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_server.errors import Unavailable
from mcp_server.search import ranking
from mcp_server.search.query import plain_query
from mcp_server.storage import sqlite as stems
from mcp_server.storage.local.index import writer
from mcp_server.storage.local.index.index import Index
from mcp_server.storage.local.index.tables import SCHEMA
from mcp_server.storage.local.index.writer import write
from mcp_server.storage.sqlite import Stems
from tests.searching import candidates_of, passage_of, values_of
from tests.storage.fingerprint import assert_as_rebuilt
from tests.storage.index.conftest import NOW, Build, HashEmbedder, Make, Workspace, live, paths, texts

pytestmark = pytest.mark.anyio


async def test_a_grown_transcript_adds_its_new_turns_only(ws: Workspace, built: Build) -> None:
    path = ws.say("s1", "first words")
    index = await built(HashEmbedder())
    before = await ids(ws)
    ws.say("s1", "second words")
    assert await index.refresh() == 1
    after = await ids(ws)
    assert before < after
    assert len(after) == 2
    found = await candidates_of(index, plain_query("words"))
    assert [(one.candidate.path, one.passage.ordinal) for one in found.found] == [(path, 0), (path, 1)]


async def test_closing_a_transcript_rewrites_nothing(ws: Workspace, built: Build) -> None:
    path = ws.say("s1", "first words")
    ws.say("s1", "second words")
    index = await built(HashEmbedder())
    before = await ids(ws)
    head = ws.transcripts.read(path).head
    ws.transcripts.replace_head(path, replace(head, ended=NOW, tokens_in=100), sealed=True)
    assert await index.refresh() == 1
    assert await ids(ws) == before


async def test_an_edited_file_keeps_the_sections_that_did_not_change(ws: Workspace, built: Build) -> None:
    ws.write("knowledge/reference/a.md", "# A\n\none\n\n# B\n\ntwo\n")
    index = await built()
    before = await ids(ws)
    ws.write("knowledge/reference/a.md", "# A\n\none\n\n# B\n\nthree\n")
    await index.apply(["knowledge/reference/a.md"])
    assert len(before & await ids(ws)) == 1
    assert await texts(index, "two") == set()
    assert await paths(index, "three") == ["knowledge/reference/a.md"]


async def test_deleted_and_moved_files_follow(ws: Workspace, built: Build) -> None:
    ws.write("knowledge/reference/a.md", "walrus")
    ws.write("knowledge/reference/deep/b.md", "penguin")
    index = await built(HashEmbedder())
    (ws.root / "knowledge/reference/deep").rename(ws.root / "knowledge/reference/moved")
    (ws.root / "knowledge/reference/a.md").unlink()
    await index.apply(["knowledge/reference/deep", "knowledge/reference/moved", "knowledge/reference/a.md"])
    assert await paths(index, "walrus penguin", mode="keyword") == ["knowledge/reference/moved/b.md"]


async def test_a_change_within_the_same_instant_and_size_is_seen(ws: Workspace, built: Build) -> None:
    ws.write("knowledge/reference/a.md", "aaaa")
    stat = (ws.root / "knowledge/reference/a.md").stat()
    index = await built()
    ws.write("knowledge/reference/a.md", "bbbb")
    os.utime(ws.root / "knowledge/reference/a.md", ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert await index.refresh() == 1
    assert await paths(index, "bbbb") == ["knowledge/reference/a.md"]


async def test_looking_at_what_did_not_change_writes_nothing(ws: Workspace, built: Build) -> None:
    ws.write("knowledge/reference/a.md", "aaaa")
    index = await built()
    before = await index.data_version()
    assert await index.refresh() == 0
    assert await index.apply(["knowledge/reference/a.md", "knowledge/reference/none.md", "raw"]) == 0
    assert await index.data_version() == before


async def test_a_unit_that_was_written_in_part_is_written_again(
    ws: Workspace, built: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "SOON", 10)
    index = await built()
    path = ws.say("s1", " ".join(f"sentence {number} tells of the harbour." for number in range(800)) + " quokka")
    ws.say("s1", "The next message.")
    writes = 0

    def failing(*arguments: object, **options: object) -> None:
        nonlocal writes
        writes += 1
        if writes == 3:
            raise Unavailable("the disk is full")
        write(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(writer, "write", failing)
    with pytest.raises(Unavailable):
        await index.refresh()
    assert (await index.status()).state == "building"
    assert await index.refresh() == 1
    assert (await index.status()).state == "ready"
    assert set(await paths(index, "quokka")) == {path}
    await assert_as_rebuilt(index)


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
@settings(max_examples=6)
def test_a_rebuilt_index_equals_the_one_that_followed(
    edits: list[tuple[str, int, str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    ws = Workspace(tmp_path_factory.mktemp("law"))

    async def run() -> None:
        index = ws.index(HashEmbedder())
        await index.rebuild()
        for what, which, text in edits:
            edit(ws, what, which, text)
            await index.refresh()
        await assert_as_rebuilt(index)
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
            ws.transcripts.replace_head(known[0], ws.transcripts.read(known[0]).head, sealed=True)
        case "by hand" if known is not None:
            (ws.root / known[0]).chmod(0o600)
            with (ws.root / known[0]).open("a") as file:
                file.write(text)


async def ids(ws: Workspace) -> set[int]:
    connection = sqlite3.connect(live(ws))
    try:
        return {row[0] for row in connection.execute("SELECT id FROM knowledge_meta")}
    finally:
        connection.close()


LARGE = [f"knowledge/reference/{number}.md" for number in range(4)]


@asynccontextmanager
async def long_refresh(ws: Workspace, index: Index) -> AsyncIterator[None]:
    """Refreshes an index with four large files during the block, which begins after the first file."""
    for name in LARGE:
        ws.write(name, sections(250))
    begun = anyio.Event()

    def show(done: int, total: int) -> None:
        begun.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(index.refresh, show)
        await begun.wait()
        yield


async def test_a_small_change_does_not_wait_for_a_long_refresh(ws: Workspace, built: Build) -> None:
    index = await built(HashEmbedder())
    async with long_refresh(ws, index):
        ws.write("knowledge/reference/a.md", "penguin")
        assert await index.apply_small(["knowledge/reference/a.md"]) == (1, [])
        assert await paths(index, "penguin", mode="keyword") == ["knowledge/reference/a.md"]
        assert (await index.status()).passages < 1_000
    assert (await index.status()).passages == 1_001
    await assert_as_rebuilt(index)


async def test_what_a_long_refresh_is_writing_is_left_to_it(ws: Workspace, built: Build) -> None:
    index = await built(HashEmbedder())
    left: list[str] = []
    async with long_refresh(ws, index):
        for name in LARGE:
            ws.write(name, sections(251))
            left += (await index.apply_small([name]))[1]
    assert left
    await index.apply(left)
    await assert_as_rebuilt(index)
    assert (await index.status()).passages == 4 * 251


async def test_what_is_much_to_read_is_left_for_later(ws: Workspace, indexed: Make) -> None:
    index = indexed(HashEmbedder())
    assert await index.apply_small(["knowledge/reference/a.md"]) == (0, ["knowledge/reference/a.md"])
    await index.rebuild()
    ws.write("knowledge/reference/a.md", "walrus")
    ws.write("knowledge/reference/b.md", sections(30_000))
    ws.write("knowledge/reference/c.md", "penguin")
    assert await index.apply_small(["knowledge/reference"]) == (2, ["knowledge/reference/b.md"])
    assert await paths(index, "walrus penguin", mode="keyword") == [
        "knowledge/reference/a.md",
        "knowledge/reference/c.md",
    ]
    with anyio.fail_after(60):
        await index.settle(["knowledge/reference/b.md"], patience=600)  # returns: nobody indexes it


async def test_nothing_is_waited_for_behind_a_link(ws: Workspace, indexed: Make) -> None:
    index = indexed(HashEmbedder())
    ws.write("knowledge/reference/a.md", "walrus")
    (ws.root / "knowledge" / "reference" / "link.md").symlink_to("a.md")
    await index.rebuild()
    with anyio.fail_after(60):
        await index.settle(["knowledge/reference/a.md", "knowledge/reference/link.md"], patience=600)


def sections(many: int) -> str:
    return "".join(f"# {number}\n\nwords\n\n" for number in range(many))


async def test_looking_whether_the_index_has_changed_loads_no_numpy(
    ws: Workspace, indexed: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    ws.write("knowledge/reference/a.md", "walrus")
    await indexed().rebuild()
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "numpy", None)  # importing it fails
        generation, _ = await indexed().data_version()
    assert generation == "1"


async def test_broken_files_are_named_and_stop_nothing(ws: Workspace, built: Build) -> None:
    ws.write("knowledge/reference/yaml.md", "---\ntitle: [unclosed\n---\n\nthe walrus text")
    ws.write("knowledge/reference/bytes.md", b"walrus\0")
    ws.write("knowledge/reference/latin.md", b"walrus \xe9t\xe9")
    ws.write("raw/conversations/2026/05/01/0900-x-y.md", "no front matter, but a walrus")
    ws.write("raw/conversations/2026/05/01/0901-x-y.md", "---\nsession_id: [\n---\n\n# x\n\n## 09:00 — user\nwalrus\n")
    ws.write("knowledge/reference/good.md", "good walrus")
    index = await built(HashEmbedder())
    problems = "\n".join((await index.status()).problems)
    for name in ("yaml.md", "bytes.md", "latin.md", "0900-x-y.md", "0901-x-y.md"):
        assert name in problems
    assert "good.md" not in problems
    assert len(set(await paths(index, "walrus"))) == 5


async def test_a_large_message_is_one_unit_of_many_passages(
    ws: Workspace, built: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "PASSAGES", 100)  # more than twice as many passages are written in several transactions
    ws.say("s1", "\n\n".join(f"paragraph {number} " + "filler words here " * 30 for number in range(310)))
    ws.say("s1", "small")
    index = await built()
    found = await candidates_of(index, plain_query("paragraph 271"))
    ranked = ranking.rank(found.asked, values_of(found))
    assert len({c.unit for c in values_of(found)}) == len(ranked) == 2  # and its neighbour
    assert "paragraph 271" in passage_of(found, ranked[0].candidate).text
    assert (await index.status()).passages > 200
    await assert_as_rebuilt(index)


async def test_what_is_no_plain_file_of_the_workspace_is_not_read(ws: Workspace, built: Build) -> None:
    ws.write(".local/http-token", "walrus secret")
    ws.write("knowledge/reference/good.md", "good walrus")
    folder = ws.root / "knowledge/reference"
    (folder / "link.md").symlink_to("../../.local/http-token")
    os.mkfifo(folder / "pipe.md")
    index = await built()
    await index.apply([f"knowledge/reference/{name}.md" for name in ("link", "pipe", "good")])
    assert set(await paths(index, "walrus")) == {"knowledge/reference/good.md"}


async def test_times_and_numbers_that_no_database_holds_stop_nothing(ws: Workspace, built: Build) -> None:
    ws.write("knowledge/reference/old.md", "---\nupdated: 0001-01-01T00:00:00+05:00\n---\n\nold walrus")
    head = "---\nsession_id: x\nstarted: 2026-05-01T09:00:00Z\n---\n\n# x\n"
    turn = '\n## 09:00 — user\n<!-- {"turn":99999999999999999999} -->\nhuge walrus\n'
    ws.write("raw/conversations/2026/05/01/0900-x-y.md", head + turn)
    index = await built()
    assert len(await paths(index, "walrus")) == 2


def test_stems_that_are_known_survive_that_too_many_are() -> None:
    connection = sqlite3.connect(":memory:")
    words = Stems(connection)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stems, "MOST", 3)
        first = words.numbers(["boats", "sail", "north"])
        assert words.numbers(["boat", "ships", "sail"])[::2] == first[:2]
    connection.close()


async def test_a_rebuild_serves_the_old_generation_until_it_is_done(ws: Workspace, indexed: Make) -> None:
    ws.write("knowledge/reference/a.md", "a walrus")
    index, other = indexed(HashEmbedder()), indexed(HashEmbedder())
    await index.rebuild()
    first = (await candidates_of(other, plain_query("walrus"))).generation
    during: list[str] = []

    def look(done: int, total: int) -> None:
        during.extend(place.name for place in (ws.files.local / "index").glob("*.db"))

    await index.rebuild(look)
    assert len(set(during)) == 2
    second = (await candidates_of(other, plain_query("walrus"))).generation
    assert int(second) > int(first)


async def test_old_generations_go_when_nobody_holds_them_and_others_files_stay(ws: Workspace, indexed: Make) -> None:
    ws.write("knowledge/reference/a.md", "a walrus")
    index, other = indexed(HashEmbedder()), indexed(HashEmbedder())
    await index.rebuild()
    await candidates_of(other, plain_query("walrus"))
    foreign = [ws.files.local / "index" / name for name in ("memory-0-hash-1.db", f"memory-{SCHEMA}-openai-4.db")]
    for place in foreign:
        place.write_text("not ours")
    await index.rebuild()
    names = {place.name for place in (ws.files.local / "index").glob(f"memory-{SCHEMA}-hash-*.db")}
    assert names == {f"memory-{SCHEMA}-hash-1.db", f"memory-{SCHEMA}-hash-2.db"}
    await candidates_of(other, plain_query("walrus"))
    await index.rebuild()
    await candidates_of(other, plain_query("walrus"))
    names = {place.name for place in (ws.files.local / "index").glob(f"memory-{SCHEMA}-hash-*.db")}
    assert f"memory-{SCHEMA}-hash-1.db" not in names
    assert all(place.read_text() == "not ours" for place in foreign)
