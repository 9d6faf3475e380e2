"""What can be forgotten: a turn, a conversation, a file, some lines of it; and what cannot."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from mcp_server.conversations import sessions
from mcp_server.conversations.imports import ImportedSession, ImportedTurn, import_markdown_file, record_session
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.errors import Invalid, NotFound, Refused
from mcp_server.forgetting.forget import forget, plan_forget
from mcp_server.forgetting.target import ForgetTarget
from mcp_server.knowledge.remember import NewFact, remember
from mcp_server.memory import Memory
from tests.conftest import Clock
from tests.forgetting.vault import CALLER, CONVERSATION, FACT, filled, found, said
from tests.holding import holding, in_git, named

pytestmark = pytest.mark.anyio


async def test_a_turn_is_forgotten_with_what_was_derived_from_it(memory: Memory, workspace: Path) -> None:
    await filled(memory)
    (path,) = memory.transcripts.find("old")
    memory.files.write_atomic(
        "knowledge/memory/lessons.md",
        f"# Lessons\n\n- 2026-02-10: It is in the drawer. [src: {path}#2]\n- Another one. [src: {path}#3]\n",
    )
    receipt = await forget(memory, ForgetTarget(turn="old#2"))
    turns = await sessions.session_turns(memory, "old")
    assert turns[1].content == "[forgotten]\n\n[forgotten]"
    assert "ZEPHYR" in turns[0].content
    assert memory.files.read_text("knowledge/memory/lessons.md").splitlines()[2:] == [f"- Another one. [src: {path}#3]"]
    assert (await record_session(memory, CONVERSATION)).new_turns == 0
    assert receipt.history.commits > 0


async def test_a_short_turn_is_forgotten_only_where_it_was_said(memory: Memory) -> None:
    await record_session(memory, said("Hello there", "Yes", "Yes", "Fine", ids=False))
    await record_session(memory, said("Well", "Yes", session="other"))
    await forget(memory, ForgetTarget(turn="old#2"))
    assert [turn.content for turn in await sessions.session_turns(memory, "other")] == ["Well", "Yes"]
    assert [turn.content for turn in await sessions.session_turns(memory, "old")] == [
        "Hello there",
        "[forgotten]",
        "Yes",
        "Fine",
    ]
    assert (await record_session(memory, said("Hello there", "Yes", "Yes", "Fine", ids=False))).new_turns == 0


async def test_a_whole_conversation_is_forgotten_and_stays_so(memory: Memory, workspace: Path) -> None:
    await filled(memory)
    await forget(memory, ForgetTarget(session="open"))
    (path,) = memory.transcripts.find("open")
    assert "safe" not in memory.files.read_text(path)
    assert "way" not in path
    assert [turn.content for turn in await sessions.session_turns(memory, "open")] == ["[forgotten]"]
    assert "Zephyr" not in memory.files.read_text("knowledge/memory/MEMORY.md")  # what it remembered

    await forget(memory, ForgetTarget(session="old"), history=True)
    again = await record_session(memory, CONVERSATION)
    assert again.new_turns == 0
    for words in ("let us talk", "by the way", "by-the-way", "remember-this", "remember this"):
        assert in_git(workspace, words) == holding(workspace, words) == named(workspace, words) == []
    assert "talk about" not in (await found(memory, "talk about the garden"))


async def test_what_is_said_later_in_a_forgotten_conversation_is_recorded(memory: Memory, clock: Clock) -> None:
    await observe(memory, NewTurn("user", "First", session="s"), CALLER)
    await forget(memory, ForgetTarget(session="s"))
    clock.forward(minutes=1)
    later = said("A later thing", session="s")
    moved = tuple(ImportedTurn(turn.role, turn.content, clock.now, turn.turn_id) for turn in later.turns)
    await record_session(memory, ImportedSession("s", moved, "import:test"))
    assert [turn.content for turn in await sessions.session_turns(memory, "s")] == ["[forgotten]", "A later thing"]


async def test_a_file_and_its_import_are_forgotten(memory: Memory, workspace: Path) -> None:
    data = b"# Cats\n\nThe cats are grey.\n"
    await import_markdown_file(memory, "notes", "cats.md", data)
    await forget(memory, ForgetTarget(path="knowledge/reference/notes/cats.md"))
    assert not memory.files.exists("knowledge/reference/notes/cats.md")
    again = await import_markdown_file(memory, "notes", "cats.md", data)
    assert (again.status, again.why) == ("skipped", "it was forgotten on request")


async def test_lines_of_a_file_are_forgotten_wherever_they_stand(memory: Memory) -> None:
    memory.files.write_atomic("knowledge/people/ana.md", "# Ana\n\n- Likes tea\n- Fears spiders\n")
    memory.files.write_atomic("topics/tea.md", "Ana? likes TEA. And milk.\n")
    await forget(memory, ForgetTarget(path="knowledge/people/ana.md", lines=(3, 3)))
    assert memory.files.read_text("knowledge/people/ana.md") == "# Ana\n\n- Fears spiders\n"
    assert memory.files.read_text("topics/tea.md") == "Ana? [forgotten]. And milk.\n"


@pytest.mark.parametrize(
    ("target", "error", "words"),
    [
        (ForgetTarget(text="it"), Invalid, "fewer than 3"),
        (ForgetTarget(text="…!?"), Invalid, "fewer than 3"),
        (ForgetTarget(), Invalid, "say one thing"),
        (ForgetTarget(text="abc", session="x"), Invalid, "say one thing"),
        (ForgetTarget(turn="old"), Invalid, "SESSION#NUMBER"),
        (ForgetTarget(turn="old#9"), NotFound, "turns 1 to 3"),
        (ForgetTarget(session="nobody"), NotFound, "no session"),
        (ForgetTarget(path="knowledge/none.md"), NotFound, "no file"),
        (ForgetTarget(path="raw/conversations/x.md"), Refused, "--session"),
        (ForgetTarget(path=".local/state.db"), Refused, "only files under"),
        (ForgetTarget(path="../x"), Refused, "leaves the workspace"),
        (ForgetTarget(path="knowledge/memory/MEMORY.md", lines=(900, 901)), Invalid, "has lines 1 to"),
    ],
)
async def test_what_cannot_be_forgotten_so_is_refused(
    memory: Memory, target: ForgetTarget, error: type[Exception], words: str
) -> None:
    await record_session(memory, CONVERSATION)
    with pytest.raises(error, match=re.escape(words)):
        await plan_forget(memory, target)


async def test_a_run_inside_longer_words_is_named_and_left(memory: Memory) -> None:
    memory.files.write_atomic("knowledge/people/ana.md", "Likes bananas.\n")
    receipt = await plan_forget(memory, ForgetTarget(text="banana"))
    assert receipt.nothing
    assert receipt.similar == ("knowledge/people/ana.md:1",)


async def test_a_binary_file_is_named_and_can_be_deleted_by_its_path(memory: Memory, workspace: Path) -> None:
    memory.files.write_bytes_atomic("attachments/a.bin", b"\0\1 the vaults code is 47-11 zephyr \0")
    receipt = await forget(memory, ForgetTarget(text=FACT))
    assert any("attachments/a.bin" in left and "binary" in left for left in receipt.left)
    await forget(memory, ForgetTarget(path="attachments/a.bin"))
    assert holding(workspace, "zephyr") == []


async def test_what_a_turn_had_remembered_goes_with_it_however_long(memory: Memory) -> None:
    long = "The boat lies in the third berth behind the old customs house " * 3 + "until spring"
    await observe(memory, NewTurn("user", "Where is the boat?", session="s"), CALLER)
    await remember(memory, NewFact(long, session="s"), CALLER)
    await remember(memory, NewFact("Ana likes tea", session="s"), CALLER)
    await remember(memory, NewFact("Nobody else likes tea"), CALLER)
    await forget(memory, ForgetTarget(turn="s#1"))
    text = memory.files.read_text("knowledge/memory/MEMORY.md")
    assert "boat" not in text
    assert "Ana likes tea" not in text
    assert "Nobody else likes tea" in text
    with pytest.raises(NotFound, match="forgotten already"):
        await plan_forget(memory, ForgetTarget(turn="s#1"))


async def test_a_whole_file_goes_with_copies_of_its_sentences(memory: Memory) -> None:
    sentence = "The boat lies in the third berth behind the customs house."
    memory.files.write_atomic("knowledge/people/boat.md", f"---\ntype: person\n---\n\n# Boat\n\n- Yes\n- {sentence}\n")
    memory.files.write_atomic("topics/sea.md", f"Yes.\n\n{sentence} It is red.\n")
    await forget(memory, ForgetTarget(path="knowledge/people/boat.md"))
    assert not memory.files.exists("knowledge/people/boat.md")
    assert memory.files.read_text("topics/sea.md") == "Yes.\n\n[forgotten]. It is red.\n"
    with pytest.raises(Invalid, match="too short"):
        await plan_forget(memory, ForgetTarget(path="topics/sea.md", lines=(2, 2)))


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such names")
async def test_a_copy_in_a_file_that_cannot_be_named_is_told(memory: Memory, workspace: Path) -> None:
    for name in ("a:b.md", "new\nline.md"):
        (workspace / "knowledge/people" / name).write_text(f"# Odd\n\n- {FACT}\n")
    planned = await plan_forget(memory, ForgetTarget(text=FACT))
    assert {copy.path: bool(copy.stuck) for copy in planned.copies} == {
        "knowledge/people/a:b.md": True,
        "knowledge/people/new\nline.md": True,
    }
    done = await forget(memory, ForgetTarget(text=FACT))
    assert len([line for line in done.left if "rename" in line]) == 2
