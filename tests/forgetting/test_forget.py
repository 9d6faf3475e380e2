"""A fact is forgotten wherever it stands, and what was forgotten does not come back."""

from __future__ import annotations

import json
import logging
import re
import sqlite3
import sys
from itertools import groupby
from pathlib import Path

import pytest

from mcp_server.conversations import sessions
from mcp_server.conversations.imports import ImportedSession, ImportedTurn, import_markdown_file, record_session
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.errors import Conflict, Invalid, NotFound, Refused
from mcp_server.forgetting.forget import as_text, finish, forget, plan_forget, question, unfinished_sentences
from mcp_server.forgetting.target import ForgetTarget
from mcp_server.knowledge.remember import NewFact, remember
from mcp_server.memory import Memory
from mcp_server.model import ToolCall
from mcp_server.status.status import status
from mcp_server.topics import front_matter
from tests.conftest import Clock
from tests.forgetting.vault import AT, CALLER, CONVERSATION, FACT, PIECES, filled, found, said
from tests.gitting import git
from tests.holding import holding, in_git, named

pytestmark = pytest.mark.anyio


@pytest.mark.both_engines
@pytest.mark.usefixtures("full")
async def test_a_forgotten_fact_is_nowhere_but_in_git_and_the_receipt_says_so(
    memory: Memory, place: Path | str
) -> None:
    assert "zephyr" in (await found(memory, "vault code")).lower()
    receipt = await forget(memory, ForgetTarget(text=FACT))

    for piece in PIECES:
        assert holding(place, piece) == []
        assert [name for name in named(place, piece) if not name.startswith(".git")] == []
    if isinstance(place, Path):
        assert in_git(place, "zephyr")
        assert receipt.history.commits >= 2
        assert receipt.history.since == git(place, "rev-list", "--reverse", "HEAD").splitlines()[1]
    else:
        assert receipt.versions
    assert receipt.left == ()
    assert "zephyr" not in (await found(memory, "vault code garden")).lower()
    assert "garden" in (await found(memory, "garden"))
    assert unfinished_sentences(memory) == []
    assert not [path for path in memory.files.everything() if path.startswith(".local/forget/")]


@pytest.mark.usefixtures("full")
async def test_importing_the_source_again_does_not_bring_it_back(memory: Memory, place: Path | str) -> None:
    await forget(memory, ForgetTarget(text=FACT))
    again = await record_session(memory, CONVERSATION)
    assert (again.new_turns, again.repeated_turns) == (0, 3)
    other = await record_session(memory, said("He said: the VAULTS code,\nis «4711 zéphyr»…", "Yes.", session="new"))
    assert other.new_turns == 2
    assert other.path is not None
    assert "[forgotten]" in memory.files.read_text(other.path)
    note = await import_markdown_file(memory, "notes", "the-vault.md", f"# A\n\n- {FACT}\n- Kept\n".encode())
    assert "Kept" in memory.files.read_text(note.path)
    assert holding(place, "zephyr") == holding(place, "zéphyr") == []


async def test_turns_without_ids_are_recognised_after_they_were_forgotten(memory: Memory) -> None:
    source = said(*(turn.content for turn in CONVERSATION.turns), ids=False)
    await filled(memory, source)
    await forget(memory, ForgetTarget(text=FACT))
    assert (await record_session(memory, source)).new_turns == 0


@pytest.mark.usefixtures("full")
async def test_transcripts_keep_their_turns_numbers_and_lines(memory: Memory) -> None:
    (path,) = memory.transcripts.find("old")
    before = memory.files.read_text(path)
    await forget(memory, ForgetTarget(text=FACT))
    (path,) = memory.transcripts.find("old")
    after = memory.files.read_text(path)
    whole = memory.transcripts.read(path)
    assert after.count("\n") == before.count("\n")
    assert [placed.turn.number for placed in whole.turns] == [1, 2, 3]
    assert whole.turns[0].turn.content == "Remember this: [forgotten], please."
    assert whole.turns[1].turn.content == "I wrote down that [forgotten].\n\nAnything else?"
    assert whole.turns[2].turn.content == "No, thanks. Let us talk about the garden."
    assert whole.complete_bytes == len(after.encode())
    assert whole.head.title == whole.head.topic == "Remember this: [forgotten], please."
    assert "forgotten" in path
    assert memory.files.stat(path).sealed
    row = await memory.state.session("old")
    assert row is not None
    assert (row.path, row.status, row.turns) == (path, "closed", 3)


@pytest.mark.usefixtures("full")
async def test_an_open_conversation_goes_on_where_it_was(memory: Memory) -> None:
    await forget(memory, ForgetTarget(text=FACT))
    answer = await observe(memory, NewTurn("agent", "It is safe.", session="open"), CALLER)
    assert (answer.turn, answer.recorded) == (2, True)
    assert [turn.content for turn in await sessions.session_turns(memory, "open")][1] == "It is safe."
    ended = await sessions.end_session(memory, "open")
    assert (ended.committed is not None) == memory.disk.here


async def test_continued_transcripts_still_find_each_other(memory: Memory, place: Path | str) -> None:
    await observe(memory, NewTurn("user", f"{FACT}, you know", session="long"), CALLER)
    await sessions.end_session(memory, "long")
    await observe(memory, NewTurn("user", "Back again", session="long"), CALLER)
    await forget(memory, ForgetTarget(text=FACT))
    assert [turn.content for turn in await sessions.session_turns(memory, "long")] == [
        "[forgotten], you know",
        "Back again",
    ]
    assert holding(place, "zephyr") == []


@pytest.mark.usefixtures("full")
async def test_a_line_of_which_nothing_is_left_goes_and_others_keep_a_mark(memory: Memory) -> None:
    await forget(memory, ForgetTarget(text=FACT))
    core = memory.files.read_text("knowledge/memory/MEMORY.md")
    assert "[forgotten]" not in core
    assert "- 2026-02-16" not in core
    assert f"line_count: {core.count(chr(10))}" in core
    assert "Ana: knows that [forgotten]." in memory.files.read_text("knowledge/people/ana.md")
    assert "[forgotten], and the garden is large." in memory.files.read_text("knowledge/reference/notes.md")
    assert json.loads(memory.files.read_text(".local/logs/context/injection.jsonl").splitlines()[0])["n"] == 1
    assert await memory.state.get("notes", "other") == "kept"


@pytest.mark.folder_only
@pytest.mark.usefixtures("full")
async def test_the_request_is_kept_as_hashes_and_committed_with_a_trailer(memory: Memory, workspace: Path) -> None:
    receipt = await forget(memory, ForgetTarget(text=FACT))
    line = json.loads((workspace / "forgotten.jsonl").read_text())
    assert line["id"] == receipt.id
    assert set(line) == {"id", "at", "salt", "windows"}
    message = git(workspace, "log", "-1", "--format=%B")
    assert f"Forget: {receipt.id}" in message.splitlines()
    assert "zephyr" not in message.lower()
    assert "forgotten.jsonl" in git(workspace, "show", "--stat", "HEAD")


@pytest.mark.usefixtures("full")
async def test_a_dry_run_shows_every_copy_with_its_line_and_changes_nothing(memory: Memory, place: Path | str) -> None:
    before = {path: memory.files.read_bytes(path) for path in memory.files.everything() if path.endswith(".md")}
    receipt = await plan_forget(memory, ForgetTarget(text=FACT))
    assert not receipt.done
    assert {path: memory.files.read_bytes(path) for path in memory.files.everything() if path.endswith(".md")} == before
    assert not memory.files.exists("forgotten.jsonl")
    shown = {copy.path: copy for copy in receipt.copies}
    memory_lines = before["knowledge/memory/MEMORY.md"].decode().splitlines()
    (spot, *_) = [one for one in shown["knowledge/memory/MEMORY.md"].places if one.what == "removed"]
    assert spot.line is not None
    assert "Zephyr" in memory_lines[spot.line - 1]
    transcripts = [copy for path, copy in shown.items() if path.startswith("raw/")]
    assert len(transcripts) == 2
    assert all(copy.new_path and copy.places for copy in transcripts)
    for path in (".local/logs/context/injection.jsonl.1", ".local/queue/hooks.jsonl", ".local/brief/global.md"):
        assert path in shown
    assert receipt.state_rows > 0
    assert receipt.history.commits or not isinstance(place, Path)
    assert receipt.done is False


@pytest.mark.usefixtures("full")
async def test_conversations_and_pages_are_listed_before_copies_also_if_there_are_many(memory: Memory) -> None:
    for number in range(50):
        memory.files.write_atomic(f".local/cold-storage/x/{number}.md", f"{FACT}\n")
    shown = as_text(await plan_forget(memory, ForgetTarget(text=FACT)))
    listed = [row.split("`")[1] for row in shown.splitlines() if row.startswith("- `")]
    folders = [path.partition("/")[0] for path in listed]
    order = [folder for folder, _ in groupby(folders) if folder in ("raw", "knowledge", "topics", "archive", ".local")]
    assert order[:2] == ["raw", "knowledge"]
    assert order[-1] == ".local"
    assert len(order) == len(set(order)), "each folder's files are together"
    assert "more files" in shown


async def test_tool_calls_and_their_files_are_cleaned(memory: Memory, place: Path | str) -> None:
    call = ToolCall("bash", f"echo {FACT}", f"{FACT} → ok", ("notes/the vault's code is 47-11 zephyr.txt",))
    turn = ImportedTurn("agent", "Done", AT, "u1", tool_calls=(call,))
    await record_session(memory, ImportedSession("tools", (turn,), "import:test"))
    await forget(memory, ForgetTarget(text=FACT))
    assert holding(place, "zephyr") == []
    (kept,) = (await sessions.session_turns(memory, "tools"))[0].tool_calls
    assert kept.summary == "echo [forgotten]"
    assert kept.files == ("notes/forgotten.txt",)


@pytest.mark.parametrize("stage", ["files", "backup of the history"])  # tests/end_to_end/test_forget.py has the others
@pytest.mark.both_engines
@pytest.mark.usefixtures("full")
async def test_what_was_interrupted_is_carried_on(memory: Memory, place: Path | str, stage: str) -> None:
    if isinstance(place, str) and stage in ("git", "backup of the history"):
        stage = "versions"

    class Stop(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.getMessage() == f"forget: {stage}":
                raise KeyboardInterrupt

    steps = logging.getLogger("mcp_server.forgetting.forget")
    steps.setLevel(logging.INFO)
    steps.addHandler(stop := Stop())
    with pytest.raises(KeyboardInterrupt):
        await forget(memory, ForgetTarget(text=FACT), history=True)
    steps.removeHandler(stop)
    (said,) = unfinished_sentences(memory)
    assert said in (await status(memory)).problems
    (done,) = await finish(memory)
    assert done.id in said
    assert (done.done, done.rewritten) == (True, isinstance(place, Path))
    assert unfinished_sentences(memory) == []
    assert holding(place, "zephyr") == []
    assert in_git(place, "zephyr") == []
    assert (await record_session(memory, CONVERSATION)).new_turns == 0
    assert await finish(memory) == []


@pytest.mark.usefixtures("full")
async def test_two_at_once_do_not_mix(memory: Memory) -> None:
    held = memory.locks.try_exclusive("forget")
    assert held is not None
    with pytest.raises(Conflict, match="another `forget`"):
        await forget(memory, ForgetTarget(text=FACT))
    held.release()


async def test_the_name_of_a_conversation_stays_and_is_told(memory: Memory) -> None:
    await observe(memory, NewTurn("user", "Hello there", session="about-zephyr-hill"), CALLER)
    receipt = await forget(memory, ForgetTarget(text="zephyr hill"))
    assert any("about-zephyr-hill" in left for left in receipt.left)
    assert (await observe(memory, NewTurn("agent", "Hi", session="about-zephyr-hill"), CALLER)).turn == 2


async def test_a_hand_written_and_a_broken_transcript_are_cleaned_too(memory: Memory, place: Path | str) -> None:
    head = "---\nsession_id: hand\nstarted: 2026-02-01T10:00:00Z\n---\n\n# By hand\n\nThe vaults code is 4711 zephyr.\n"
    turns = f"\n## 10:00 — user\n\n{FACT}.\nMore.\n\n\n## 10:01 — agent\nFine.\n"
    memory.files.write_atomic("raw/conversations/2026/02/01/1000-hand-by-hand.md", head + turns)
    memory.files.write_atomic("raw/conversations/2026/02/01/1001-broken-x.md", f"No head.\n{FACT}\n")
    await forget(memory, ForgetTarget(text=FACT))
    assert holding(place, "zephyr") == []
    whole = memory.transcripts.read("raw/conversations/2026/02/01/1000-hand-by-hand.md")
    assert [placed.turn.content.split("\n")[0] for placed in whole.turns] == ["[forgotten].", "Fine."]


async def test_front_matter_stays_front_matter(memory: Memory) -> None:
    path = "knowledge/people/ana.md"
    memory.files.write_atomic(
        path,
        f'---\ntype: person\nname: Ana\nupdated: 2026-02-01\ntags: ["{FACT}", garden]\nnote: >\n  {FACT}\n'
        f"# a comment: {FACT}\n---\n\n# Ana\n\n```\n{FACT}\n```\n\n| a | {FACT} |\n\n- {FACT}\n  and more\n",
    )
    await forget(memory, ForgetTarget(text=FACT))
    checked = front_matter.check(memory.files.read_text(path), path)
    assert checked.fields["tags"] == ["[forgotten]", "garden"]
    assert checked.fields["name"] == "Ana"
    assert "```\n[forgotten]\n```" in checked.body
    assert "| a | [forgotten] |" in checked.body
    assert "- [forgotten]\n  and more\n" in checked.body


@pytest.mark.folder_only
async def test_pages_of_the_state_that_rows_left_behind_are_gone(memory: Memory, workspace: Path) -> None:
    for number in range(50):
        await memory.state.put("bulk", str(number), f"{FACT} {number}")
        await memory.state.remove("bulk", str(number))
    with sqlite3.connect(workspace / ".local/state.db") as reader:
        assert reader.execute("SELECT count(*) FROM entries").fetchone()
    reader.close()
    await forget(memory, ForgetTarget(text=FACT))
    assert holding(workspace, "zephyr") == []


@pytest.mark.usefixtures("full")
async def test_a_turn_is_forgotten_with_what_was_derived_from_it(memory: Memory) -> None:
    (path,) = memory.transcripts.find("old")
    memory.files.write_atomic(
        "knowledge/memory/lessons.md",
        f"# Lessons\n\n- 2026-02-10: It is in the drawer. [src: {path}#2]\n- Another one. [src: {path}#3]\n"
        f"- In the drawer, it is. [src: 2](/{path})\n- One more. [src: 3](/{path})\n",
    )
    memory.files.write_atomic(
        "knowledge/people/bo.md", f"# Bo\n\n## Plans\n\n- In the drawer. [src: 2](/{path})\n\n## About\n\n- Tall.\n"
    )
    receipt = await forget(memory, ForgetTarget(turn="old#2"))
    assert memory.files.read_text("knowledge/people/bo.md") == "# Bo\n\n## About\n\n- Tall.\n"
    turns = await sessions.session_turns(memory, "old")
    assert turns[1].content == "[forgotten]\n\n[forgotten]"
    assert "ZEPHYR" in turns[0].content
    kept = [f"- Another one. [src: {path}#3]", f"- One more. [src: 3](/{path})"]
    assert memory.files.read_text("knowledge/memory/lessons.md").splitlines()[2:] == kept
    assert (await record_session(memory, CONVERSATION)).new_turns == 0
    assert (receipt.history.commits > 0) == memory.disk.here


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


@pytest.mark.both_engines
@pytest.mark.usefixtures("full")
async def test_a_whole_conversation_is_forgotten_and_stays_so(memory: Memory, place: Path | str) -> None:
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
        assert in_git(place, words) == holding(place, words) == named(place, words) == []
    assert "talk about" not in (await found(memory, "talk about the garden"))


async def test_the_question_names_a_turn_of_a_session_whose_id_contains_a_number_sign(
    memory: Memory,
) -> None:
    await observe(memory, NewTurn("user", "The boat lies in Senj", session="boats#2"), CALLER)
    asked = await question(memory, ForgetTarget(turn="boats#2#1"))
    assert "message 1 of 'The boat lies in Senj': 'The boat lies in Senj'" in asked


async def test_what_is_said_later_in_a_forgotten_conversation_is_recorded(memory: Memory, clock: Clock) -> None:
    await observe(memory, NewTurn("user", "First", session="s"), CALLER)
    await forget(memory, ForgetTarget(session="s"))
    clock.forward(minutes=1)
    later = said("A later thing", session="s")
    moved = tuple(ImportedTurn(turn.role, turn.content, clock.now, turn.turn_id) for turn in later.turns)
    await record_session(memory, ImportedSession("s", moved, "import:test"))
    assert [turn.content for turn in await sessions.session_turns(memory, "s")] == ["[forgotten]", "A later thing"]


async def test_a_file_and_its_import_are_forgotten(memory: Memory) -> None:
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
        (ForgetTarget(path="raw/conversations/x.md"), Refused, "the whole session"),
        (ForgetTarget(path=".local/state.db"), Refused, "only files under"),
        (ForgetTarget(path="../x"), Refused, "leaves the workspace"),
        (ForgetTarget(path="knowledge/memory/MEMORY.md", lines=(900, 901)), Invalid, "there are no lines 900 to 901"),
    ],
)
async def test_what_cannot_be_forgotten_so_is_refused(
    memory: Memory, target: ForgetTarget, error: type[Exception], words: str
) -> None:
    await record_session(memory, CONVERSATION)
    with pytest.raises(error, match=re.escape(words)):
        await plan_forget(memory, target)


async def test_a_run_inside_longer_words_is_left(memory: Memory) -> None:
    memory.files.write_atomic("knowledge/people/ana.md", "Likes bananas.\n")
    assert (await plan_forget(memory, ForgetTarget(text="banana"))).nothing


async def test_a_binary_file_is_named_and_can_be_deleted_by_its_path(memory: Memory, place: Path | str) -> None:
    memory.files.write_bytes_atomic("attachments/a.bin", b"\0\1 the vaults code is 47-11 zephyr \0")
    receipt = await forget(memory, ForgetTarget(text=FACT))
    assert any("attachments/a.bin" in left and "binary" in left for left in receipt.left)
    await forget(memory, ForgetTarget(path="attachments/a.bin"))
    assert holding(place, "zephyr") == []


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
@pytest.mark.folder_only
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
