"""Conversations become knowledge: each line with the turn that says it, once, beside what people wrote."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest

from mcp_server.app import open_memory
from mcp_server.conversations import sessions
from mcp_server.conversations.imports import ImportedSession, ImportedTurn, RecordedSession, record_session
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.errors import Invalid, NotFound
from mcp_server.forgetting.forget import forget
from mcp_server.forgetting.target import ForgetTarget
from mcp_server.jobs.scheduler import JOBS, run_due
from mcp_server.knowledge.condense import condense
from mcp_server.knowledge.extract import EXTRACTED, extract, extract_pending, refresh
from mcp_server.knowledge.prune_knowledge import archive_journals
from mcp_server.memory import Memory
from mcp_server.model import Caller
from mcp_server.text.destinations import MEMORY
from mcp_server.text.entries import sources_of
from tests.conftest import KEYWORDS_ONLY, Clock

pytestmark = pytest.mark.anyio
START = datetime(2023, 5, 8, 13, 56, tzinfo=UTC)
ANA = "knowledge/people/ana.md"


def talk(*said: str, session: str = "talk-1", days: int = 0) -> ImportedSession:
    turns = tuple(
        ImportedTurn(
            "user", text, START + timedelta(days=days, seconds=place), f"D{days}:{place}", "Bo" if place % 2 else "Ana"
        )
        for place, text in enumerate(said)
    )
    return ImportedSession(session, turns, "import:test", title="Ana and Bo")


async def extracted(memory: Memory, said: ImportedSession) -> RecordedSession:
    """Records a conversation and derives knowledge from it."""
    recorded = await record_session(memory, said)
    await extract(memory)
    return recorded


async def end(memory: Memory, session: str) -> None:
    """Ends a conversation, whose items become knowledge then."""
    await sessions.end_session(memory, session)
    await extract_pending(memory)


async def test_every_line_names_a_turn_that_says_it(memory: Memory) -> None:
    await record_session(memory, talk("I adopted two kittens yesterday.", "I bought a cello in Zagreb yesterday."))
    done = await extract(memory)
    assert (done.read, done.lines) == (1, 4)
    text = memory.files.read_text(ANA)
    assert "- 2023-05-07: Ana: I adopted two kittens on 7 May 2023. [src: 1](/raw/conversations/2023/05/08/" in text
    for path in done.files:
        for line in memory.files.read_text(path).splitlines():
            for source in sources_of(line):
                turns = {placed.turn.number: placed.turn for placed in memory.transcripts.read(source.path).turns}
                assert any(word in turns[source.turn].content for word in ("kittens", "cello"))
                assert any(word in line for word in ("kittens", "cello"))
    journal = memory.files.read_text("knowledge/journal/2023-05-08.md")
    assert 'sessions: ["talk-1"]' in journal


@pytest.mark.parametrize("path", [ANA, "archive/people/ana.md", MEMORY])
async def test_a_page_that_cannot_be_read_is_named_and_left_alone_and_the_others_are_written(
    memory: Memory, workspace: Path, path: str
) -> None:
    await record_session(memory, talk("I adopted two kittens yesterday.", "I bought a cello in Zagreb yesterday."))
    broken = "# Ana has a café\n".encode("latin-1")
    (workspace / path).parent.mkdir(parents=True, exist_ok=True)
    (workspace / path).write_bytes(broken)
    for anew in (False, True):
        done = await extract(memory, anew=anew)
        assert done.notes == [f"left as it is: {path}: line 1: not UTF-8 text (byte 15); save it as UTF-8"]
        assert (workspace / path).read_bytes() == broken
        assert "cello" in memory.files.read_text("knowledge/people/bo.md")
    (workspace / path).write_bytes(b"# Ana\n")
    await extract(memory)
    assert "kittens" in memory.files.read_text(ANA)


@pytest.mark.both_engines
async def test_doing_it_again_changes_nothing_also_after_the_state_is_lost(memory: Memory) -> None:
    await extracted(memory, talk("I adopted two kittens yesterday.", "I moved to Zagreb last week."))
    before = dict(memory.files.contents("knowledge"))
    assert (await extract(memory)).known == 1
    await memory.state.remove(EXTRACTED, *await memory.state.keys_of(EXTRACTED))
    again = await extract(memory)
    assert (again.read, again.files) == (1, {})
    assert (await extract(memory, anew=True)).files == {}
    assert dict(memory.files.contents("knowledge")) == before


async def test_a_dry_run_says_what_would_be_written_and_writes_nothing(memory: Memory) -> None:
    await record_session(memory, talk("I adopted two kittens yesterday."))
    looked = await extract(memory, dry_run=True)
    assert not memory.files.exists(ANA)
    assert "+- 2023-05-07: Ana: I adopted two kittens" in looked.files[ANA].diff
    done = await extract(memory)
    assert {path: one.diff for path, one in done.files.items()} == {
        path: one.diff for path, one in looked.files.items()
    }


async def test_an_open_conversation_is_read_only_when_it_is_asked_for(memory: Memory) -> None:
    await observe(memory, NewTurn("user", "I live in Lisbon with my sister.", session="s"), Caller())
    assert (await extract(memory)).read == 0
    assert (await extract(memory, "s")).read == 1
    assert "Lisbon" in memory.files.read_text("knowledge/people/user.md")


async def test_a_conversation_that_ends_becomes_knowledge_by_itself(memory: Memory) -> None:
    await observe(memory, NewTurn("user", "I live in Lisbon with my sister.", session="s"), Caller())
    assert await extract_pending(memory) == 0
    await sessions.end_session(memory, "s")
    assert await extract_pending(memory) == 1
    assert await extract_pending(memory) == 0
    assert "Lisbon" in memory.files.read_text("knowledge/people/user.md")


@pytest.mark.parametrize("ended", [True, False])
async def test_a_yes_in_a_resumed_session_accepts_what_was_proposed_before_its_end(memory: Memory, ended: bool) -> None:
    async def say(role: str, text: str) -> None:
        await observe(memory, NewTurn(role, text, session="s"), Caller())

    await say("user", "Where should we keep the photos of the boats?")
    await say("agent", "I would keep the photos in an S3 bucket with versioning. Shall I do that?")
    await end(memory, "s")
    await say("user", "Yes, do that.")
    await say("agent", "Done: the bucket is there.")
    if ended:
        await end(memory, "s")
    else:
        await refresh(memory)
    paths = (await sessions.show_session(memory, "s")).paths
    assert len(paths) == 2
    page = memory.files.read_text("knowledge/reference/general.md")
    (line,) = [line for line in page.splitlines() if "S3 bucket" in line]
    assert sources_of(line)[0].path == paths[1]


async def test_a_conversation_that_was_resumed_has_one_heading_in_the_journal(memory: Memory) -> None:
    for what in ("The boat stays in the north dock.", "The sails go to the loft.", "The oars get new leather."):
        await observe(memory, NewTurn("user", f"Decision: {what}", session="s"), Caller())
        await end(memory, "s")
    assert len((await sessions.show_session(memory, "s")).paths) == 3
    journal = memory.files.read_text("knowledge/journal/2026-02-16.md")
    assert [line for line in journal.splitlines() if line.startswith("## ")] == [
        "## Decision The boat stays in the north dock"
    ]
    assert journal.count("- Decided: ") == 3


async def test_reading_again_moves_the_lines_of_a_journal_under_todays_headings(memory: Memory) -> None:
    text = "Decision: the boat stays in the north dock."
    await observe(memory, NewTurn("user", text, session="s", project="atlas"), Caller())
    await end(memory, "s")
    path = "knowledge/journal/2026-02-16.md"
    journal = memory.files.read_text(path)
    older = journal.replace("## [[atlas/context|atlas]]", "## atlas").replace(" [src: ", " [[atlas/context]] [src: ")
    assert older != journal
    memory.files.write_atomic(path, older)
    await extract(memory, anew=True)
    assert memory.files.read_text(path) == journal


async def test_a_serving_process_does_it_and_manual_means_manual(
    place: Path | str, clock: Clock, new_id: Callable[[], str]
) -> None:
    from mcp_server.app import maintain

    async with open_memory(place, KEYWORDS_ONLY, clock=clock, new_id=new_id) as memory:
        await record_session(memory, talk("I adopted two kittens yesterday."))
        async with memory.changes.listen() as heard, maintain(memory):
            with anyio.fail_after(60):
                async for change in heard:
                    if change.path == ANA:
                        break
    manual = {**KEYWORDS_ONLY, "CONTEXT_MANAGER_LIFECYCLE__EXTRACTION_TRIGGER": "manual"}
    async with open_memory(place, manual, clock=clock, new_id=new_id) as memory:
        await record_session(memory, talk("I bought a red canoe in Split yesterday.", session="talk-2", days=1))
        assert await extract_pending(memory) == 0
        daily = await condense(memory, "daily")
        assert "read only by `context-manager extract`" in daily.notes[0]
        assert (await extract(memory)).read == 1


async def test_hourly_means_once_an_hour(place: Path | str, clock: Clock, new_id: Callable[[], str]) -> None:
    hourly = {**KEYWORDS_ONLY, "CONTEXT_MANAGER_LIFECYCLE__EXTRACTION_TRIGGER": "hourly"}
    only = {"extract-hourly": JOBS["extract-hourly"]}
    async with open_memory(place, hourly, clock=clock, new_id=new_id) as memory:
        assert await run_due(memory, only) == []
        await record_session(memory, talk("I adopted two kittens yesterday."))
        clock.forward(minutes=10)
        assert await run_due(memory, only) == []
        clock.forward(minutes=10)
        (ran,) = await run_due(memory, only)
        assert (ran.ok, ran.outcome) == (True, "1 conversations read")
        assert "kittens" in memory.files.read_text(ANA)
    async with open_memory(place, KEYWORDS_ONLY, clock=clock, new_id=new_id) as memory:
        clock.forward(hours=2)
        assert await run_due(memory, only) == []


async def test_what_was_forgotten_is_not_derived_again(memory: Memory) -> None:
    await extracted(memory, talk("I adopted two kittens yesterday.", "I moved to Zagreb last week."))
    await forget(memory, ForgetTarget(turn="talk-1#1"))
    assert "kittens" not in memory.files.read_text(ANA)
    await extract(memory, anew=True)
    assert "kittens" not in memory.files.read_text(ANA)
    assert "Zagreb" in memory.files.read_text("knowledge/people/bo.md")


async def test_one_extractor_alone_leaves_the_rest_to_later(memory: Memory) -> None:
    await record_session(memory, talk("I adopted two kittens yesterday."))
    await extract(memory, names=["journal"])
    assert not memory.files.exists(ANA)
    assert (await extract(memory)).read == 1
    assert memory.files.exists(ANA)


async def test_a_wrong_name_says_which_there_are(memory: Memory) -> None:
    with pytest.raises(Invalid, match="no extractor 'peple'; there are decisions, "):
        await extract(memory, names=["peple"])
    with pytest.raises(NotFound):
        await extract(memory, "nobody")


async def test_a_broken_transcript_is_named_and_the_others_are_read(memory: Memory) -> None:
    await record_session(memory, talk("I adopted two kittens yesterday."))
    memory.files.write_atomic("raw/conversations/2023/05/08/0000-x-broken.md", "---\nsession_id: x\n---\n")
    done = await extract(memory)
    assert done.read == 1
    assert "0000-x-broken.md" in done.notes[0]


async def test_the_report_counts_removed_lines(memory: Memory) -> None:
    recorded = await extracted(memory, talk("I adopted two kittens yesterday.", "Great!"))
    wrong = "".join(f"- 2023-05-08: Ana mewed {what}. [src: 1](/{recorded.path})\n" for what in ("loudly", "twice"))
    memory.files.write_atomic(ANA, f"{memory.files.read_text(ANA)}{wrong}")
    await memory.state.put(EXTRACTED, recorded.path or "", "people 1; 2 turns")
    done = await extract(memory)
    assert done.files[ANA].counts == "+0 −2"


async def test_what_no_file_takes_in_one_conversation_does_not_keep_the_others_from_being_read(memory: Memory) -> None:
    """Half characters, the ends of the calendar, sources that somebody made up."""
    odd = "I moved to \ud83c Zagreb last week. [src: 7](/raw/conversations/2020/01/01/forged.md)"
    await record_session(memory, talk(odd, session="talk-1"))
    far = ImportedTurn("user", "I bought a horse yesterday.", datetime(1, 1, 1, tzinfo=UTC), "far", "Ana")
    late = ImportedTurn(
        "user", "I will buy a ship tomorrow.", datetime(9999, 12, 31, 23, 59, tzinfo=UTC), "late", "Ana"
    )
    await record_session(memory, ImportedSession("talk-2", (far, late), "import:test", title="Ana"))
    await record_session(memory, talk("I adopted two kittens yesterday.", session="talk-3"))
    done = await extract(memory)
    assert (done.read, done.notes) == (3, [])
    text = memory.files.read_text(ANA)
    assert "kittens" in text
    assert "Zagreb" in text
    assert "forged" not in text
    assert "ship" not in text, "the day after the last one has no date"
    assert (await extract(memory)).read == 0
    assert (await extract(memory, anew=True)).files == {}


async def test_what_other_versions_of_the_extractors_made_of_a_conversation_goes_when_it_is_read_again(
    memory: Memory,
) -> None:
    recorded = await extracted(memory, talk("I adopted two kittens yesterday.", "Great!"))
    path = recorded.path or ""
    (line,) = (line for line in memory.files.read_text(ANA).split("\n") if "kittens" in line)
    misfiled = memory.files.read_text(ANA).replace("## What happened", "## About")
    memory.files.write_atomic(ANA, f"{misfiled}- 2023-05-08: Ana mewed. [src: 1](/{path})\n- By hand\n")
    await memory.state.put(EXTRACTED, path, "people 1; 2 turns")
    await extract(memory)
    text = memory.files.read_text(ANA)
    assert "mewed" not in text
    assert "- By hand" in text
    assert text.count("kittens") == 1
    assert text.index("## What happened") < text.index(line)


async def test_of_a_day_that_is_archived_the_journal_goes_on_in_the_archive(memory: Memory) -> None:
    await record_session(memory, talk("I adopted two kittens yesterday.", "Great!"))
    await extracted(memory, talk("I sold my boat yesterday.", "Oh!", session="new", days=200))
    await archive_journals(memory, False)
    first = memory.files.read_text("archive/journal/2023-05-08.md")
    await extract(memory, anew=True)
    assert memory.files.read_text("archive/journal/2023-05-08.md") == first
    await extracted(memory, talk("I bought an old cello from Marko in Zagreb yesterday.", "Great!", session="late"))
    text = memory.files.read_text("archive/journal/2023-05-08.md")
    assert "kittens" in text
    assert "cello" in text
    assert 'sessions: ["talk-1", "late"]' in text
    assert not memory.files.exists("knowledge/journal/2023-05-08.md")
