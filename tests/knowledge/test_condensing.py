"""Condensing and archiving: what lasts stands in MEMORY.md, what is old in archive/, and nothing is lost."""

from __future__ import annotations

from datetime import timedelta

import pytest

from mcp_server.conversations.imports import ImportedSession, ImportedTurn, record_session
from mcp_server.errors import NotFound, Refused
from mcp_server.knowledge.condense import condense
from mcp_server.knowledge.extract import extract
from mcp_server.knowledge.prune_knowledge import archive_files, archive_journals, prune_memory
from mcp_server.knowledge.remember import NewFact, remember
from mcp_server.memory import Memory
from mcp_server.model import Caller
from mcp_server.recovery.recover import recover
from mcp_server.search.search import SearchRequest, find
from mcp_server.text.destinations import ARCHIVE, MEMORY
from tests.conftest import Clock
from tests.editors import saves_first

pytestmark = pytest.mark.anyio
JOURNAL = "knowledge/journal/2026-02-14.md"
DECISION = "I decided to keep Postgres 15 for the billing tables of Atlas."


async def said(
    memory: Memory,
    clock: Clock,
    *texts: str,
    days_ago: int = 2,
    session: str = "talk-1",
    project: str | None = None,
    name: str | None = None,
) -> None:
    at = clock.now - timedelta(days=days_ago)
    turns = tuple(
        ImportedTurn("user", text, at + timedelta(minutes=n), f"{session}:{n}", name) for n, text in enumerate(texts)
    )
    await record_session(memory, ImportedSession(session, turns, "import:test", title="Billing", project=project))


async def later(memory: Memory, clock: Clock, days: int) -> None:
    """Days pass, and something else happens."""
    clock.forward(days=days)
    await said(memory, clock, "I adopted two kittens yesterday.", days_ago=0, session="later", name="Bo")
    await extract(memory)


def snapshot(memory: Memory) -> dict[str, bytes]:
    return {path: data for folder in ("knowledge", "archive") for path, data in memory.files.contents(folder)}


@pytest.mark.both_engines
async def test_a_conversation_becomes_a_page_a_journal_and_lines_of_memory_at_once(
    memory: Memory, clock: Clock
) -> None:
    await said(memory, clock, DECISION, "I live in Rijeka with my sister.", project="Atlas")
    daily = await condense(memory, "daily")
    assert {JOURNAL, MEMORY} <= set(daily.files)
    text = memory.files.read_text(MEMORY)
    assert f"- 2026-02-14: [[atlas/context|atlas]] — decided: {DECISION[:-1]} [src: " in text
    assert "- 2026-02-14: I live in Rijeka with my sister. [src: " in text
    journal = memory.files.read_text(JOURNAL)
    assert "\n## [[atlas/context|atlas]]\n" in journal
    assert f"- Decided: {DECISION[:-1]} [src: " in journal
    assert journal.count("\n## ") == 1, "what the user says of himself is in the part of his conversation"
    await condense(memory, "weekly")
    assert not memory.files.exists(ARCHIVE), "nothing left, and there is no empty archive"
    before = snapshot(memory)
    for period in ("daily", "weekly", "monthly", "monthly"):
        await condense(memory, period)
    assert (await extract(memory, anew=True)).files == {}
    assert snapshot(memory) == before


async def test_a_line_of_memory_follows_its_project_and_a_line_by_hand_stays(memory: Memory, clock: Clock) -> None:
    await said(memory, clock, DECISION, project="Atlas")
    await extract(memory)
    by_hand = "- 2020-01-01: by hand, and older than anything"
    memory.files.write_atomic(MEMORY, f"{memory.files.read_text(MEMORY)}{by_hand}\n")
    await said(memory, clock, "I decided to sell the boat of Ana.", days_ago=1, session="talk-2", project="Atlas")
    await extract(memory)
    text = memory.files.read_text(MEMORY)
    assert "decided: I decided to sell the boat of Ana" in text
    assert "Postgres" not in text
    assert by_hand in text.splitlines()


async def test_a_dry_run_changes_nothing_and_says_what_would(memory: Memory, clock: Clock) -> None:
    await said(memory, clock, DECISION, project="Atlas")
    before = snapshot(memory)
    assert JOURNAL in (await condense(memory, "daily", dry_run=True)).files
    assert snapshot(memory) == before
    await condense(memory, "daily")
    text = memory.files.read_text(MEMORY)
    memory.files.write_atomic(MEMORY, "\n".join(row for row in text.split("\n") if "|atlas]]" not in row))
    before = snapshot(memory)
    for period in ("weekly", "monthly"):
        looked = await condense(memory, period, dry_run=True)
        assert "+- 2026-02-14: [[atlas/context|atlas]] — decided: I decided" in looked.files[MEMORY].diff
    assert snapshot(memory) == before


async def test_memory_is_written_anew_also_while_somebody_edits_it(
    memory: Memory, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await said(memory, clock, DECISION, project="Atlas")
    saves_first(monkeypatch, memory.files, MEMORY, lambda text: f"{text}- by hand\n")
    await extract(memory)
    text = memory.files.read_text(MEMORY)
    assert "by hand" in text
    assert "|atlas]]" in text
    assert MEMORY not in (await condense(memory, "weekly")).files


async def test_a_month_archives_old_journals_and_plans_and_writes_the_indexes(memory: Memory, clock: Clock) -> None:
    await said(memory, clock, "I'm planning a sailing trip to Vis with Marko.", "I'm a nurse in Split.", name="Ana")
    await condense(memory, "daily")
    await later(memory, clock, days=200)
    done = await condense(memory, "monthly")
    assert memory.files.exists("archive/journal/2026-02-14.md")
    assert not memory.files.exists(JOURNAL)
    assert "Vis" not in memory.files.read_text("knowledge/people/ana.md")
    assert "Vis" in memory.files.read_text("archive/people/ana.md")
    index = memory.files.read_text("knowledge/people/_index.md")
    assert "- [[ana]] — I'm a nurse in Split [src: " in index
    assert any(note.startswith("bring back: recover ") for note in done.notes)
    await memory.index.refresh()
    found = await find(memory, SearchRequest("sailing trip Vis", scope="all"))
    assert found.hits[0].passage.path.startswith("archive/")


async def test_an_import_of_an_old_year_is_condensed_as_of_its_end(memory: Memory, clock: Clock) -> None:
    await said(memory, clock, "I'm planning a sailing trip to Vis with Marko.", days_ago=700, name="Ana")
    await said(memory, clock, DECISION, days_ago=690, session="talk-2", project="Atlas")
    await condense(memory, "daily")
    journals = [stat.path for stat in memory.files.walk("knowledge/journal/")]
    await condense(memory, "monthly")
    assert [stat.path for stat in memory.files.walk("knowledge/journal/")] == journals
    assert "Vis" in memory.files.read_text("knowledge/people/ana.md")
    assert "[[atlas" in memory.files.read_text("knowledge/projects/_active.md")


async def test_what_is_archived_joins_what_the_archive_has_of_it_and_comes_back_with_one_id(
    memory: Memory, clock: Clock
) -> None:
    await said(memory, clock, "I'm planning a sailing trip to Vis with Marko.", "I'm a nurse in Split.", name="Ana")
    await condense(memory, "daily")
    await later(memory, clock, days=200)
    await condense(memory, "monthly")
    path, cold = "knowledge/people/ana.md", "archive/people/ana.md"
    memory.files.write_atomic(path, memory.files.read_text(path) + "\nMarko calls on Sundays.\n")
    before = {one: memory.files.read_text(one) for one in (path, cold)}
    done = await archive_files(memory, [path], False)
    assert not memory.files.exists(path)
    text = memory.files.read_text(cold)
    assert all(text.count(words) == 1 for words in ("Vis with Marko", "a nurse in Split", "Marko calls on Sundays."))
    await recover(memory, done.undo[0], Caller(), apply=True)
    assert {one: memory.files.read_text(one) for one in (path, cold)} == before


async def test_archived_journals_come_back_with_one_id(memory: Memory, clock: Clock) -> None:
    await said(memory, clock, DECISION)
    await extract(memory)
    await later(memory, clock, days=91)
    assert not (await archive_journals(memory, True)).undo
    done = await archive_journals(memory, False)
    assert [one.id for one in done.of_fate("gone")] == [JOURNAL]
    await recover(memory, done.undo[0], Caller(), apply=True)
    assert memory.files.exists(JOURNAL)
    assert not memory.files.exists("archive/journal/2026-02-14.md")


async def test_a_named_file_is_archived_and_what_never_goes_is_refused(memory: Memory, clock: Clock) -> None:
    await said(memory, clock, DECISION)
    await extract(memory)
    assert (await archive_files(memory, [JOURNAL], True)).changes
    assert memory.files.exists(JOURNAL)
    await archive_files(memory, [JOURNAL], False)
    assert memory.files.exists("archive/journal/2026-02-14.md")
    for path, error in ((MEMORY, Refused), ("anchors.yaml", Refused), ("knowledge/journal/x.md", NotFound)):
        memory.files.write_atomic("anchors.yaml", "anchors: []\n")
        with pytest.raises(error):
            await archive_files(memory, [path], False)


async def test_pruning_memory_takes_the_oldest_lines_by_hand_and_no_derived_line(memory: Memory, clock: Clock) -> None:
    await said(memory, clock, DECISION, project="Atlas")
    await condense(memory, "daily")
    text = memory.files.read_text(MEMORY)
    memory.files.write_atomic(MEMORY, text + "- 2020-01-01: by hand\n- 2027-01-01: by hand, and newer\n")
    pruned = await prune_memory(memory, text.count("\n") + 1, False)
    ((gone),) = pruned.of_fate("gone")
    assert "oldest" in gone.why
    left = memory.files.read_text(MEMORY)
    assert "2020-01-01" not in left
    assert "|atlas]]" in left
    assert "2020-01-01: by hand" in memory.files.read_text(ARCHIVE)


async def test_memory_stays_within_its_cap(memory: Memory, clock: Clock) -> None:
    head = "# Core Memory\n\n## Facts\n"
    memory.files.write_atomic(MEMORY, head + "".join(f"- 2020-01-01: fact {n}\n" for n in range(205)))
    done = await condense(memory, "weekly")
    assert memory.files.read_text(MEMORY).count("\n") <= 200
    assert any("moved to archive/" in note for note in done.notes)


NOUNS = """
bread oven eggs dogs flour salt phone garden sign van paper blue door roof lamp chair river boat snow honey
piano coffee bridge tower apple mirror candle pocket window spider carpet island rocket button saddle tunnel
violin feather hammer kettle ladder magnet needle orange pepper quarry ribbon statue ticket urn velvet walnut
yogurt zipper anchor basket copper dragon engine fabric
"""


async def talked(memory: Memory, clock: Clock, number: int, project: str) -> None:
    """Records a conversation with six decisions."""
    words = NOUNS.split()
    pairs = [words[12 * number + 2 * place :][:2] for place in range(6)]
    texts = [f"Decision: the {one} goes with the {other}." for one, other in pairs]
    await said(memory, clock, *texts, session=f"talk-{number}", project=project)


async def test_the_journal_of_a_day_with_many_conversations_has_at_most_ten_lines(memory: Memory, clock: Clock) -> None:
    for number in range(5):
        await talked(memory, clock, number, "Atlas")
    memory.files.write_atomic(JOURNAL, "## 2026-02-14\n\n- by hand\n")
    await extract(memory)
    text = memory.files.read_text(JOURNAL)
    assert text.count("\n- ") == 10
    assert "by hand" in text
    assert memory.files.read_text("knowledge/projects/atlas/context.md").count("\n- ") == 30, "nothing is lost"
    assert (await extract(memory, anew=True)).files == {}


async def test_the_journal_of_a_full_day_is_the_same_after_it_is_rebuilt(memory: Memory, clock: Clock) -> None:
    for number, project in enumerate(("Atlas", "Bakery", "Atlas", "Harbor", "Bakery")):
        await talked(memory, clock, number, project)
        await extract(memory)
    before = snapshot(memory)
    assert before[JOURNAL].count(b"\n- ") == 10
    assert all(f"|{project}]]".encode() in before[JOURNAL] for project in ("atlas", "bakery", "harbor"))
    await extract(memory)
    assert (await extract(memory, anew=True)).files == {}
    assert snapshot(memory) == before


async def test_a_line_that_an_agent_remembers_takes_a_place_in_a_full_day(memory: Memory, clock: Clock) -> None:
    for number in range(2):
        await talked(memory, clock, number, "Atlas")
    await extract(memory)
    clock.forward(days=-2)
    await remember(memory, NewFact("The oven was repaired", "journal"), Caller())
    text = memory.files.read_text(JOURNAL)
    assert text.count("\n- ") == 10
    assert "- The oven was repaired" in text
    assert (await extract(memory, anew=True)).files == {}


async def test_journals_at_the_ends_of_the_calendar_keep_nobody_from_condensing(memory: Memory, clock: Clock) -> None:
    for day in ("0001-01-01", "0001-01-03", "9999-12-31", "0000-00-00"):
        line = f"- {day}: The user decided to build a pyramid. [src: 1](/raw/conversations/2026/01/01/x.md)"
        memory.files.write_atomic(f"knowledge/journal/{day}.md", f"# {day}\n\n{line}\n")
        memory.files.write_atomic(MEMORY, f"{memory.files.read_text(MEMORY)}\n{line}\n")
    await said(memory, clock, DECISION)
    for period in ("daily", "weekly", "monthly"):
        await condense(memory, period)
    assert "pyramid" not in memory.files.read_text(MEMORY), "no page says so"
