"""What was said elsewhere becomes sealed transcripts, once."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from mcp_server.actions.imports import (
    ImportedSession,
    ImportedTurn,
    commit_import,
    import_markdown_file,
    record_session,
)
from mcp_server.actions.observe import NewTurn, observe
from mcp_server.actions.sessions import show_session
from mcp_server.core.model import Caller
from mcp_server.errors import Invalid
from mcp_server.memory import Memory

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


async def test_one_import_is_one_commit(memory: Memory) -> None:
    paths = []
    for number in (1, 2):
        done = await record_session(memory, replace(conversation("hello"), session_id=f"talk-{number}"))
        paths.append(done.path or "")
    commit = await commit_import(memory, "talks", [])
    assert len(commit) >= 40
    assert all(memory.git.show(path, commit) for path in paths)
    assert await commit_import(memory, "talks", []) == "nothing to commit"


async def test_markdown_keeps_its_relative_path_and_the_same_bytes_change_nothing(memory: Memory) -> None:
    done = await import_markdown_file(memory, "My Notes", "a/b.md", b"# B\n")
    assert (done.path, done.status) == ("knowledge/reference/my-notes/a/b.md", "new")
    assert (await import_markdown_file(memory, "My Notes", "a/b.md", b"# B\n")).status == "same"
    assert (await import_markdown_file(memory, "My Notes", "a/b.md", b"# B2\n")).status == "changed"


@pytest.mark.parametrize(
    ("relative", "data", "why"),
    [("x.md", b"\xff\xfe", "not UTF-8"), ("x.md", b"a\0b", "NUL"), ("../x.md", b"# X", "leaves the workspace")],
)
async def test_what_cannot_be_read_is_skipped_and_says_why(
    memory: Memory, relative: str, data: bytes, why: str
) -> None:
    done = await import_markdown_file(memory, "notes", relative, data)
    assert done.status == "skipped"
    assert why in done.why


async def test_an_import_needs_a_name(memory: Memory) -> None:
    with pytest.raises(Invalid, match="another name"):
        await import_markdown_file(memory, "☂", "x.md", b"# X")
