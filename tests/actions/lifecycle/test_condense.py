"""Condensing and archiving: what lasts stands in MEMORY.md, what is old in archive/, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from mcp_server.actions.compile import CompileRequest, compile_context
from mcp_server.actions.imports import ImportedSession, ImportedTurn, record_session
from mcp_server.actions.lifecycle.archive import archive_files, archive_journals
from mcp_server.actions.lifecycle.condense import condense
from mcp_server.actions.lifecycle.extract import extract
from mcp_server.actions.lifecycle.prune_knowledge import prune_memory
from mcp_server.actions.recover import recover
from mcp_server.actions.search import SearchRequest, find
from mcp_server.app import open_memory
from mcp_server.core.model import Caller
from mcp_server.core.text.remembering import ARCHIVE, MEMORY
from mcp_server.errors import NotFound, Refused
from mcp_server.memory import Memory
from mcp_server.store.files import WorkspaceFiles
from tests.conftest import KEYWORDS_ONLY, Clock
from tests.fake_llm import FakeLlm

pytestmark = pytest.mark.anyio
JOURNAL = "knowledge/journal/2026-02-14.md"
DECISION = "I decided to keep Postgres 15 for the billing tables of Atlas."


async def said(
    memory: Memory, clock: Clock, *texts: str, days_ago: int = 2, session: str = "talk-1", project: str | None = None
) -> None:
    at = clock.now - timedelta(days=days_ago)
    turns = tuple(
        ImportedTurn("user", text, at + timedelta(minutes=n), f"{session}:{n}") for n, text in enumerate(texts)
    )
    await record_session(memory, ImportedSession(session, turns, "import:test", title="Billing", project=project))


def snapshot(workspace: Path) -> dict[str, bytes]:
    return {
        path.relative_to(workspace).as_posix(): path.read_bytes()
        for folder in ("knowledge", "archive")
        for path in (workspace / folder).rglob("*.md")
    }


async def test_a_day_becomes_a_journal_and_a_week_its_decisions_in_memory(
    memory: Memory, clock: Clock, workspace: Path
) -> None:
    await said(memory, clock, DECISION, "I visited the harbour of Rijeka with Marko on 3 May 2025.")
    daily = await condense(memory, "daily")
    assert JOURNAL in daily.files
    weekly = await condense(memory, "weekly")
    assert list(weekly.files) == [MEMORY, "knowledge/people/_index.md"]
    assert not memory.files.exists(ARCHIVE), "nothing left, and there is no empty archive"
    text = memory.files.read_text(MEMORY)
    decisions = text[text.index("## Key Decisions") : text.index("## Lessons Learned")]
    assert "- 2026-02-14: I decided to keep Postgres 15 for the billing tables of Atlas. [src: raw/" in decisions
    assert "Rijeka" in text[text.index("## Active Context") :]
    before = snapshot(workspace)
    for period in ("daily", "weekly", "monthly", "monthly"):
        await condense(memory, period)
    assert (await extract(memory, anew=True)).files == {}
    assert snapshot(workspace) == before


async def test_a_projects_decision_is_shown_to_its_sessions_once(memory: Memory, clock: Clock) -> None:
    await said(memory, clock, DECISION, project="Atlas")
    await condense(memory, "daily")
    await condense(memory, "weekly")
    seen = await compile_context(memory, CompileRequest(project="Atlas"), Caller())
    assert seen.text.count("keep Postgres 15 for the billing tables") == 1
    assert "keep Postgres 15" in memory.files.read_text("knowledge/projects/atlas/context.md")


async def test_a_dry_run_changes_nothing_and_says_what_would(memory: Memory, clock: Clock, workspace: Path) -> None:
    await said(memory, clock, DECISION)
    before = snapshot(workspace)
    assert JOURNAL in (await condense(memory, "daily", dry_run=True)).files
    assert snapshot(workspace) == before
    await condense(memory, "daily")
    before = snapshot(workspace)
    for period in ("weekly", "monthly"):
        looked = await condense(memory, period, dry_run=True)
        assert "+- 2026-02-14: I decided" in looked.files[MEMORY].diff
    assert snapshot(workspace) == before


async def test_what_is_not_active_any_more_moves_to_the_archive_also_while_somebody_edits(
    memory: Memory, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await said(memory, clock, "I visited the harbour of Rijeka with Marko on 3 May 2025.")
    await condense(memory, "daily")
    await condense(memory, "weekly")
    clock.forward(days=90)
    write = WorkspaceFiles.write_atomic
    saved: list[str] = []

    def late(files: WorkspaceFiles, path: str, text: str, expected: str | None = None, *, new: bool = False) -> None:
        if path == MEMORY and not saved:  # the editor is faster, once
            saved.append(path)
            write(files, path, files.read_text(path) + "- by hand\n")
        write(files, path, text, expected, new=new)

    monkeypatch.setattr(WorkspaceFiles, "write_atomic", late)
    done = await condense(memory, "weekly")
    text = memory.files.read_text(MEMORY)
    assert "Rijeka" not in text
    assert "by hand" in text
    assert "Rijeka" in memory.files.read_text(ARCHIVE)
    assert len([note for note in done.notes if "not active" in note]) == 1
    assert (await condense(memory, "weekly")).files == {}


async def test_a_month_archives_old_journals_and_plans_and_writes_the_indexes(memory: Memory, clock: Clock) -> None:
    await said(memory, clock, "I'm planning a sailing trip to Vis with Marko.", "I'm a nurse in Split.")
    await condense(memory, "daily")
    clock.forward(days=200)
    done = await condense(memory, "monthly")
    assert memory.files.exists("archive/journal/2026-02-14.md")
    assert not memory.files.exists(JOURNAL)
    assert "Vis" not in memory.files.read_text("knowledge/people/user.md")
    assert "Vis" in memory.files.read_text("archive/people/user.md")
    index = memory.files.read_text("knowledge/people/_index.md")
    assert "- [[user]] — The user is a nurse in Split. [src: raw/" in index
    assert any(note.startswith("bring back: recover ") for note in done.notes)
    await memory.index.refresh()
    found = await find(memory, SearchRequest("sailing trip Vis", scope="all"))
    assert found.hits[0].passage.path.startswith("archive/")


async def test_what_is_archived_joins_what_the_archive_has_of_it_and_comes_back_with_one_id(
    memory: Memory, clock: Clock
) -> None:
    await said(memory, clock, "I'm planning a sailing trip to Vis with Marko.", "I'm a nurse in Split.")
    await condense(memory, "daily")
    clock.forward(days=200)
    await condense(memory, "monthly")
    path, cold = "knowledge/people/user.md", "archive/people/user.md"
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
    clock.forward(days=91)
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


async def test_pruning_memory_takes_derived_lines_that_stand_elsewhere_before_anything_by_hand(
    memory: Memory, clock: Clock
) -> None:
    await said(memory, clock, DECISION)
    await condense(memory, "daily")
    await condense(memory, "weekly")
    text = memory.files.read_text(MEMORY)
    memory.files.write_atomic(MEMORY, text + "- 2020-01-01: by hand, and older than anything\n")
    pruned = await prune_memory(memory, memory.files.read_text(MEMORY).count("\n") - 1, False)
    ((gone),) = pruned.of_fate("gone")
    assert gone.why == "a more specific file says it"
    assert "by hand" in memory.files.read_text(MEMORY)
    assert "Postgres" in memory.files.read_text(ARCHIVE)


async def test_memory_stays_within_its_cap(memory: Memory, clock: Clock) -> None:
    head = "# Core Memory\n\n## Facts\n"
    memory.files.write_atomic(MEMORY, head + "".join(f"- 2020-01-01: fact {n}\n" for n in range(205)))
    done = await condense(memory, "weekly")
    assert memory.files.read_text(MEMORY).count("\n") <= 200
    assert any("moved to archive/" in note for note in done.notes)


async def test_a_long_journal_loses_the_derived_lines_that_hold_least(memory: Memory, clock: Clock) -> None:
    for number in range(12):
        texts = [
            f"I visited harbour {number}.{place} of Rijeka with Marko and Jelena on 3 May 2025." for place in range(8)
        ]
        await said(memory, clock, *texts, DECISION, session=f"talk-{number}")
    memory.files.write_atomic(JOURNAL, "## 2026-02-14\n\n- by hand\n")
    await condense(memory, "daily")
    from mcp_server.core.lifecycle.lines import without_sources

    text = memory.files.read_text(JOURNAL)
    assert len(without_sources(text).encode()) <= 4_200
    assert "by hand" in text
    assert "Decision: " in text
    assert (await condense(memory, "daily")).files == {}


@pytest.mark.parametrize(("answer", "kept"), [("2", "Pula"), ("no idea", "Rijeka")])
async def test_a_model_chooses_what_lasts_and_words_nothing(
    workspace: Path, clock: Clock, new_id: Callable[[], str], answer: str, kept: str
) -> None:
    async with open_memory(workspace, KEYWORDS_ONLY, clock=clock, new_id=new_id) as memory:
        cities = ("Rijeka", "Osijek", "Zadar", "Sisak", "Pula", "Split", "Vinkovci")
        await said(
            memory, clock, *(f"I decided to open a bakery in {city} number {n}." for n, city in enumerate(cities))
        )
        await condense(memory, "daily")
    llm = FakeLlm([answer])
    async with open_memory(workspace, KEYWORDS_ONLY, clock=clock, new_id=new_id, llm=llm) as memory:
        await condense(memory, "weekly")
        text = memory.files.read_text(MEMORY)
        assert (text.count("[src: "), kept in text) == (1 if answer == "2" else 5, True)
    assert [purpose for purpose, _ in llm.asked] == ["condensation"]


@pytest.mark.parametrize("answer", ["3, 1", "all of them", None])
async def test_a_model_says_what_a_memory_that_is_too_long_misses_least(
    workspace: Path, clock: Clock, answer: str | None
) -> None:
    """Of derived lines alone, and only once there is nothing that stands elsewhere or is stale."""
    llm = FakeLlm([] if answer is None else [answer] * 2)
    async with open_memory(workspace, KEYWORDS_ONLY, clock=clock, llm=llm) as memory:
        names = ("oven", "boat", "tax", "oboe")
        path = "raw/conversations/2026/01/05/0900-s-talk.md"
        lines = [f"- 2026-01-0{n}: the {name} is number {n} [src: {path}#{n}]" for n, name in enumerate(names, 1)]
        text = "# Core\n\n## Facts\n- 2020-01-01: by hand\n" + "\n".join(lines) + "\n"
        memory.files.write_atomic(MEMORY, text)

        looked = await prune_memory(memory, text.count("\n") - 2, True)
        done = await prune_memory(memory, text.count("\n") - 2, False)

        assert [one.id for one in looked.of_fate("gone")] == [one.id for one in done.of_fate("gone")]
        left = memory.files.read_text(MEMORY)
        if answer == "3, 1":
            assert "by hand" in left
            assert [n for n, line in enumerate(lines, 1) if line not in left] == [1, 3]
        else:
            assert "by hand" not in left
        assert len(llm.asked) == 2
        assert "1. 2026-01-01: the oven is number 1\n" in llm.asked[0][1]
        assert "by hand" not in llm.asked[0][1]


async def test_journals_at_the_ends_of_the_calendar_keep_nobody_from_condensing(
    memory: Memory, clock: Clock, workspace: Path
) -> None:
    for day in ("0001-01-01", "0001-01-03", "9999-12-31", "0000-00-00"):
        line = f"- {day}: The user decided to build a pyramid. [src: raw/conversations/2026/01/01/x.md#1]"
        (workspace / "knowledge/journal").mkdir(exist_ok=True)
        (workspace / f"knowledge/journal/{day}.md").write_text(f"# {day}\n\n{line}\n")
        (workspace / MEMORY).write_text(f"{(workspace / MEMORY).read_text()}\n{line}\n")
    await said(memory, clock, DECISION)
    for period in ("daily", "weekly", "monthly"):
        await condense(memory, period)
    assert "Postgres 15" in memory.files.read_text(MEMORY)
