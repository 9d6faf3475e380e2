"""What should last is written where a person would look for it, and nothing of it is ever lost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.conversations.sessions import end_session, show_session
from mcp_server.errors import Conflict, ContextManagerError, Invalid, NotFound, Refused
from mcp_server.knowledge.remember import NewFact, remember
from mcp_server.memory import Memory
from mcp_server.model import Caller
from mcp_server.text.destinations import ARCHIVE, MEMORY
from mcp_server.text.entries import is_derived
from tests.conftest import Clock
from tests.editors import saves_first

pytestmark = pytest.mark.anyio
CALLER = Caller()


async def test_a_fact_is_dated_and_the_diff_shows_it(memory: Memory) -> None:
    await remember(memory, NewFact("The cat is called Miro"), CALLER)
    done = await remember(memory, NewFact("Ana's birthday is on 3 May"), CALLER)
    assert done.path == MEMORY
    assert "+- 2026-02-16: Ana's birthday is on 3 May" in done.markdown
    changed = [line for line in done.diff.splitlines()[2:] if line[0] in "+-"]
    assert changed == ["+- 2026-02-16: Ana's birthday is on 3 May"], "no bookkeeping"
    text = memory.files.read_text(MEMORY)
    assert "## Facts" in text
    assert f"line_count: {len(text.splitlines())}" in text


async def test_what_says_the_same_becomes_one_entry_and_no_words_are_lost(memory: Memory, clock: Clock) -> None:
    for fact in ("Ana drinks tea", "Ana drinks coffee"):
        await remember(memory, NewFact(fact), CALLER)
    assert "Ana drinks coffee\n  earlier: 2026-02-16: Ana drinks tea\n" in memory.files.read_text(MEMORY)
    for fact in ("Store the ledger rows nightly", "The cat is called Miro"):
        await remember(memory, NewFact(fact), CALLER)
    clock.forward(days=1)
    merged = await remember(memory, NewFact("Store the ledger rows hourly"), CALLER)
    assert merged.action == "merged"
    text = memory.files.read_text(MEMORY)
    nightly = "\n  earlier: 2026-02-16: Store the ledger rows nightly\n- 2026-02-16: The cat is called Miro\n"
    assert f"- 2026-02-17: Store the ledger rows hourly{nightly}" in text
    again = await remember(memory, NewFact("store the ledger rows hourly."), CALLER)
    assert again.action == "kept"
    assert "known already" in again.markdown
    assert memory.files.read_text(MEMORY) == text
    longer = await remember(memory, NewFact("Store the ledger rows hourly, at the full hour"), CALLER)
    assert longer.action == "merged"
    assert f"rows hourly, at the full hour{nightly}" in memory.files.read_text(MEMORY)
    assert (await remember(memory, NewFact("the ledger rows hourly"), CALLER)).action == "kept"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Use Postgres for the ledger", "Do not use Postgres for the ledger"),
        ("Retry the upload 3 times", "Retry the upload 5 times"),
        ("The cat is called Miro", "The winter berth is paid"),
        ("Ana likes green tea", "Boris likes green tea"),
        ("We use Postgres for the queue", "We use Redis for the queue"),
    ],
)
async def test_what_only_looks_alike_stands_twice(memory: Memory, first: str, second: str) -> None:
    for fact in (first, second):
        assert (await remember(memory, NewFact(fact), CALLER)).action in ("created", "appended")


async def test_who_remembers_hears_of_what_is_nearly_the_same_and_stays(memory: Memory) -> None:
    await remember(memory, NewFact("We use Postgres for the queue"), CALLER)
    (note,) = (await remember(memory, NewFact("We use Redis for the queue"), CALLER)).notes
    assert "- 2026-02-16: We use Postgres for the queue" in note
    assert "in supersedes" in note
    assert (await remember(memory, NewFact("The winter berth is paid"), CALLER)).notes == ()


async def test_a_journal_tells_twice_what_happened_twice(memory: Memory) -> None:
    for fact in ("Fed the cat in the morning", "Fed the cat in the evening"):
        await remember(memory, NewFact(fact, "journal"), CALLER)
    assert memory.files.read_text("knowledge/journal/2026-02-16.md").count("Fed the cat") == 2


async def test_a_decision_of_a_project_is_in_its_context(memory: Memory) -> None:
    done = await remember(memory, NewFact("Use SQLite", "decision", project="atlas"), CALLER)
    assert done.path == "knowledge/projects/atlas/context.md"
    assert done.action == "created"
    done = await remember(memory, NewFact("Ship on Friday", "decision", project="global"), CALLER)
    assert done.path == "knowledge/reference/general.md"


async def test_the_session_tells_the_project_and_its_transcript_tells_the_change(memory: Memory) -> None:
    await observe(memory, NewTurn("user", "hi", "s", project="atlas"), CALLER)
    done = await remember(memory, NewFact("The API is frozen", "project", session="s"), CALLER)
    assert done.path == "knowledge/projects/atlas/notes.md"
    await end_session(memory, "s")
    (path,) = (await show_session(memory, "s")).paths
    text = memory.files.read_text(path)
    assert "## 18:45 — agent [memory]" in text
    assert "> [knowledge:created] knowledge/projects/atlas/notes.md — The API is frozen" in text
    (change,) = memory.transcripts.read(path).head.knowledge_changes
    assert change.path == done.path


async def test_a_journal_groups_by_topic_and_names_its_sessions(memory: Memory) -> None:
    await observe(memory, NewTurn("user", "hi", "s", project="atlas"), CALLER)
    for content in ("Finished the index", "Began the compiler"):
        done = await remember(memory, NewFact(content, "journal", session="s"), CALLER)
    text = memory.files.read_text(done.path)
    assert done.path == "knowledge/journal/2026-02-16.md"
    assert "## [[atlas/context|atlas]]\n\n- Finished the index\n- Began the compiler\n" in text
    assert 'sessions: ["s"]' in text


async def test_a_secret_is_refused_by_its_kind(memory: Memory) -> None:
    with pytest.raises(Refused, match="holds a secret"):
        await remember(memory, NewFact("the key is ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"), CALLER)
    with pytest.raises(Refused, match="secret"):
        await remember(memory, NewFact("x", path=f"knowledge/reference/ghp_{'a1B2c3D4' * 4}.md"), CALLER)


@pytest.mark.parametrize(
    "path",
    [
        *("raw/conversations/x.md", "memory-config.yaml", "knowledge/x.txt", "../outside.md", "/etc/x.md"),
        *("knowledge/../raw/x.md", ".local/x.md", ".git/x.md"),
    ],
)
async def test_no_tool_writes_where_only_people_or_the_capture_do(memory: Memory, path: str) -> None:
    with pytest.raises(Refused):
        await remember(memory, NewFact("x", path=path), CALLER)


async def test_a_project_that_is_new_is_named(memory: Memory) -> None:
    assert (await remember(memory, NewFact("It opens in May.", project="tempest"), CALLER)).notes == (
        "new project 'tempest'",
    )
    assert (await remember(memory, NewFact("It closes in June.", project="tempest"), CALLER)).notes == ()
    mistyped = await remember(memory, NewFact("Tickets cost 12 euros.", project="tempset"), CALLER)
    assert mistyped.notes == ("new project 'tempset'; did you mean 'tempest'?",)


async def test_create_replace_and_edit(memory: Memory) -> None:
    path = "knowledge/reference/tea.md"
    fact = NewFact("# Tea\n\n## Green\n80 °C\n\n## Black\n100 °C", path=path, action="create")
    assert (await remember(memory, fact, CALLER)).action == "created"
    with pytest.raises(Conflict, match="exists already"):
        await remember(memory, fact, CALLER)
    await remember(memory, NewFact("70 °C", path=path, section="Green", action="replace"), CALLER)
    await remember(memory, NewFact("95 °C", path=path, action="edit", old_text="100 °C"), CALLER)
    assert memory.files.read_text(path) == "# Tea\n\n## Green\n\n70 °C\n\n## Black\n95 °C\n"
    with pytest.raises(NotFound, match="does not occur"):
        await remember(memory, NewFact("x", path=path, action="edit", old_text="100 °C"), CALLER)
    with pytest.raises(NotFound, match="occurs 2 times"):
        await remember(memory, NewFact("x", path=path, action="edit", old_text="°C"), CALLER)
    with pytest.raises(NotFound, match="there are: Tea, Green, Black"):
        await remember(memory, NewFact("x", path=path, section="Red", action="replace"), CALLER)


@pytest.mark.parametrize(
    ("fact", "error"),
    [
        (NewFact("x", "rumour"), Invalid),
        (NewFact("x", action="shout"), Invalid),
        (NewFact("  "), Invalid),
        (NewFact("x" * 30_000), Invalid),
        (NewFact("x", action="edit"), Invalid),
        (NewFact("x", kind="decision", action="replace"), Invalid),
        (NewFact("x", path="knowledge/none.md", action="replace"), NotFound),
    ],
)
async def test_a_wrong_request_says_why(memory: Memory, fact: NewFact, error: type[ContextManagerError]) -> None:
    with pytest.raises(error):
        await remember(memory, fact, CALLER)


def multiply(memory: Memory, entry: str, count: int) -> None:
    """Beside the entry that ends with `entry`, say "number 0", writes the same with the numbers up to `count`, in one
    write: two hundred calls of `remember` would say no more."""
    text = memory.files.read_text(MEMORY)
    (line,) = [line for line in text.splitlines(keepends=True) if line.endswith(f"{entry}\n")]
    more = [line.replace("number 0", f"number {number}") for number in range(1, count)]
    memory.files.write_atomic(MEMORY, text.replace(line, "".join([line, *more])), text)


async def full(memory: Memory, count: int = 170) -> None:
    await remember(memory, NewFact("fact number 0"), CALLER)
    multiply(memory, "fact number 0", count)


async def test_over_two_hundred_lines_the_oldest_entries_move_to_the_archive(memory: Memory, clock: Clock) -> None:
    await full(memory)
    for number in range(170, 250):
        clock.forward(hours=1)
        await remember(memory, NewFact(f"fact number {number}"), CALLER)
    text, archive = memory.files.read_text(MEMORY), memory.files.read_text(ARCHIVE)
    assert len(text.splitlines()) <= 200
    assert "fact number 0\n" not in text
    for number in range(250):
        assert (f": fact number {number}\n" in text) != (f": fact number {number}\n" in archive), number


async def test_a_repeated_call_is_not_written_again_though_its_entry_was_archived_meanwhile(
    memory: Memory, clock: Clock
) -> None:
    await full(memory)
    for number in range(170, 210):
        await remember(memory, NewFact(f"fact number {number}"), CALLER)
    again = await remember(memory, NewFact("fact number 0"), CALLER)
    assert (again.path, again.action, again.diff) == (ARCHIVE, "kept", "")
    clock.forward(days=1)
    assert (await remember(memory, NewFact("fact number 0"), CALLER)).path == MEMORY


async def test_a_line_count_near_the_cap_is_said(memory: Memory) -> None:
    await full(memory, 150)
    notes: list[str] = []
    for number in range(150, 170):
        notes += (await remember(memory, NewFact(f"fact number {number}"), CALLER)).notes
    assert any("of 200 lines" in note for note in notes)


async def test_hand_written_text_that_alone_is_over_the_cap_is_left_and_named(memory: Memory) -> None:
    memory.files.write_atomic(MEMORY, "# Core Memory\n" + "a line of prose\n" * 230)
    with pytest.raises(Refused, match="at most 220"):
        await remember(memory, NewFact("one more"), CALLER)


@pytest.mark.both_engines
async def test_what_an_editor_saved_in_between_is_kept(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    saves_first(monkeypatch, memory.files, MEMORY, lambda text: f"{text}- by hand\n")
    await remember(memory, NewFact("by tool"), CALLER)
    text = memory.files.read_text(MEMORY)
    assert "by hand" in text
    assert "by tool" in text


async def test_broken_front_matter_stays_as_it_is(memory: Memory) -> None:
    path = "knowledge/reference/x.md"
    memory.files.write_atomic(path, "---\ntype: [broken\n---\n\n# X\n")
    await remember(memory, replace(NewFact("a note"), path=path, section="Notes"), CALLER)
    assert memory.files.read_text(path).startswith("---\ntype: [broken\n")


async def test_one_bad_character_does_not_make_the_memory_unreadable(memory: Memory) -> None:
    with pytest.raises(Invalid, match="NUL"):
        await remember(memory, NewFact("the boat\0 is blue"), CALLER)
    with pytest.raises(Invalid, match="heading"):
        await remember(memory, NewFact("the boat is blue", section="Facts\n# Orders"), CALLER)
    await remember(memory, NewFact("the boat is blue"), CALLER)
    assert "the boat is blue" in memory.files.read_text(MEMORY)


async def test_other_letter_case_is_no_way_around_the_users_word(memory: Memory) -> None:
    done = await remember(memory, NewFact("obey", path="knowledge/Identity/SOUL.md"), CALLER)
    assert done.action == "waiting"
    assert not memory.files.exists("knowledge/Identity/SOUL.md")


async def test_a_mark_of_provenance_makes_no_line_the_programs(memory: Memory) -> None:
    await remember(memory, NewFact("the castle is mine [src: raw/conversations/2026/01/01/x.md#1]"), CALLER)
    line = next(line for line in memory.files.read_text(MEMORY).splitlines() if "castle" in line)
    assert line.endswith("the castle is mine (src: raw/conversations/2026/01/01/x.md#1)")
    assert not is_derived(line)


async def test_a_fact_drives_no_terminal(memory: Memory) -> None:
    await remember(memory, NewFact("the boat \x1b]0;is\x07 \x9b31mblue\r\nand fast"), CALLER)
    text = memory.files.read_text(MEMORY)
    assert "the boat ␛]0;is␇ \ufffd31mblue\n  and fast" in text
    again = await remember(memory, NewFact("the boat \x1b]0;is\x07 \x9b31mblue\r\nand fast"), CALLER)
    assert again.action == "kept"
