"""What was said elsewhere becomes sealed transcripts, once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.conversations import sessions
from mcp_server.conversations.closed_sessions import commit_together
from mcp_server.conversations.imports import (
    ImportedSession,
    ImportedTurn,
    RecordedSession,
    append_turns,
    import_markdown_file,
    record_session,
)
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.conversations.sessions import show_session
from mcp_server.conversations.source_keys import Known, TurnKey, content_sha, counts_of, keys_of, missing, sort_out
from mcp_server.errors import Invalid
from mcp_server.memory import Memory
from mcp_server.model import Caller, Role, Turn
from mcp_server.storage.files import BEGINNING
from tests.gitting import git, subjects

pytestmark = pytest.mark.anyio

START = datetime(2023, 5, 8, 13, 56, tzinfo=UTC)


def conversation(*contents: str, ids: bool = True) -> ImportedSession:
    turns = tuple(
        ImportedTurn("user", content, START + timedelta(seconds=place), f"D1:{place}" if ids else None, "Ana")
        for place, content in enumerate(contents, 1)
    )
    return ImportedSession("talk-1", turns, "import:test", project="atlas")


async def test_an_import_is_one_sealed_transcript(memory: Memory) -> None:
    done = await record_session(memory, conversation("hello", "again"))
    assert done.path == "raw/conversations/2023/05/08/1356-talk-1-hello.md"
    text = memory.files.read_text(done.path)
    assert "## 13:56 — user (Ana)" in text
    assert "project: name:atlas" in text.replace('"', "")
    assert memory.transcripts.read(done.path).head.ended == START + timedelta(seconds=2)


async def test_importing_it_again_adds_nothing(memory: Memory) -> None:
    await record_session(memory, conversation("hello", "again", "again"))
    again = await record_session(memory, conversation("hello", "again", "again"))
    assert (again.path, again.new_turns, again.repeated_turns) == (None, 0, 3)


async def test_without_ids_the_words_and_their_count_tell_a_repeat(memory: Memory) -> None:
    await record_session(memory, conversation("continue", "continue", ids=False))
    again = await record_session(memory, conversation("continue", "continue", "continue", ids=False))
    assert again.new_turns == 1


async def test_a_conversation_that_has_grown_is_continued(memory: Memory) -> None:
    first = await record_session(memory, conversation("hello"))
    grown = await record_session(memory, conversation("hello", "more"))
    assert (grown.new_turns, grown.repeated_turns) == (1, 1)
    shown = await show_session(memory, "talk-1")
    assert [turn.number for turn in shown.turns] == [1, 2]
    assert shown.paths == (first.path, grown.path)


async def test_an_import_of_what_was_captured_live_adds_nothing(memory: Memory) -> None:
    for content in ("hello", "again"):
        await observe(memory, NewTurn("user", content, "talk-1"), Caller())
    done = await record_session(memory, conversation("hello", "again"))
    assert done.new_turns == 0


async def test_secrets_are_redacted(memory: Memory) -> None:
    key = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    done = await record_session(memory, conversation(f"token {key}"))
    assert done.redacted == 1
    assert done.path is not None
    assert key not in memory.files.read_text(done.path)


@pytest.mark.folder_only
async def test_one_import_is_one_commit_with_the_checkpoints_of_what_it_closed(memory: Memory, workspace: Path) -> None:
    await observe(memory, NewTurn("user", "hello", "talk-2"), Caller())
    paths = []
    for number in (1, 2):
        said = replace(conversation("hello", "more"), session_id=f"talk-{number}")
        paths.append((await record_session(memory, said)).path or "")
    commit, _ = await commit_together(memory, "import talks")
    assert commit is not None
    assert all(memory.git.show(path, commit) for path in paths)
    assert subjects(workspace, "-2") == ["conversation: import talks", BEGINNING]
    assert git(workspace, "status", "--porcelain", "raw", "checkpoints") == ""
    assert await commit_together(memory, "import talks") == (None, "nothing to commit")


async def test_markdown_keeps_its_relative_path_and_the_same_bytes_change_nothing(memory: Memory) -> None:
    done = await import_markdown_file(memory, "My Notes", "a/b.md", b"# B\n")
    assert (done.path, done.status) == ("knowledge/reference/my-notes/a/b.md", "new")
    assert (await import_markdown_file(memory, "My Notes", "a/b.md", b"# B\n")).status == "same"
    assert (await import_markdown_file(memory, "My Notes", "a/b.md", b"# B2\n")).status == "changed"


async def test_what_cannot_be_read_is_skipped_and_says_why(memory: Memory) -> None:
    for relative, data, why in (
        ("x.md", b"\xff\xfe", "not UTF-8"),
        ("x.md", b"a\0b", "NUL"),
        ("../x.md", b"# X", "leaves the workspace"),
        (f"ghp_{'a1B2c3D4' * 4}.md", b"x", "its name holds a secret"),
    ):
        done = await import_markdown_file(memory, "notes", relative, data)
        assert (done.status, "ghp_" in done.path) == ("skipped", False)
        assert why in done.why


async def test_an_import_needs_a_name(memory: Memory) -> None:
    with pytest.raises(Invalid, match="another name"):
        await import_markdown_file(memory, "☂", "x.md", b"# X")


async def test_turns_are_appended_to_the_open_transcript(memory: Memory) -> None:
    first = await append_turns(memory, conversation("hello", "again"))
    more = await append_turns(memory, conversation("hello", "again", "more", "and more"))
    assert (first.new_turns, more.new_turns, more.repeated_turns) == (2, 2, 2)
    assert first.path == more.path
    shown = await show_session(memory, "talk-1")
    said = [(turn.number, turn.content) for turn in shown.turns]
    assert said == list(enumerate(("hello", "again", "more", "and more"), 1))
    assert shown.row.status == "open"
    assert (await append_turns(memory, conversation("hello", "again"))).path is None


async def test_what_is_observed_and_what_is_appended_go_into_one_transcript(memory: Memory) -> None:
    await append_turns(memory, conversation("hello"))
    await observe(memory, NewTurn("agent", "hi", "talk-1"), Caller())
    await append_turns(memory, conversation("hello", "again"))
    shown = await show_session(memory, "talk-1")
    assert [turn.content for turn in shown.turns] == ["hello", "hi", "again"]
    assert len(shown.paths) == 1


async def test_an_id_that_is_unique_is_recorded_in_one_session_only(memory: Memory) -> None:
    original = replace(conversation("hello", "again"), unique_ids=True)
    await record_session(memory, original)
    copy = await record_session(memory, replace(original, session_id="talk-2"))
    assert (copy.new_turns, copy.copied) == (0, 2)
    other = await record_session(memory, replace(original, session_id="talk-3", unique_ids=False))
    assert (other.new_turns, other.copied) == (2, 0)


async def test_a_turn_without_an_id_gets_the_one_that_comes_later(memory: Memory) -> None:
    await observe(memory, NewTurn("user", "ok", "talk-1"), Caller())
    await observe(memory, NewTurn("agent", "fine", "talk-1"), Caller())
    await observe(memory, NewTurn("user", "ok", "talk-1"), Caller())
    assert (await append_turns(memory, conversation("ok"))).new_turns == 0
    assert (await append_turns(memory, conversation("ok"))).new_turns == 0
    (first, _, third) = await memory.state.keys("talk-1")
    assert (first.turn_id, third.turn_id) == ("D1:1", None)


@pytest.mark.parametrize("record", [record_session, append_turns])
async def test_a_part_that_was_written_before_a_crash_is_not_written_again(
    memory: Memory, record: Callable[[Memory, ImportedSession], Awaitable[RecordedSession]]
) -> None:
    await record_session(memory, conversation("one", "two"))
    row = await sessions.require(memory, "talk-1")
    head = replace(memory.transcripts.read(row.path).head, continues=row.path)
    third = Turn(3, "user", "three", START + timedelta(seconds=3), "D1:3", "Ana", "import:test")
    async with memory.locks.transcript("talk-1"):
        async with sessions.continuing(memory, row):
            memory.transcripts.create(head, third, sealed=True)
            crash = await memory.state.get(sessions.CONTINUING, "talk-1")
        await memory.state.put(sessions.CONTINUING, "talk-1", crash)
    done = await record(memory, conversation("one", "two", "three", "four"))
    assert done.new_turns == 1
    shown = await show_session(memory, "talk-1")
    assert [(turn.number, turn.content) for turn in shown.turns] == [(1, "one"), (2, "two"), (3, "three"), (4, "four")]


async def test_the_folder_it_was_held_in_tells_the_project(memory: Memory, tmp_path: Path) -> None:
    (tmp_path / ".context-manager").write_text("atlas\n")
    imported = replace(conversation("hello"), project=None, folder=str(tmp_path))
    await record_session(memory, imported)
    assert (await sessions.require(memory, "talk-1")).project == "name:atlas"


async def test_a_later_part_keeps_kind_delivery_and_project(memory: Memory) -> None:
    await observe(memory, NewTurn("user", "hello", "talk-1", kind="subagent", project="other"), Caller())
    await append_turns(memory, conversation("hello", "again"))
    await sessions.end_session(memory, "talk-1")
    done = await append_turns(memory, conversation("hello", "again", "more"))
    assert done.path is not None
    head = memory.transcripts.read(done.path).head
    assert (head.kind, head.delivery, head.project) == ("subagent", "add", "name:other")


async def test_titles_models_and_names_of_projects_hold_no_secrets(memory: Memory) -> None:
    secret = f"ghp_{'a1B2c3D4' * 4}"
    talk = replace(conversation("hello"), title=f"use {secret} here", model=secret, project=secret)
    for number, record in enumerate((record_session, append_turns)):
        done = await record(memory, replace(talk, session_id=f"talk-{number}"))
        assert done.path is not None
        assert "ghp" not in done.path
        assert "ghp_" not in memory.files.read_text(done.path)
    (row, other) = await memory.state.sessions()
    assert "ghp_" not in f"{row}{other}"


AT = datetime(2026, 1, 1, tzinfo=UTC)
ROLES: list[Role] = ["user", "agent"]
sequences = st.lists(st.tuples(st.sampled_from(ROLES), st.sampled_from(["continue", "ok", "done"])), max_size=12)


def turn(number: int, role: Role, content: str, turn_id: str | None = None) -> Turn:
    return Turn(number, role, content, AT, turn_id)


def arriving(content: str, turn_id: str | None = None, role: Role = "user") -> tuple[Role, str, str | None]:
    return role, content_sha(content), turn_id


def test_nth_counts_the_earlier_identical_turns_and_lone_surrogates_have_a_hash_too() -> None:
    keys = keys_of([turn(1, "user", "continue"), turn(2, "agent", "ok"), turn(3, "user", "continue")])
    assert [key.nth for key in keys] == [0, 0, 1]
    assert keys_of([turn(4, "user", "continue")], counts_of(keys))[0].nth == 2
    assert content_sha("\ud800") != content_sha("?")


@given(sequences)
def test_importing_a_sequence_twice_adds_nothing(said: list[tuple[Role, str]]) -> None:
    turns = [turn(number, role, content) for number, (role, content) in enumerate(said, 1)]
    sequence = [(role, content_sha(content), None) for role, content in said]
    assert missing([], sequence) == list(range(len(said)))
    assert missing(keys_of(turns), sequence) == []


@given(sequences, st.integers(0, 12))
def test_keys_do_not_depend_on_where_the_reading_was_interrupted(said: list[tuple[Role, str]], cut: int) -> None:
    turns = [turn(number, role, content) for number, (role, content) in enumerate(said, 1)]
    first: list[TurnKey] = keys_of(turns[:cut])
    assert first + keys_of(turns[cut:], counts_of(first)) == keys_of(turns)


def known(keys: list[TurnKey], elsewhere: frozenset[str] = frozenset()) -> Known:
    nameless: dict[tuple[Role, str], tuple[int, ...]] = {}
    for key in keys:
        if key.turn_id is None:
            nameless[key.role, key.sha] = (*nameless.get((key.role, key.sha), ()), key.number)
    return Known(frozenset(key.turn_id for key in keys if key.turn_id), {}, nameless, elsewhere)


def with_id(content: str, turn_id: str, role: Role = "user") -> tuple[Role, str, str]:
    return role, content_sha(content), turn_id


def test_a_turn_recorded_without_an_id_takes_the_first_id_that_fits() -> None:
    keys = keys_of([turn(1, "user", "ok"), turn(2, "agent", "fine"), turn(3, "user", "ok", "b")])
    done = sort_out(known(keys), [with_id("ok", "a"), with_id("ok", "b"), with_id("ok", "c")])
    assert done == ([2], [(1, "a")])
    new, _ = sort_out(known([], frozenset("a")), [with_id("x", "a"), with_id("x", "b"), with_id("x", "b")])
    assert new == [1]


@given(sequences, st.lists(st.booleans(), min_size=12, max_size=12), st.integers(0, 12))
def test_in_two_parts_or_in_one_the_same_turns_are_new(
    said: list[tuple[Role, str]], named: list[bool], cut: int
) -> None:
    turns = [
        turn(number, role, content, str(number) if with_its_id else None)
        for number, ((role, content), with_its_id) in enumerate(zip(said, named, strict=False), 1)
    ]
    recorded = keys_of(turns[:cut])
    arriving = [with_id(content, str(number), role) for number, (role, content) in enumerate(said, 1)]
    whole, _ = sort_out(known(recorded), arriving)
    assert whole == list(range(len(recorded), len(said)))
    first, names = sort_out(known(recorded), arriving[:5])
    ids = dict(names)
    later = [replace(key, turn_id=key.turn_id or ids.get(key.number)) for key in recorded]
    later += keys_of([turn(99, said[at][0], said[at][1], str(at + 1)) for at in first], counts_of(recorded))
    second, _ = sort_out(known(later), arriving[5:])
    assert [*first, *(at + 5 for at in second)] == whole
