"""Claude Code's transcripts, as an import of files and folders sees them."""

from __future__ import annotations

import os
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.clients.importers import reading
from mcp_server.clients.importers.imported import result_text, tool_call
from mcp_server.clients.importers.reading import Cursor, batches, cursor_from, project_place
from mcp_server.clients.importers.run import import_path
from mcp_server.clients.importers.threads import ReadingState, Threads, clean
from mcp_server.conversations.sessions import list_sessions, session_turns, show_session
from mcp_server.memory import Memory
from mcp_server.model import ToolCall
from tests.clients.importers.claude_code_files import SESSION, Transcript, call, everything, many
from tests.conftest import Clock
from tests.gitting import git

pytestmark = pytest.mark.anyio
OTHER = "0b5c1a3e-7d41-4c57-9a53-1c1e7a1f0a02"


@pytest.fixture
def projects(tmp_path: Path) -> Path:
    return tmp_path / "claude" / "projects"


async def test_a_folder_of_projects_becomes_closed_sessions(memory: Memory, projects: Path) -> None:
    everything().write(projects)
    everything(OTHER).write(projects, "-srv-else")
    agent = Transcript(agent="a1")
    agent.user("Look.")
    agent.write(projects)
    seen: list[tuple[int, int, str]] = []
    report = await import_path(memory, projects, watch=lambda *step: seen.append(step))
    assert (report.format, report.sessions, report.new_sessions, report.new_turns) == ("claude-code", 3, 3, 25)
    assert {row.status for row in await list_sessions(memory)} == {"closed"}
    assert seen[-1][0] == seen[-1][1] > 0


async def test_what_was_left_out_is_counted_by_kind(memory: Memory, projects: Path) -> None:
    report = await import_path(memory, everything().write(projects))
    assert report.reasons["line of type brand-new-type"] == 1
    assert report.reasons["attachment: hook_additional_context"] == 1
    assert report.reasons["slash command"] == 1
    assert report.reasons["thinking"] == 1
    assert report.skipped_count == sum(report.reasons.values())
    assert "12 entries of 12 kinds contain no message" in report.markdown


async def test_unchanged_files_are_not_read_again(memory: Memory, projects: Path) -> None:
    path = everything().write(projects)
    first = await import_path(memory, projects)
    again = await import_path(memory, projects)
    assert (again.unchanged, again.new_turns, again.turns) == (1, 0, first.turns)
    anew = await import_path(memory, projects, anew=True)
    assert (anew.unchanged, anew.new_turns, anew.turns) == (0, 0, first.turns)
    made = everything()
    made.user("one more")
    made.write(projects)
    grown = await import_path(memory, path)
    assert (grown.new_turns, grown.new_sessions, grown.turns) == (1, 0, first.turns + 1)
    assert len((await show_session(memory, SESSION)).paths) == 2


async def test_an_answer_in_a_file_that_is_still_written_to_is_left_for_later(
    memory: Memory, projects: Path, clock: Clock
) -> None:
    made = Transcript()
    made.user("What is in it?")
    made.assistant("m1", call("t1", "Read", file_path="/a"), stop="tool_use")
    path = made.write(projects)
    written = (clock.now - timedelta(minutes=1)).timestamp()
    os.utime(path, (written, written))
    assert (await import_path(memory, path)).new_turns == 1
    clock.forward(minutes=30)
    assert (await import_path(memory, path)).new_turns == 1


async def test_lines_that_a_fork_copied_are_not_recorded_twice(memory: Memory, projects: Path) -> None:
    made = everything()
    path = made.write(projects)
    copy = Transcript(OTHER)
    copy.lines = [{**line, "sessionId": OTHER} for line in made.lines]
    copy.parent = made.parent
    copy.user("in the fork")
    later = copy.write(projects)
    os.utime(path, (1_000, 1_000))
    os.utime(later, (2_000, 2_000))
    report = await import_path(memory, projects)
    assert report.copied == 12
    assert "recorded in the session that they were copied from" in report.markdown
    assert [turn.content for turn in await session_turns(memory, OTHER)] == ["in the fork"]
    assert len(await session_turns(memory, SESSION)) == 12


async def test_subagents_between_the_lines_of_older_versions(memory: Memory, projects: Path) -> None:
    made = Transcript()
    made.user("Two tasks.")
    made.assistant("m1", call("t1", "Task", prompt="A"), call("t2", "Task", prompt="B"), stop="tool_use")
    main = made.parent
    made.parent = None
    first = made.user("Task A.", isSidechain=True)
    made.parent = None
    second = made.user("Task B.", isSidechain=True)
    made.parent = first
    made.says("a1", "A is done.", isSidechain=True)
    made.parent = second
    made.says("b1", "B is done.", isSidechain=True)
    made.parent = main
    made.result("t1", "A is done.")
    made.result("t2", "B is done.")
    made.says("m2", "Both done.")
    report = await import_path(memory, made.write(projects))
    assert report.sessions == 3
    contents = {
        row.session: [t.content for t in await session_turns(memory, row.session)]
        for row in await list_sessions(memory)
    }
    assert contents[SESSION] == ["Two tasks.", "", "Both done."]
    assert contents[f"{SESSION}-agent-{first[:12]}"] == ["Task A.", "A is done."]
    assert contents[f"{SESSION}-agent-{second[:12]}"] == ["Task B.", "B is done."]


async def test_a_worktree_belongs_to_its_repository_also_when_it_is_gone(
    memory: Memory, projects: Path, tmp_path: Path
) -> None:
    repository = tmp_path / "my atlas"
    repository.mkdir()
    git(repository, "init", "-q")
    git(repository, "commit", "-q", "--allow-empty", "-m", "first")
    git(repository, "remote", "add", "origin", "git@example.org:ana/atlas.git")
    git(repository, "worktree", "add", "-q", "tree")
    for session, cwd in ((SESSION, repository), (OTHER, repository / "tree"), (OTHER[:-1] + "9", repository / "gone")):
        made = Transcript(session, cwd=str(cwd))
        made.user(f"in {cwd.name}")
        made.write(projects)
    await import_path(memory, projects)
    assert {row.project for row in await list_sessions(memory)} == {"git:example.org/ana/atlas"}


def test_a_folder_that_is_nowhere_gives_its_name() -> None:
    assert project_place("/home/somebody-else/atlas")[1] == "atlas"
    assert project_place("C:\\Users\\ana\\atlas")[1] == "atlas"
    assert project_place("/tmp/gone-long-ago")[1] is None
    assert project_place(None)[1] is None


async def test_a_long_session_is_recorded_in_parts(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MOST_CHARACTERS", 100_000)
    (path,) = many(tmp_path / "projects", 0, 3)
    report = await import_path(memory, path)
    (row,) = await list_sessions(memory)
    shown = await show_session(memory, row.session)
    assert len(shown.paths) > 3
    assert [turn.number for turn in shown.turns] == list(range(1, report.new_turns + 1))
    assert all(memory.files.stat(part).size < 300_000 for part in shown.paths)


def test_a_line_that_is_too_long_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "LONGEST", 1_000)
    monkeypatch.setattr(reading, "_PIECE", 300)
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a": 1}\n{"a": "' + b"x" * 5_000 + b'"}\n{"a": 3}\n' + b"y" * 4_000)
    with path.open("rb") as file:
        found = list(reading.lines(file, 0))
    assert [line.fields for line in found] == [{"a": 1}, None, {"a": 3}, None]
    assert found[1].why.startswith("line over")
    assert found[3].why == reading.TORN
    assert [line.start for line in found[1:]] == [line.end for line in found[:-1]]


def test_the_turns_of_a_file_do_not_depend_on_where_a_batch_ends(tmp_path: Path) -> None:
    path = everything().write(tmp_path)
    for most in (1, 2, 3, 50):
        said = [
            one.turn for batch in batches(path, Cursor(), Counter(), final=True, most_turns=most) for one in batch.said
        ]
        assert len(said) == len({turn.turn_id for turn in said}) == 12


def test_a_cursor_survives_being_stored(tmp_path: Path) -> None:
    *_, last = batches(everything().write(tmp_path), Cursor(), Counter(), final=True)
    assert cursor_from(last.cursor.as_json()) == last.cursor


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("plain", "plain"),
        ("<system-reminder>\nours\n</system-reminder>\n\nmine", "mine"),
        ("mine\n<system-reminder>a</system-reminder>\n<system-reminder>b</system-reminder>", "mine"),
        ("what does <system-reminder> mean?", "what does <system-reminder> mean?"),
        ("<system-reminder>\nnever closed", "<system-reminder>\nnever closed"),
        ([{"type": "text", "text": "look"}, {"type": "image", "source": {}}], "look\n\n[image]"),
        ([{"type": "tool_result"}, 3, None], ""),
        ("<bash-input>ls</bash-input>", ""),
        ("<ide_opened_file>x</ide_opened_file>\nfix it", "fix it"),
        (None, ""),
    ],
)
def test_only_the_users_own_words_count(content: object, expected: str) -> None:
    assert clean(content)[0] == expected


def test_many_openings_take_no_time() -> None:
    openings = "<system-reminder>\n" * 100_000
    assert clean(openings)[0] == openings.strip()


def test_a_tool_call_is_one_short_line_without_half_a_secret() -> None:
    key = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    made = tool_call("Bash", {"command": "x" * 190 + f" {key}"}, "y" * 390 + f"\n{key}", None)
    assert len(made.summary) <= 200
    assert len(made.result) <= 400
    assert key[:8] not in made.summary + made.result
    assert tool_call("mcp__memory__compile_context", {"message": "hi"}, "old text", None).result == ""
    assert tool_call("mcp__memory__forget", {"text": "the vault " * 90}, "raw/x.md", None) == ToolCall(
        "mcp__memory__forget", "", ""
    )
    assert "teal" in tool_call("AskUserQuestion", {}, "word " * 300 + "teal", None).result
    assert tool_call("Odd", {"a": [1]}, "", None).summary == '{"a": [1]}'


@pytest.mark.parametrize(
    ("path", "cwd", "kept"),
    [
        ("/home/ana/app/src/a.py", "/home/ana/app", "src/a.py"),
        ("/etc/hosts", "/home/ana/app", "/etc/hosts"),
        (r"C:\Users\Ana B\app\src\a.py", r"C:\Users\Ana B\app", "src/a.py"),
        (r"c:\users\ana b\app\a.py", r"C:\Users\Ana B\app", "a.py"),
        (r"D:\other\a.py", r"C:\Users\Ana B\app", "D:/other/a.py"),
        (r"C:\x\a.py", None, "C:/x/a.py"),
        (r"odd\name.py", "/home", r"odd\name.py"),
    ],
)
def test_files_of_tools_are_named_from_their_project_with_slashes(path: str, cwd: str | None, kept: str) -> None:
    assert tool_call("Edit", {"file_path": path}, "", cwd).files == (kept,)
    assert result_text([{"type": "text", "text": "a"}, {"type": "image"}, 3], is_error=False) == "a\n[image]\n[block]"
    assert result_text(None, is_error=True) == ""


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
blocks = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["text", "tool_use", "tool_result", "thinking", "image"]) | anything,
        "text": anything,
        "id": st.sampled_from(["t1", "t2"]) | anything,
        "tool_use_id": st.sampled_from(["t1", "t2"]) | anything,
        "input": anything,
        "content": anything,
        "name": anything,
    },
)
odd_lines = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["user", "assistant", "system", "attachment"]) | anything,
        "subtype": st.just("compact_boundary") | anything,
        "uuid": st.sampled_from(["a", "b"]) | anything,
        "parentUuid": st.sampled_from(["a", "b"]) | anything,
        "isSidechain": st.booleans() | anything,
        "agentId": anything,
        "timestamp": st.just("2026-02-16T18:00:00Z") | anything,
        "cwd": anything,
        "isMeta": anything,
        "attachment": anything,
        "message": st.fixed_dictionaries(
            {},
            optional={
                "id": st.just("m1") | anything,
                "content": st.lists(blocks, max_size=3) | anything,
                "usage": anything,
            },
        )
        | anything,
    },
)


@given(st.lists(odd_lines, max_size=8))
def test_no_line_whatever_makes_it_fail(made: list[dict[str, object]]) -> None:
    threads = Threads(ReadingState())
    said = [one for place, fields in enumerate(made) for one in threads.read(fields, place)] + threads.finish()
    assert threads.waiting_since is None
    assert all(one.turn.turn_id for one in said)
