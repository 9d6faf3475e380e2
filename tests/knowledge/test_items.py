"""Decisions, rules and open items of conversations on the page of their project."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import anyio
import pytest

from mcp_server.app import open_memory
from mcp_server.context.compile import CompileRequest, compile_context
from mcp_server.conversations.imports import ImportedSession, ImportedTurn, record_session
from mcp_server.forgetting.forget import forget
from mcp_server.forgetting.target import ForgetTarget
from mcp_server.jobs.duties import keep_extracted
from mcp_server.knowledge import review
from mcp_server.knowledge.extract import EXTRACTED, extract, queue_outdated, waiting_conversations
from mcp_server.llm import LlmUnavailable
from mcp_server.memory import Memory
from mcp_server.model import Caller
from mcp_server.text.destinations import MEMORY, archived_path
from tests.conftest import KEYWORDS_ONLY, Clock
from tests.fake_llm import FakeLlm
from tests.understanding.talks import BERTH, BERTH_DONE, HELLO, PROPOSAL

pytestmark = pytest.mark.anyio
PAGE = "knowledge/projects/atlas/context.md"
RULE = "From here on write all commit messages in English."
VAULT = "I'd keep them in Vault with the AppRole login, one role per service."
JWT = "change of plan: no AppRole login in Vault after all, we use the JWT login instead"
BACK = "scrap the JWT login in Vault, we go back to the AppRole login"

FIRST = (
    *("and backups?", f"{PROPOSAL} OK?"),
    *("Yes, with one change: 30 copies.", "Set up that way."),
    *("where do secrets live?", VAULT),
    *("yes please", "Done."),
    *(RULE, "Understood, noted."),
    *(BERTH, "OK, I'll keep that in mind."),
    *("how does the export work?", "It writes a CSV file."),
)
SECOND = (JWT, "OK, Vault uses JWT login now.", "what is next?", "The export.", BERTH_DONE, "Good to hear.")


async def talk(
    memory: Memory, clock: Clock, session: str, days: int, *said: str, project: str | None = "atlas"
) -> None:
    at = clock.now - timedelta(days=20 - days)
    turns = tuple(
        ImportedTurn("agent" if n % 2 else "user", text, at + timedelta(minutes=n), f"{session}:{n}")
        for n, text in enumerate((*HELLO, *said))
    )
    await record_session(memory, ImportedSession(session, turns, "import:test", title=session, project=project))


async def extract_both(memory: Memory, clock: Clock) -> None:
    """Two conversations; the second one settles items of the first."""
    await talk(memory, clock, "first", 0, *FIRST)
    await talk(memory, clock, "second", 2, *SECOND)
    await extract(memory)


def section(memory: Memory, title: str, page: str = PAGE) -> list[str]:
    """Returns the lines under a heading, without their dates and sources."""
    after = memory.files.read_text(page).partition(f"## {title}\n")[2].partition("\n## ")[0]
    return [row.partition(": ")[2].partition(" [src:")[0] for row in after.splitlines() if row.strip()]


def snapshot(memory: Memory) -> dict[str, bytes]:
    return dict(memory.files.contents("knowledge"))


async def test_a_page_lists_current_and_settled_items(memory: Memory, clock: Clock) -> None:
    await talk(memory, clock, "first", 0, *FIRST)
    await extract(memory)
    backup = f"{PROPOSAL} (amended: Yes, with one change: 30 copies.)"
    assert section(memory, "Key Decisions") == [backup, VAULT]
    assert section(memory, "Rules") == [RULE]
    assert section(memory, "Open items") == [BERTH]
    await talk(memory, clock, "second", 2, *SECOND)
    await extract(memory)
    assert section(memory, "Key Decisions") == [backup, JWT]
    (replaced,) = section(memory, "Replaced decisions")
    assert replaced.startswith(f"{VAULT} (replaced ")
    text = memory.files.read_text(PAGE)
    (row,) = [row for row in text.splitlines() if VAULT in row]
    assert " [src: 8](/raw/conversations/2026/01/27/1845-first-first.md) [src: " in row, "the turn that proposed it"
    assert row.endswith(" [src: 3](/raw/conversations/2026/01/29/1845-second-second.md)"), "the turn that replaced it"
    assert "## Open items" not in text, "its only line is closed"
    assert section(memory, "Closed items")[0].startswith(f"{BERTH} (done ")


async def test_extracting_again_changes_no_byte_also_with_more_conversations_than_a_batch(
    memory: Memory, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcp_server.knowledge.extract.BATCH", 1)  # what replaces what lies in two batches
    await talk(memory, clock, "first", 0, *FIRST)
    await talk(memory, clock, "second", 2, *SECOND)
    await talk(memory, clock, "third", 3, BACK, "OK")
    await extract(memory)
    before = snapshot(memory)
    assert (await extract(memory)).files == {}
    assert (await extract(memory, anew=True)).files == {}
    assert snapshot(memory) == before


async def test_items_are_open_and_in_force_again_if_the_conversation_that_settled_them_is_forgotten(
    memory: Memory, clock: Clock
) -> None:
    await extract_both(memory, clock)
    assert VAULT not in section(memory, "Key Decisions")
    await forget(memory, ForgetTarget(session="second"))
    assert VAULT in section(memory, "Key Decisions")
    assert section(memory, "Open items") == [BERTH]
    assert "second" not in memory.files.read_text(PAGE)
    await extract(memory, anew=True)
    assert VAULT in section(memory, "Key Decisions")


async def test_a_line_with_a_forgotten_word_stays_when_its_conversation_is_read_again(
    memory: Memory, clock: Clock
) -> None:
    await extract_both(memory, clock)
    for word in ("English", "Vault"):
        await forget(memory, ForgetTarget(text=word))
    before = memory.files.read_text(PAGE)
    assert section(memory, "Rules") == [RULE.replace("English", "[forgotten]")]
    assert section(memory, "Key Decisions")[-1] == JWT.replace("Vault", "[forgotten]")
    assert section(memory, "Replaced decisions")[0].startswith(VAULT.replace("Vault", "[forgotten]"))
    await extract(memory, anew=True)
    after = memory.files.read_text(PAGE)
    assert [row for row in after.splitlines() if row.startswith("- ")] == [
        row for row in before.splitlines() if row.startswith("- ")
    ]
    await extract(memory, anew=True)
    assert memory.files.read_text(PAGE) == after


@pytest.mark.parametrize("new", ["Tokens.", None])
async def test_a_line_that_was_moved_or_reworded_stays_so_and_what_it_replaced_stays_replaced(
    memory: Memory, clock: Clock, new: str | None
) -> None:
    await extract_both(memory, clock)
    backup, before = section(memory, "Key Decisions")[0], section(memory, "Replaced decisions")
    (line,) = [one for one in await review.unreviewed(memory) if one.entry.said == JWT]
    await (review.move(memory, line, "Facts") if new is None else review.correct(memory, line, new))
    for _ in range(2):
        await extract(memory, anew=True)
        assert section(memory, "Key Decisions") == ([backup, "Tokens."] if new else [backup])
        assert (JWT in section(memory, "Facts")) is (new is None)
        assert section(memory, "Replaced decisions") == before
    assert section(memory, "Corrected", archived_path(PAGE)) == [JWT]


async def test_the_state_of_a_page_and_the_core_memory_no_longer_quote_a_line_that_was_removed(
    memory: Memory, clock: Clock
) -> None:
    await talk(memory, clock, "first", 0, *FIRST)
    await extract(memory)
    (line,) = [one for one in await review.unreviewed(memory) if one.entry.said == VAULT]
    assert all("AppRole" in memory.files.read_text(path) for path in (PAGE, MEMORY))
    await review.remove(memory, line)
    assert not any("AppRole" in memory.files.read_text(path) for path in (PAGE, MEMORY))
    assert "> - Last decision: I'd run the backup" in memory.files.read_text(PAGE)


async def test_hand_written_lines_among_derived_ones_keep_their_places(memory: Memory, clock: Clock) -> None:
    await extract_both(memory, clock)
    rows: list[str] = []
    for row in memory.files.read_text(PAGE).splitlines():
        rows += [row, f"- Mine, below line {len(rows)}."] if row.startswith("- ") else [row]
    before = "\n".join(rows) + "\n"
    memory.files.write_atomic(PAGE, before)
    await extract(memory, anew=True)
    assert memory.files.read_text(PAGE) == before
    await talk(memory, clock, "third", 1, "Decision: the invoices are kept as PDF files", "Noted.")
    await extract(memory)
    added = [row for row in memory.files.read_text(PAGE).splitlines() if row not in rows]
    assert [row for row in memory.files.read_text(PAGE).splitlines() if row not in added] == rows
    assert [row[2:12] for row in added if row.startswith("- ")] == ["2026-01-28"]


async def test_every_context_of_the_project_shows_current_items_and_no_replaced_ones(
    memory: Memory, clock: Clock
) -> None:
    await talk(memory, clock, "first", 0, *FIRST)
    await talk(memory, clock, "second", 2, *SECOND)
    await talk(
        memory, clock, "other", 3, "Rule: dates are ISO dates, always", "ok", "TODO: buy new oars", "ok", project=None
    )
    await extract(memory)
    text = (await compile_context(memory, CompileRequest("set up the ci job", project="atlas"), Caller())).text
    assert f"Rules:\n- dates are ISO dates, always\n- {RULE}\n" in text
    assert f"- {JWT}" in text
    assert VAULT not in text
    assert BERTH not in text
    assert "oars" not in text, "an open item of no project"
    assert "oars" in (await compile_context(memory, CompileRequest("set up the ci job"), Caller())).text


async def test_docs_and_tests_for_the_parser_are_two_open_items(memory: Memory, clock: Clock) -> None:
    docs, tests = "we still need to write docs for the parser", "and someone has to write tests for the parser"
    await talk(memory, clock, "first", 0, docs, "ok", tests, "Noted.", "what does the lexer return?", "A list.")
    await extract(memory)
    assert section(memory, "Open items") == [docs, "Someone has to write tests for the parser"]
    await talk(memory, clock, "second", 2, "- [x] write tests for the parser", "Great.")
    await extract(memory)
    assert section(memory, "Open items") == [docs]
    assert section(memory, "Closed items")[0].startswith("Someone has to write tests for the parser")


@pytest.mark.parametrize(
    ("answer", "is_used"),
    [
        ({"drop": ["i4"], "add": [{"kind": "fact", "turn": 16, "quote": "It writes a CSV file."}]}, True),
        ("Looks fine to me!", False),
        (LlmUnavailable("cap"), False),
    ],
)
async def test_an_llm_reviews_the_items_and_an_unusable_answer_changes_nothing(
    place: Path | str, clock: Clock, answer: object, is_used: bool
) -> None:
    said = answer if isinstance(answer, str | Exception) else json.dumps(answer)
    llm = FakeLlm([said])
    async with open_memory(place, KEYWORDS_ONLY, clock=clock, llm=llm) as memory:
        await talk(memory, clock, "first", 0, *FIRST)
        await extract(memory)
        assert [purpose for purpose, _ in llm.asked] == ["review"]
        assert section(memory, "Key Decisions") == [f"{PROPOSAL} (amended: Yes, with one change: 30 copies.)", VAULT]
        assert section(memory, "Rules") == [RULE]
        assert section(memory, "Open items") == ([] if is_used else [BERTH])
        assert ("It writes a CSV file." in section(memory, "Facts")) == is_used


async def test_an_llm_says_what_a_later_decision_replaced(place: Path | str, clock: Clock) -> None:
    settle = json.dumps({"settle": [{"id": "i2", "by": "i4"}]})
    other = "Decision: the invoices are kept as PDF files"
    async with open_memory(place, KEYWORDS_ONLY, clock=clock, llm=FakeLlm([settle])) as memory:
        await talk(memory, clock, "first", 0, *FIRST[:10], other, "Noted.")
        await extract(memory)
        assert section(memory, "Replaced decisions")[0].startswith(f"{VAULT} (replaced 2026-01-27)")
        before = memory.files.read_text(PAGE)
        await extract(replace(memory, llm=FakeLlm()), anew=True)
        assert memory.files.read_text(PAGE) == before, "an LLM that does not answer takes nothing back"


async def test_a_serving_process_reads_once_more_what_older_rules_extracted(memory: Memory, clock: Clock) -> None:
    await extract_both(memory, clock)
    expected = memory.files.read_text(PAGE).partition("\n---\n")[2]
    old: dict[str, str] = {}
    for number, path in enumerate(sorted(memory.transcripts.all())):
        old[path] = f"decisions 2, facts 1, journal 3, lessons 2, people 9, procedures 1; {number} turns"
        await memory.state.put(EXTRACTED, path, old[path])
    wrong = f"- 2026-01-27: and backups? [src: 3](/{min(old)})"
    older = f"# atlas\n\n## Key Decisions\n{wrong}\n\n## Notes\n- mine\n"
    memory.files.write_atomic(PAGE, older)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(keep_extracted, memory)
        with anyio.fail_after(120):
            while await memory.state.entries(EXTRACTED) == old or await waiting_conversations(memory):  # noqa: ASYNC110
                await anyio.sleep(0.05)
        tasks.cancel_scope.cancel()
    text = memory.files.read_text(PAGE)
    assert wrong not in text
    assert "- mine" in text
    rows = [row for row in expected.splitlines() if "[src:" in row]
    assert sorted(row for row in text.splitlines() if "[src:" in row) == sorted(rows)
    assert await queue_outdated(memory) == 0
    assert (await extract(memory)).read == 0
