"""The compiled context of a real memory."""

from __future__ import annotations

import pytest

from mcp_server.context.compile import CompileRequest, compile_context
from mcp_server.context.compiler import Compiled
from mcp_server.context.inputs import CompileInputs, CompilerSettings, differing_fields
from mcp_server.conversations import sessions
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.conversations.read import read
from mcp_server.errors import Invalid
from mcp_server.memory import Memory
from mcp_server.model import COMPACTION, Caller
from tests.conftest import Clock
from tests.context.states import inputs, turn

pytestmark = pytest.mark.anyio

ASKS = Caller(explicit_sessions=True)


async def say(memory: Memory, content: str, session: str = "now", role: str = "user", **more: object) -> None:
    await observe(memory, NewTurn(role, content, session, **more), ASKS)  # type: ignore[arg-type]


async def compiled(memory: Memory, message: str | None = None, **more: object) -> Compiled:
    return await compile_context(memory, CompileRequest(message, **more), ASKS)  # type: ignore[arg-type]


@pytest.fixture
async def past(memory: Memory, clock: Clock) -> Memory:
    """A memory with two earlier conversations, indexed."""
    await say(memory, "My passport lies in the blue drawer of the kitchen.", "old")
    await say(memory, "I will remember where your passport is.", "old", "agent")
    await say(memory, "We planted tomatoes and basil on the balcony.", "garden")
    clock.forward(days=3)
    await memory.index.refresh()
    return memory


async def test_a_message_about_nothing_stored_brings_nothing(past: Memory) -> None:
    result = await compiled(past, "ok thanks")
    assert "passport" not in result.text
    assert result.receipt.gate is not None
    assert not result.receipt.gate.open


async def test_without_a_message_the_sessions_last_user_turn_is_asked(past: Memory) -> None:
    await say(past, "Do I still have my passport in the drawer?")
    await say(past, "Let me look.", role="agent")
    result = await compiled(past, session="now")
    assert result.inputs.message == "Do I still have my passport in the drawer?"
    assert "blue drawer of the kitchen" in result.text


async def test_what_the_client_has_in_its_window_is_not_sent_again(past: Memory) -> None:
    await say(past, "The passport is now in the red box.")
    await past.index.refresh()
    result = await compiled(past, "Where is my passport?", session="now")
    assert "red box" not in result.text
    assert "blue drawer" in result.text


async def test_an_agent_that_sends_our_text_gets_its_history(past: Memory) -> None:
    await say(past, "The passport is now in the red box.", "sent", delivery="replace")
    await say(past, "Noted.", "sent", "agent")
    await say(past, "Where is my passport?", "sent")
    result = await compiled(past, session="sent")
    assert "user: The passport is now in the red box.\nagent: Noted.\nuser: Where is my passport?" in result.text
    assert "blue drawer" in result.text
    assert [result.inputs.delivery, result.inputs.as_of] == ["replace", 3]


async def test_time_stands_still_between_two_turns(past: Memory, clock: Clock) -> None:
    await say(past, "Where is my passport?")
    one = await compiled(past, session="now")
    clock.forward(days=5)
    assert (await compiled(past, session="now")).sha256 == one.sha256


async def test_without_a_session_the_clock_counts_by_days(past: Memory, clock: Clock) -> None:
    one = await compiled(past, "Where is my passport?")
    clock.forward(minutes=5)
    assert await compiled(past, "Where is my passport?") == one


async def test_reading_a_file_makes_its_passages_count_for_more(past: Memory) -> None:
    before = await compiled(past, "Where is my passport?")
    source = before.receipt.considered[0].source
    await read(past, source)
    after = await compiled(past, "Where is my passport?")
    assert after.receipt.considered[0].terms["references"] == 1.1
    assert differing_fields(before.inputs.digests(), after.inputs.digests()) == ("hits",)


@pytest.mark.both_engines
async def test_files_that_somebody_filled_in_come_first_and_templates_do_not_come(past: Memory) -> None:
    untouched = await compiled(past, "Where is my passport?")
    assert "<!-- identity" not in untouched.text
    past.files.write_atomic("knowledge/identity/USER.md", "---\ntype: identity\n---\n\n# User\n\nI am Ana.\n")
    past.files.write_atomic("knowledge/journal/2026-02-18.md", "## Tea\n- Milan came for tea.\n")
    result = await compiled(past, "Where is my passport?")
    assert "<!-- identity: knowledge/identity/USER.md -->\n# User\n\nI am Ana." in result.text
    assert "<!-- journal: knowledge/journal/2026-02-18.md -->\n## Tea" in result.text
    assert differing_fields(untouched.inputs.digests(), result.inputs.digests()) == ("files",)


async def test_a_projects_own_context_comes_and_another_projects_does_not(past: Memory) -> None:
    for slug in ("atlas", "borea"):
        text = f"# {slug}\n\nThe {slug} is written in Rust.\n"
        past.files.write_atomic(f"knowledge/projects/{slug}/context.md", text)
    result = await compiled(past, "What is it written in?", project="atlas")
    assert "The atlas is written in Rust." in result.text
    assert "The borea" not in result.text


async def test_the_sessions_project_is_meant_unless_another_is_named(past: Memory) -> None:
    await say(past, "Where is my passport?", project="atlas")
    assert (await compiled(past, session="now")).inputs.project == "name:atlas"
    assert (await compiled(past, session="now", project="borea")).inputs.project == "name:borea"


async def test_a_tool_is_told_that_a_budget_is_too_small_and_a_resource_is_cut(past: Memory) -> None:
    with pytest.raises(Invalid, match="at least 128"):
        await compiled(past, "Where is my passport?", budget=127, strict=True)
    cut = await compiled(past, "Where is my passport?", budget=20)
    assert cut.receipt.too_small
    assert cut.tokens <= 20


@pytest.mark.both_engines
async def test_without_any_index_the_files_are_read_and_the_receipt_says_so(memory: Memory) -> None:
    await say(memory, "My passport lies in the blue drawer of the kitchen.", "old")
    result = await compiled(memory, "Where is my passport?")
    assert "blue drawer" in result.text
    assert any("index" in message for message in result.receipt.messages)


async def test_own_turns_from_before_the_last_compaction_are_found_again(past: Memory) -> None:
    await say(past, "My bicycle key hangs behind the cellar door.", turn_id="a")
    await say(past, "Noted.", role="agent", turn_id="b")
    await say(past, "The conversation was compacted.", role="system", name=COMPACTION, turn_id="c")
    await say(past, "I also keep a spare bicycle key at the office.", turn_id="d")
    await past.index.refresh()
    text = (await compiled(past, "Where is my bicycle key?", session="now")).text
    assert "cellar door" in text
    assert "spare" not in text
    assert "compacted" not in text


async def test_a_compaction_counts_in_the_transcript_that_continues_it(past: Memory) -> None:
    await say(past, "My bicycle key hangs behind the cellar door.", turn_id="a")
    await say(past, "The conversation was compacted.", role="system", name=COMPACTION, turn_id="c")
    await sessions.end_session(past, "now")
    await say(past, "## 10:00 — system (compaction)\nis what the file says", turn_id="e")
    row = await sessions.require(past, "now")
    assert row.path != (await sessions.show_session(past, "now")).paths[0]
    assert await sessions.window_start(past, row) == 2
    assert await sessions.window_start(past, await sessions.require(past, "old")) is None


async def test_who_only_asks_to_go_on_gets_the_end_of_the_conversation_before(past: Memory) -> None:
    harbor = {"project": "harbor"}
    await say(past, "We moor at the north pier of Piran.", "first", **harbor)
    await say(past, "The north pier it is.", "first", "agent")
    await say(past, "[calendar-sync] Suggested by plug-in: 'Approved: Izola.' Not confirmed.", "first", **harbor)
    await say(past, "Where were we with harbor?", "second", **harbor)
    begun = await compiled(past, session="second")
    assert "last session" in begun.text
    assert "The north pier it is." in begun.text
    assert "Izola" not in begun.text, "a program wrote that"
    assert "passport" not in begun.text, "that is of no project"
    assert "The north pier it is." in (await compiled(past, "continue", project="harbor")).text
    await say(past, "At the pier.", "second", "agent")
    await say(past, "continue", "second")
    assert "last session" not in (await compiled(past, session="second")).text, "that is its own conversation"


async def test_how_the_user_wants_things_is_in_every_context(past: Memory) -> None:
    src = "[src: raw/conversations/2026/02/16/1845-s-talk.md#1]"
    wanted = f"# The user\n\n## About\n- Nadia Horvat {src}\n\n## Likes and dislikes\n- No emojis in comments. {src}\n"
    past.files.write_atomic("knowledge/people/user.md", f"{wanted}\n## What happened\n- 2026-02-16: It rained. {src}\n")
    result = await compiled(past, "ok thanks")
    assert "Nadia Horvat" in result.text
    assert "No emojis in comments." in result.text
    assert "It rained." not in result.text
    reason = "not always shown: comes in where a message is about it"
    assert out(result)["knowledge/people/user.md:9-10"] == reason
    past.files.write_atomic("knowledge/people/user.md", f"# The user\n\n## Plans\n- 2026-02-16: Row. {src}\n")
    without = await compiled(past, "ok thanks")
    assert "user.md" not in without.text
    assert out(without)["knowledge/people/user.md:1-4"] == reason


async def test_a_projects_context_has_no_journal_lines_of_another_project(past: Memory) -> None:
    await say(past, "We moor at the pier.", "first", project="harbor")
    await say(past, "We paint the lamp.", "other", project="lantern")
    src = "[src: raw/conversations/2026/02/16/1845-s-talk.md#1]"
    today = past.local_date(past.clock())
    rows = [f"- Scans of Lantern are kept for 30 days. {src}", "- by hand: buy rope for the scans"]
    for day in (today, "2025-11-09"):  # always shown; found
        journal = "\n".join([f"## {day}", "", "### lantern", *rows, "", "### Health", f"- Scans are fine. {src}"])
        past.files.write_atomic(f"knowledge/journal/{day}.md", f"{journal}\n")
    await past.index.refresh()
    for project, seen in (("harbor", False), ("lantern", True)):
        result = await compiled(past, "How long are scans of Lantern kept?", project=project)
        assert ("kept for 30 days" in result.text) is seen
        assert "buy rope" in result.text
        assert "Scans are fine." in result.text
        reasons = out(result)
        assert (reasons.get(f"knowledge/journal/{today}.md:4-4") == "another project's: lantern") is not seen
        assert (reasons.get("knowledge/journal/2025-11-09.md:4-4") == "another project's: lantern") is not seen, "found"
        assert ("× another project's: lantern" in result.receipt.markdown) is not seen
    everything = await compiled(past, "How long are scans of Lantern kept?", project="harbor", scope="all")
    assert "kept for 30 days" in everything.text


async def test_a_greeting_brings_the_newest_lessons_of_a_long_memory_and_an_anchored_old_one(memory: Memory) -> None:
    from datetime import date, timedelta

    days = [date(2025, 9, 1) + timedelta(days=number) for number in range(120)]
    lessons = "\n".join(
        f"- {day}: Lesson {number}: {'the boiler needs a pause before it is filled again; ' * 5}"
        for number, day in enumerate(days)
    )
    memory.files.write_atomic("knowledge/memory/MEMORY.md", f"# Core Memory\n\n## Lessons Learned\n\n{lessons}\n")
    memory.files.write_atomic("anchors.yaml", "anchors:\n  - item: knowledge/memory/MEMORY.md#6\n")
    result = await compiled(memory, "Good morning")
    assert "Lesson 119:" in result.text
    assert "Lesson 1:" in result.text  # line 6
    assert "Lesson 0:" not in result.text
    assert result.tokens > 0.8 * result.receipt.budget


SRC = "[src: raw/conversations/2026/02/16/1845-s-talk.md#1]"


NOTES = "knowledge/projects/lantern/notes.md"


OLD = f"- 2026-02-10: Scans older than 14 days can be dropped. {SRC}"


NEW = f"- 2026-02-11: The legal team wants scans kept 30 days instead of 14. {SRC}"


async def compiled_with(
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
    own = "- 2026-02-09: scans over 14 days old: ask Leila"
    projects.files.write_atomic(NOTES, f"# lantern\n\n## Facts\n{OLD}\n{NEW}\n{own}\n")
    await projects.index.refresh()
    result = await compiled_with(projects, "How many days are scans kept, and dropped when?")
    assert "older than 14 days" not in result.text
    assert "ask Leila" in result.text, "a person's own line"
    assert "30 days instead" in result.text
    (found,) = [one for one in result.receipt.considered if one.id == f"{NOTES}:4-4"]
    assert (found.included, found.tokens, found.slot) == (False, 0, "knowledge")
    assert found.reason == "no longer so: a newer line says otherwise"
    assert found.score is not None
    assert f"{NOTES}:4-4 — no longer so" in result.receipt.markdown


async def test_lines_of_another_project_in_the_memory_file_are_named_and_shown_outside_any_project(
    projects: Memory,
) -> None:
    lines = [f"- 2026-02-16: [[{name}/context|{name}]] — Scans of {name}. {SRC}" for name in ("harbor", "lantern")]
    projects.files.write_atomic("knowledge/memory/MEMORY.md", "\n".join(["## Projects", *lines, "- lantern: by hand"]))
    result = await compiled_with(projects, project="harbor")
    assert ("Scans of harbor" in result.text, "Scans of lantern" in result.text) == (True, False)
    assert "lantern: by hand" in result.text
    assert out(result)["knowledge/memory/MEMORY.md:3-3"] == "another project's: lantern"
    assert "Scans of lantern" in (await compiled_with(projects)).text


async def test_a_file_that_cannot_be_shown_is_named(memory: Memory) -> None:
    memory.files.write_bytes_atomic("knowledge/identity/USER.md", b"\x00\xff\xfe binary \x00")
    memory.files.write_atomic("knowledge/identity/SOUL.md", "<<<<<<< a\nI am Ana.\n=======\nI am Bo.\n>>>>>>> b\n")
    reasons = out(await compiled_with(memory, "ok thanks", ""))
    assert reasons["knowledge/identity/USER.md"] == "cannot be read: `status` says why"
    assert reasons["knowledge/identity/SOUL.md"] == "two versions that nobody has merged: `status` says where"


async def test_a_file_of_a_project_that_is_no_utf8_stops_no_context(projects: Memory) -> None:
    projects.files.write_atomic(NOTES, "")
    projects.files.write_bytes_atomic(NOTES, f"# lantern\n\n## Facts\n{OLD}\n- caf".encode() + b"\xe9\n")
    await projects.index.refresh()
    assert "older than 14 days" in (await compiled_with(projects)).text


def test_inputs_that_an_older_version_stored_take_the_defaults_of_new_fields() -> None:
    stored = inputs(turns=(turn(1),)).to_json()
    del stored["drop_list"], stored["settings"], stored["turns"][0]["redacted"]
    read = CompileInputs.from_json({**stored, "clarity": None})
    assert (read.drop_list, read.settings, read.turns[0], read.clarity) == ((), CompilerSettings(), turn(1), ())


def test_what_a_newer_version_says_of_a_turn_does_not_disturb() -> None:
    stored = inputs(turns=(turn(1),)).to_json()
    stored["turns"][0]["mood"] = "fine"
    assert CompileInputs.from_json(stored).turns == (turn(1),)
