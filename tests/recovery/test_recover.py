"""What left the memory or was changed in it comes back, and that can be taken back too."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from anyio import run_process
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.app import open_memory
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.conversations.sessions import end_session
from mcp_server.errors import Conflict, ContextManagerError, Invalid, NotFound, Refused, Unavailable
from mcp_server.forgetting.forget import forget
from mcp_server.forgetting.target import ForgetTarget, resolve_target
from mcp_server.knowledge.remember import NewFact, remember
from mcp_server.memory import Memory
from mcp_server.model import Caller, ToolCall
from mcp_server.recovery.recover import Recovery, path_and_revision, recover
from mcp_server.recovery.recoverable import Recoverable, as_text, lost_lines, matching, meant, recoverable
from mcp_server.relevance.chunks import LiveChunk
from mcp_server.relevance.live_set import live_set
from mcp_server.storage import journal
from mcp_server.storage.journal import KEPT
from mcp_server.storage.local.git.repository import Repository
from mcp_server.text.destinations import ARCHIVE, MEMORY
from mcp_server.text.entries import entry_id
from mcp_server.text.forgotten import Forgotten
from tests.conftest import Clock, copied
from tests.editors import saves_first
from tests.knowledge.test_remember import multiply
from tests.pressing import SMALL, USER, errand, grow
from tests.workspaces import bytes_of

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("fast_notes")]
NOTES = "knowledge/reference/notes.md"


def committed(memory: Memory, text: str, path: str = NOTES) -> str:
    """Writes a file and commits it; the commit's id."""
    memory.files.write_atomic(path, text)
    commit = memory.git.commit_files([path], "memory: notes", redacted=True).commit
    assert commit is not None
    return commit


async def undo(memory: Memory, done: Recovery) -> Recovery:
    """Takes a recovery back."""
    assert done.undo is not None
    return await recover(memory, done.undo, USER, apply=True)


@pytest.fixture
async def kayak(memory: Memory, clock: Clock) -> str:
    """Fills MEMORY.md until its first fact is archived; the id of that fact."""
    await remember(memory, NewFact("the blue kayak needs a new paddle"), USER)
    await remember(memory, NewFact("fact number 0 of many"), USER)
    multiply(memory, "fact number 0 of many", 195)
    clock.forward(days=195)
    for number in range(195, 200):
        clock.forward(days=1)
        await remember(memory, NewFact(f"fact number {number} of many"), USER)
    found = await recoverable(memory, "kayak paddle")
    (archived,) = [one for one in found if one.kind == "archive"]
    assert "blue kayak" in archived.summary
    return archived.id


def contents(memory: Memory) -> dict[str, str]:
    """Every knowledge and archive file."""
    paths = [stat.path for folder in ("knowledge/", "archive/") for stat in memory.files.walk(folder)]
    return {path: memory.files.read_text(path) for path in paths}


async def test_a_dry_run_shows_what_would_change_and_changes_nothing(memory: Memory) -> None:
    first = committed(memory, "# Notes\n\nThe boiler runs at 3 bar.\n")
    committed(memory, "# Notes\n\nThe boiler runs at 2 bar.\n")
    before = contents(memory)
    shown = await recover(memory, f"{NOTES}@{first}", USER)
    assert "+The boiler runs at 3 bar." in shown.diff
    assert "-The boiler runs at 2 bar." in shown.diff
    assert not shown.applied
    assert "would be recovered" in shown.markdown
    assert contents(memory) == before
    assert not memory.files.exists(KEPT)


async def test_an_earlier_version_comes_back_and_its_undo_takes_it_back(memory: Memory) -> None:
    first = committed(memory, "one\n")
    memory.files.write_atomic(NOTES, "two, never committed\n")
    done = await recover(memory, f"{NOTES}@{first[:10]}", USER, apply=True)
    assert done.applied
    assert memory.files.read_text(NOTES) == "one\n"
    assert f"undo: recover {done.undo}" in done.markdown
    undone = await undo(memory, done)
    assert memory.files.read_text(NOTES) == "two, never committed\n"
    await undo(memory, undone)
    assert memory.files.read_text(NOTES) == "one\n"


async def test_a_deleted_file_comes_back_and_undoing_deletes_it_again(memory: Memory) -> None:
    commit = committed(memory, "kept in git\n")
    memory.files.remove(NOTES)
    memory.git.commit_files([NOTES], "memory: gone")
    done = await recover(memory, f"{NOTES}@{commit}", USER, apply=True)
    assert memory.files.read_text(NOTES) == "kept in git\n"
    await undo(memory, done)
    assert not memory.files.exists(NOTES)


async def test_a_version_is_named_by_a_date_or_a_tag_too(memory: Memory, workspace: Path) -> None:
    committed(memory, "one\n")
    await run_process(["git", "tag", "milestone/one"], cwd=workspace)
    committed(memory, "two\n")
    memory.files.write_atomic(NOTES, "three\n")
    assert (await recover(memory, f"{NOTES}@milestone/one", USER)).diff.endswith("-three\n+one")
    assert (await recover(memory, f"{NOTES}@2099-01-01", USER)).diff.endswith("-three\n+two")
    assert (await recover(memory, f"{NOTES}@HEAD^{{commit}}", USER)).diff.endswith("-three\n+two")


async def test_a_version_that_is_there_already_changes_nothing(memory: Memory) -> None:
    commit = committed(memory, "one\n")
    done = await recover(memory, f"{NOTES}@{commit}", USER, apply=True)
    assert (done.applied, done.diff, done.undo) == (False, "", None)
    assert "nothing to do" in done.markdown


async def test_an_archived_entry_moves_back_word_for_word_and_the_undo_restores_every_byte(
    memory: Memory, kayak: str
) -> None:
    before = contents(memory)
    assert "kayak" not in before[MEMORY]
    done = await recover(memory, kayak, USER, apply=True)
    assert done.applied
    assert "- 2026-02-16: the blue kayak needs a new paddle" in memory.files.read_text(MEMORY)
    assert "kayak" not in memory.files.read_text(ARCHIVE)
    assert f"line_count: {len(memory.files.read_text(MEMORY).splitlines())}" in memory.files.read_text(MEMORY)
    assert any("archived again" in note for note in done.notes)
    await undo(memory, done)
    assert contents(memory) == before


async def test_an_entry_that_memory_says_again_only_leaves_the_archive(memory: Memory, kayak: str) -> None:
    await remember(memory, NewFact("The blue kayak needs a new paddle."), USER)
    before = memory.files.read_text(MEMORY)
    done = await recover(memory, kayak, USER, apply=True)
    assert any("already" in note for note in done.notes)
    assert memory.files.read_text(MEMORY) == before
    assert "kayak" not in memory.files.read_text(ARCHIVE)


async def test_a_full_memory_takes_no_entry_back(memory: Memory, kayak: str) -> None:
    memory.files.write_atomic(MEMORY, memory.files.read_text(MEMORY) + "words\n" * 60)
    with pytest.raises(Refused, match="shorten it first"):
        await recover(memory, kayak, USER, apply=True)


async def test_broken_front_matter_does_not_stop_an_entry(memory: Memory, kayak: str) -> None:
    memory.files.write_atomic(MEMORY, "---\nupdated: [\n---\n# Memory\n")
    await recover(memory, kayak, USER, apply=True)
    text = memory.files.read_text(MEMORY)
    assert text.startswith("---\nupdated: [\n---\n")
    assert "blue kayak" in text


async def test_an_archived_file_goes_back_to_where_it_stood(memory: Memory) -> None:
    memory.files.write_atomic("archive/journal/2025-01-01.md", "# A day\n")
    memory.files.write_atomic("archive/topics/tea.md", "# Tea\n")
    done = await recover(memory, "archive/journal/2025-01-01.md", USER, apply=True)
    assert memory.files.read_text("knowledge/journal/2025-01-01.md") == "# A day\n"
    assert not memory.files.exists("archive/journal/2025-01-01.md")
    await undo(memory, done)
    assert memory.files.exists("archive/journal/2025-01-01.md")
    assert not memory.files.exists("knowledge/journal/2025-01-01.md")
    await recover(memory, "archive/topics/tea.md", USER, apply=True)
    assert memory.files.read_text("topics/tea.md") == "# Tea\n"


async def test_what_can_come_back_is_listed_and_found_by_its_words(memory: Memory, kayak: str) -> None:
    commit = committed(memory, "# Notes\n\nThe boiler runs at 3 bar.\n")
    committed(memory, "# Notes\n\nThe boiler runs at 2 bar.\n")
    memory.files.write_atomic("archive/journal/2025-01-01.md", "# A day by the sea\n")
    taken_back_by = (await recover(memory, f"{NOTES}@{commit}", USER, apply=True)).undo
    listed = await recoverable(memory)
    assert [one.id for one in listed if one.kind == "replaced"] == [taken_back_by]
    versions = [one for one in listed if one.path == NOTES]
    assert [one.kind for one in versions] == ["replaced", "version"]
    assert "restoring adds 1 line and removes 1 (" in versions[1].summary
    dates = [one.at for one in listed if one.kind == "archive" and one.at]
    assert dates == sorted(dates, reverse=True)
    assert len(await recoverable(memory, limit=1)) == 3

    found = await recoverable(memory, "a paddle for the kayak")
    assert found[0].id == kayak
    assert {one.id for one in await recoverable(memory, "2 bar")} >= {versions[1].id, taken_back_by}
    assert [one.id for one in await recoverable(memory, "sea")] == ["archive/journal/2025-01-01.md"]
    assert await recoverable(memory, "xylophone") == []
    assert as_text([]) == "There is nothing to recover."


async def test_each_listed_version_can_be_recovered_by_its_id(memory: Memory) -> None:
    for number in range(6):
        committed(memory, f"version {number}\n")
    memory.files.remove(NOTES)
    listed = [one for one in await recoverable(memory) if one.path == NOTES]
    assert len(listed) == 3
    assert all("the file is gone" in one.summary for one in listed)
    for number, one in zip((5, 4, 3), listed, strict=True):
        assert (await recover(memory, one.id, USER)).diff.endswith(f"+version {number}")


NOT_RECOVERABLE: tuple[tuple[str, type[Exception]], ...] = (
    ("raw/conversations/2026/02/16/x.md@HEAD", ContextManagerError),
    ("memory-config.yaml@HEAD", Refused),
    ("../outside.md@HEAD", Refused),
    ("/etc/passwd@HEAD", Refused),
    (".git/config@HEAD", Refused),
    (".local/state.db@HEAD", ContextManagerError),
    (f"{MEMORY}@nosuch", NotFound),
    (f"{MEMORY}@--output=x", NotFound),
    ("knowledge/nosuch.md@HEAD", NotFound),
    ("entry-00000000", NotFound),
    ("c00000000000", NotFound),
    ("before-00000000", NotFound),
    ("before-../../x", ContextManagerError),
    ("archive/nosuch.md", NotFound),
    (ARCHIVE, Invalid),
    ("something", Invalid),
    ("@HEAD", Invalid),
    ("", Invalid),
)


async def test_what_cannot_be_recovered_says_why(memory: Memory) -> None:
    memory.files.write_atomic("memory-config.yaml", "# changed\n")
    before = contents(memory)
    for what, error in NOT_RECOVERABLE:
        with pytest.raises(error):
            await recover(memory, what, USER, apply=True)
    assert contents(memory) == before


async def test_transcripts_are_never_written(memory: Memory) -> None:
    path = "raw/conversations/2026/02/16/1845-s-hello.md"
    committed(memory, "as it was\n", path)
    memory.files.write_atomic(path, "as it is\n")
    with pytest.raises(Refused, match="read raw/"):
        await recover(memory, f"{path}@HEAD", USER, apply=True)
    assert memory.files.read_text(path) == "as it is\n"


async def test_identity_comes_back_by_the_users_hand_only(memory: Memory) -> None:
    soul = "knowledge/identity/SOUL.md"
    memory.files.write_atomic(soul, "mine\n")
    with pytest.raises(Refused, match="only the user may"):
        await recover(memory, f"{soul}@HEAD", Caller(), apply=True)
    assert (await recover(memory, f"{soul}@HEAD", USER, apply=True)).applied
    memory.files.write_atomic(soul, "mine\n")
    knowledge = memory.settings.knowledge.model_copy(update={"approve": False})
    trusting = replace(memory, settings=memory.settings.model_copy(update={"knowledge": knowledge}))
    assert (await recover(trusting, f"{soul}@HEAD", Caller(), apply=True)).applied


async def test_a_version_with_a_secret_stays_in_git(memory: Memory) -> None:
    commit = committed(memory, "token: ghp_" + "a1B2c3D4e5" * 4 + "\n")
    memory.files.write_atomic(NOTES, "the token is in the safe\n")
    with pytest.raises(Refused, match="secret"):
        await recover(memory, f"{NOTES}@{commit}", USER, apply=True)


async def test_what_an_editor_saves_in_between_can_be_had_back(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = committed(memory, "one\n")
    memory.files.write_atomic(NOTES, "two\n")
    saves_first(monkeypatch, memory.files, NOTES, lambda _: "three, by an editor\n")
    done = await recover(memory, f"{NOTES}@{commit}", USER, apply=True)
    assert memory.files.read_text(NOTES) == "one\n"
    await undo(memory, done)
    assert memory.files.read_text(NOTES) == "three, by an editor\n"


async def test_an_editor_that_never_stops_saving_wins(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = committed(memory, "one\n")
    memory.files.write_atomic(NOTES, "two\n")
    saves_first(monkeypatch, memory.files, NOTES, lambda text: f"{text}and more\n", times=100)
    with pytest.raises(Conflict):
        await recover(memory, f"{NOTES}@{commit}", USER, apply=True)


async def test_without_git_entries_still_come_back(memory: Memory, monkeypatch: pytest.MonkeyPatch, kayak: str) -> None:

    def missing(*_: object, **__: object) -> bytes:
        raise Unavailable("this needs git")

    monkeypatch.setattr(Repository, "run", missing)
    assert {one.kind for one in await recoverable(memory)} == {"archive"}
    assert (await recover(memory, kayak, USER, apply=True)).applied
    with pytest.raises(Unavailable, match="git"):
        await recover(memory, f"{MEMORY}@HEAD", USER)


async def test_only_so_many_replaced_files_are_kept(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "MOST_KEPT", 4)
    commits = [committed(memory, "one\n"), committed(memory, "two\n")]
    for number in range(7):
        await recover(memory, f"{NOTES}@{commits[number % 2]}", USER, apply=True)
    kept = [one for one in await recoverable(memory, limit=1000) if one.kind == "replaced"]
    assert len(kept) == 4
    assert len(list((memory.disk.root / KEPT).iterdir())) == 4


async def test_a_damaged_copy_is_not_offered(memory: Memory) -> None:
    commit = committed(memory, "one\n")
    memory.files.write_atomic(NOTES, "two\n")
    done = await recover(memory, f"{NOTES}@{commit}", USER, apply=True)
    memory.files.write_atomic(f"{KEPT}/{done.undo}/about.json", "[]")
    assert not [one for one in await recoverable(memory) if one.kind == "replaced"]
    with pytest.raises(NotFound):
        await recover(memory, str(done.undo), USER)


async def test_what_was_forgotten_on_request_comes_back_from_nowhere(memory: Memory) -> None:
    commit = committed(memory, "# Notes\n\n- The vault's code is 47-11.\n- The vault is green.\n")
    memory.files.write_atomic(NOTES, "# Notes\n")
    request = Forgotten("fgt_1", memory.clock(), b"salt")
    memory.forgotten.add(replace(request, windows=frozenset({request.window("The vault's code is 47-11")})))
    assert "47-11" not in str(await recoverable(memory, "vault code"))
    assert "47-11" not in (await recover(memory, f"{NOTES}@{commit}", USER, apply=True)).diff
    text = memory.files.read_text(NOTES)
    assert "47-11" not in text
    assert "- The vault is green." in text


async def test_a_file_that_was_forgotten_as_a_whole_stays_away(memory: Memory) -> None:
    commit = committed(memory, "# Notes\n")
    request, _ = await resolve_target(memory, ForgetTarget(path=NOTES))
    memory.files.remove(NOTES)
    memory.forgotten.add(request)
    with pytest.raises(Refused, match="forgotten on request"):
        await recover(memory, f"{NOTES}@{commit}", USER, apply=True)


async def test_a_recovery_counts_as_a_reference(memory: Memory) -> None:
    first = committed(memory, "one\n")
    committed(memory, "two\n")
    await recover(memory, f"{NOTES}@{first}", USER)
    assert await memory.state.references([NOTES]) == {}
    await recover(memory, f"{NOTES}@{first}", USER, apply=True)
    assert await memory.state.references([NOTES]) == {NOTES: 1}


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("knowledge/a.md@HEAD", ("knowledge/a.md", "HEAD")),
        ("knowledge/a.md@HEAD@{1}", ("knowledge/a.md", "HEAD@{1}")),
        ("knowledge/people/ana@work.md@2026-01-31", ("knowledge/people/ana@work.md", "2026-01-31")),
        ("knowledge/a.md@origin/main", ("knowledge/a.md", "origin/main")),
        ("knowledge/LICENSE@v1", ("knowledge/LICENSE", "v1")),
        ("knowledge/a.md@", None),
        ("@HEAD", None),
        ("knowledge/a.md", None),
        ("", None),
    ],
)
def test_a_path_and_its_revision(what: str, expected: tuple[str, str] | None) -> None:
    assert path_and_revision(what) == expected


@given(st.text())
def test_no_text_breaks_it(what: str) -> None:
    split = path_and_revision(what)
    assert split is None or "@".join(split) == what


def test_an_entry_has_one_id_wherever_it_stands() -> None:
    assert entry_id("- 2026-01-01: a fact\n") == entry_id("- 2026-01-01: a fact")
    assert entry_id("- a fact") != entry_id("- another fact")


def test_lost_lines_are_those_that_are_there_less_often() -> None:
    assert lost_lines("a\n\nb\nb\nc\n", "b\nc\nd\n") == ["a", "b"]
    assert lost_lines("a\n", "a\n") == []


def test_the_line_that_holds_most_of_a_query_is_shown() -> None:
    lines = ["- the kayak is blue", "- a new paddle for the kayak", "- tea"]
    assert matching("Which paddle for the kayak?", lines) == (2, "- a new paddle for the kayak")
    assert matching("xylophone", lines) == (0, "")
    assert matching("the", ["the"]) == (1, "the")


@pytest.fixture
async def memory(workspace: Path, empty_memory: None, clock: Clock) -> AsyncIterator[Memory]:
    async with open_memory(workspace, SMALL, clock=clock) as opened:
        yield opened


SAID = [errand(number) for number in range(1, 13)]


@pytest.fixture(scope="module")
def grown_workspace(tmp_path_factory: pytest.TempPathFactory, new_workspace: Path) -> Path:
    """A workspace with a conversation that said SAID and was compacted on its way."""
    made = tmp_path_factory.mktemp("grown") / "memory"
    copied(new_workspace, made)

    async def make() -> None:
        async with open_memory(made, SMALL, clock=Clock()) as opened:
            assert await grow(opened) == SAID

    anyio.run(make)
    return made


@pytest.fixture
async def grown(workspace: Path, grown_workspace: Path, clock: Clock) -> AsyncIterator[Memory]:
    copied(grown_workspace, workspace)
    async with open_memory(workspace, SMALL, clock=clock) as opened:
        yield opened


async def cold(memory: Memory) -> list[Recoverable]:
    return [one for one in await recoverable(memory, limit=100) if one.kind == "cold"]


async def forms(memory: Memory) -> dict[str, LiveChunk]:
    return {chunk.id: chunk for chunk in await live_set(memory, "s")}


async def test_each_cold_chunk_comes_back_byte_for_byte(grown: Memory) -> None:
    listed = await cold(grown)
    assert listed
    for one in listed:
        done = await recover(grown, one.id, USER, apply=True)
        chunk = (await forms(grown))[one.id]
        assert done.content == SAID[chunk.turn - 1]
        assert (done.applied, chunk.form) == (True, "whole")
    assert not await cold(grown)


async def test_any_text_comes_back_as_it_was(memory: Memory) -> None:
    said = ["line\r\nend \u2028 \\## x\n\n", "```\ncode\n```", "🙂 ćčšžđ " * 40, "\u0007 <!-- -->"]
    for content in said:
        await observe(memory, NewTurn("user", content * 3, session="s", delivery="replace"), USER)
    await grow(memory)
    gone = {chunk.turn: chunk for chunk in (await forms(memory)).values() if chunk.form != "whole"}
    for number, content in enumerate(said, 1):
        assert (await recover(memory, gone[number].id, USER)).content == content * 3


async def test_a_dry_run_says_what_would_come_and_leaves_every_byte(grown: Memory, workspace: Path) -> None:
    (one, *_) = await cold(grown)
    before, live = bytes_of(workspace), await forms(grown)
    shown = await recover(grown, one.id, USER)
    assert not shown.applied
    assert "would be recovered" in shown.markdown
    assert "tokens in the live context" in shown.markdown
    assert shown.diff.startswith("--- /dev/null")
    assert bytes_of(workspace) == before
    assert await forms(grown) == live


async def test_its_undo_puts_everything_where_it_was_and_can_be_undone(grown: Memory) -> None:
    (one, *_) = await cold(grown)
    record, live = grown.cold.find(one.id), (await forms(grown))[one.id]
    done = await recover(grown, one.id, USER, apply=True)
    assert done.undo is not None
    shown = await recover(grown, done.undo, USER)
    assert "would go back to cold storage" in shown.markdown
    assert (await forms(grown))[one.id].form == "whole"
    undone = await recover(grown, done.undo, USER, apply=True)
    assert undone.undo == one.id
    assert grown.cold.find(one.id) == record
    assert (await forms(grown))[one.id] == live
    assert [f"sends {one.id} back to cold storage"] == [
        kept.summary for kept in await recoverable(grown) if kept.kind == "replaced"
    ]


async def test_a_tool_s_result_comes_back_from_its_line(memory: Memory) -> None:
    call = ToolCall("read", "notes.txt", "A long file about nothing much. " * 30)
    await observe(memory, NewTurn("agent", "I look.", session="s", delivery="replace", tool_calls=(call,)), USER)
    await grow(memory, turns=8)
    (tool,) = [chunk for chunk in (await forms(memory)).values() if chunk.kind == "tool"]
    assert tool.form in ("one line", "cold")
    done = await recover(memory, tool.id, USER, apply=True)
    assert done.content == f"[tool:read] notes.txt → {call.result}"
    assert (await forms(memory))[tool.id].form == "whole"


async def test_words_find_it_and_one_thing_is_meant_or_none(grown: Memory) -> None:
    found = await recoverable(grown, "tulips in bed four on day 1")
    assert found[0].matched >= found[-1].matched
    assert (await meant(grown, "part 2 winter berth day 2")).path == "session s, turn 2"
    with pytest.raises(Invalid, match="equally well"):
        await meant(grown, "winter berth")
    with pytest.raises(NotFound, match="can be recovered matches"):
        await meant(grown, "xylophone")


async def test_after_the_conversation_ended_its_text_is_still_there(grown: Memory) -> None:
    (one, *_) = await cold(grown)
    turn = grown.cold.find(one.id).turn
    await end_session(grown, "s")
    assert one.id in {left.id for left in await cold(grown)}
    done = await recover(grown, one.id, USER, apply=True)
    assert done.content == SAID[turn - 1]
    assert "its conversation has ended" in done.markdown
    await undo(grown, done)
    assert one.id in {left.id for left in await cold(grown)}
    await recover(grown, one.id, USER, apply=True)
    await observe(grown, NewTurn("user", "Let us go on.", session="s"), USER)
    assert (await forms(grown))[one.id].form == "whole"


async def test_what_was_forgotten_does_not_come_back(memory: Memory) -> None:
    await observe(memory, NewTurn("user", "The code is violet umbrella nine.", session="s", delivery="replace"), USER)
    await grow(memory)
    (first,) = [chunk for chunk in (await forms(memory)).values() if chunk.turn == 1]
    assert first.form == "cold"
    done = await recover(memory, first.id, USER, apply=True)
    await forget(memory, ForgetTarget(text="violet umbrella nine"))
    await undo(memory, done)
    assert "violet" not in str((await recover(memory, first.id, USER)).content)
