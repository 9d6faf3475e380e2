"""The index follows the files."""

from __future__ import annotations

import os
import sqlite3
from dataclasses import replace

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_server.errors import Unavailable
from mcp_server.search.query import plain_query
from mcp_server.storage.local.index import writer
from mcp_server.storage.local.index.writer import write
from tests.storage.index.conftest import NOW, HashEmbedder, Make, Workspace, live, paths, texts

pytestmark = pytest.mark.anyio


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
    found = await index.candidates(plain_query("words"))
    assert [(one.candidate.path, one.passage.ordinal) for one in found.found] == [(path, 0), (path, 1)]


async def test_closing_a_transcript_rewrites_nothing(ws: Workspace, indexed: Make) -> None:
    path = ws.say("s1", "first words")
    ws.say("s1", "second words")
    index = indexed(HashEmbedder())
    await index.rebuild()
    before = await ids(ws)
    head = ws.transcripts.read(path).head
    ws.transcripts.replace_head(path, replace(head, ended=NOW, tokens_in=100), sealed=True)
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


async def test_a_unit_that_was_written_in_part_is_written_again(
    ws: Workspace, indexed: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = indexed()
    await index.rebuild()
    path = ws.say("s1", " ".join(f"sentence {number} tells of the harbour." for number in range(6_000)) + " quokka")
    ws.say("s1", "The next message.")
    writes = 0

    def failing(*arguments: object) -> None:
        nonlocal writes
        writes += 1
        if writes == 3:
            raise Unavailable("the disk is full")
        write(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(writer, "write", failing)
    with pytest.raises(Unavailable):
        await index.refresh()
    assert (await index.status()).state == "building"
    assert await index.refresh() == 1
    assert (await index.status()).state == "ready"
    assert set(await paths(index, "quokka")) == {path}
    followed = await index.fingerprint()
    await index.rebuild()
    assert await index.fingerprint() == followed


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


async def test_a_small_change_does_not_wait_for_a_long_refresh(ws: Workspace, indexed: Make) -> None:
    index = indexed(HashEmbedder())
    await index.rebuild()
    for number in range(10):
        ws.write(f"knowledge/reference/{number}.md", sections(400))
    begun = anyio.Event()

    def show(done: int, total: int) -> None:
        begun.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(index.refresh, show)
        await begun.wait()
        ws.write("knowledge/reference/a.md", "penguin")
        assert await index.apply_small(["knowledge/reference/a.md"]) == (1, [])
        assert await paths(index, "penguin", mode="keyword") == ["knowledge/reference/a.md"]
        assert (await index.status()).passages < 4_000
    assert (await index.status()).passages == 4_001
    before = await index.fingerprint()
    await index.rebuild()
    assert await index.fingerprint() == before


async def test_what_a_long_refresh_is_writing_is_left_to_it(ws: Workspace, indexed: Make) -> None:
    index = indexed(HashEmbedder())
    await index.rebuild()
    names = [f"knowledge/reference/{number}.md" for number in range(6)]
    for name in names:
        ws.write(name, sections(400))
    begun = anyio.Event()

    def show(done: int, total: int) -> None:
        begun.set()

    left: list[str] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(index.refresh, show)
        await begun.wait()
        for name in names:
            ws.write(name, sections(401))
            left += (await index.apply_small([name]))[1]
    assert left
    await index.apply(left)
    before = await index.fingerprint()
    await index.rebuild()
    assert await index.fingerprint() == before
    assert (await index.status()).passages == 6 * 401


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
