"""The receipt of a real memory names what a context leaves out, and why."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcp_server.context.compile import CompileRequest, compile_context
from mcp_server.context.compiler import Compiled
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.memory import Memory
from mcp_server.model import Caller

pytestmark = pytest.mark.anyio
SRC = "[src: raw/conversations/2026/02/16/1845-s-talk.md#1]"
NOTES = "knowledge/projects/lantern/notes.md"
OLD = f"- 2026-02-10: Scans older than 14 days can be dropped. {SRC}"
NEW = f"- 2026-02-11: The legal team wants scans kept 30 days instead of 14. {SRC}"


async def compiled(
    memory: Memory, message: str = "How many days are scans kept?", project: str = "lantern"
) -> Compiled:
    return await compile_context(memory, CompileRequest(message, project=project), Caller(explicit_sessions=True))


def out(of: Compiled) -> dict[str, str]:
    return {one.id: one.reason for one in of.receipt.considered if not one.included}


@pytest.fixture
async def projects(memory: Memory) -> Memory:
    """A memory that knows of two projects."""
    for session, project in (("first", "harbor"), ("other", "lantern")):
        turn = NewTurn("user", "We begin.", session, project=project)
        await observe(memory, turn, Caller(explicit_sessions=True))
    return memory


async def test_a_line_that_a_newer_one_takes_back_is_named(projects: Memory) -> None:
    projects.files.write_atomic(NOTES, f"# lantern\n\n## Facts\n{OLD}\n{NEW}\n")
    await projects.index.refresh()
    result = await compiled(projects)
    assert "older than 14 days" not in result.text
    assert "30 days instead" in result.text
    (found,) = [one for one in result.receipt.considered if one.id == f"{NOTES}:4-4"]
    assert (found.included, found.tokens, found.slot) == (False, 0, "knowledge")
    assert found.reason == "no longer so: a newer line of its file says otherwise"
    assert found.score is not None
    assert f"{NOTES}:4-4 — no longer so" in result.receipt.markdown


async def test_lines_of_another_project_in_a_journal_are_named_found_or_always_shown(projects: Memory) -> None:
    today, past = projects.local_date(projects.clock()), "2025-11-09"
    rows = [f"- Scans are kept for 30 days. {SRC}", f"- Scans are blue. {SRC}", "- by hand: rope for the scans"]
    for day in (today, past):
        text = "\n".join([f"## {day}", "", "### lantern", *rows])
        projects.files.write_atomic(f"knowledge/journal/{day}.md", f"{text}\n")
    await projects.index.refresh()
    result = await compiled(projects, project="harbor")
    assert "30 days" not in result.text
    reasons = out(result)
    assert reasons[f"knowledge/journal/{today}.md:4-5"] == "another project's: lantern", "withheld of what is shown"
    assert reasons[f"knowledge/journal/{past}.md:4-4"] == "another project's: lantern", "found"
    assert "× another project's: lantern" in result.receipt.markdown
    assert "another project's: lantern" not in out(await compiled(projects)).values()


async def test_what_of_the_users_file_is_not_always_shown_is_named(memory: Memory) -> None:
    about, days = f"## About\n- Nadia {SRC}", f"## What happened\n- 2026-02-16: It rained. {SRC}"
    path = "knowledge/people/user.md"
    memory.files.write_atomic(path, f"# The user\n\n{about}\n\n{days}\n")
    reason = "not always shown: comes in where a message is about it"
    result = await compiled(memory, "ok thanks", "")
    assert out(result)[f"{path}:6-7"] == reason
    assert f"{path}:1-5" in [one.id for one in result.receipt.considered if one.included]
    memory.files.write_atomic(path, f"# The user\n\n{days}\n")
    assert out(await compiled(memory, "ok thanks", ""))[f"{path}:1-4"] == reason


async def test_a_file_that_cannot_be_shown_is_named(memory: Memory, workspace: Path) -> None:
    (workspace / "knowledge/identity/USER.md").write_bytes(b"\x00\xff\xfe binary \x00")
    (workspace / "knowledge/identity/SOUL.md").write_text(
        "<<<<<<< a\nI am Ana.\n=======\nI am Bo.\n>>>>>>> b\n", "utf-8"
    )
    reasons = out(await compiled(memory, "ok thanks", ""))
    assert reasons["knowledge/identity/USER.md"] == "cannot be read: `status` says why"
    assert reasons["knowledge/identity/SOUL.md"] == "two versions that nobody has merged: `status` says where"


async def test_a_file_of_a_project_that_is_no_utf8_stops_no_context(projects: Memory, workspace: Path) -> None:
    projects.files.write_atomic(NOTES, "")
    (workspace / NOTES).write_bytes(f"# lantern\n\n## Facts\n{OLD}\n- caf".encode() + b"\xe9\n")
    await projects.index.refresh()
    assert "older than 14 days" in (await compiled(projects)).text
