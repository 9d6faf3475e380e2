"""Decisions, rules and open items of conversations on the page of their project."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from mcp_server.actions.compile import CompileRequest, compile_context
from mcp_server.actions.forgetting.forget import forget
from mcp_server.actions.forgetting.forget_target import ForgetTarget
from mcp_server.actions.imports import ImportedSession, ImportedTurn, record_session
from mcp_server.actions.lifecycle.extract import extract
from mcp_server.core.model import Caller
from mcp_server.memory import Memory
from tests.conftest import Clock
from tests.core.understanding.talks import BERTH, BERTH_DONE, HELLO, PROPOSAL

pytestmark = pytest.mark.anyio
PAGE = "knowledge/projects/atlas/context.md"
RULE = "From here on write all commit messages in English."
VAULT = "I'd keep them in Vault with the AppRole login, one role per service."
JWT = "change of plan: no AppRole login in Vault after all, we use the JWT login instead"

FIRST = (
    "and backups?",
    f"{PROPOSAL} OK?",
    "Yes, with one change: 30 copies.",
    "Set up that way.",
    "where do secrets live?",
    VAULT,
    "yes please",
    "Done.",
    RULE,
    "Understood, noted.",
    BERTH,
    "OK, I'll keep that in mind.",
    "how does the export work?",
    "It writes a CSV file.",
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


def section(memory: Memory, title: str, page: str = PAGE) -> list[str]:
    """Returns the lines under a heading, without their dates and sources."""
    after = memory.files.read_text(page).partition(f"## {title}\n")[2].partition("\n## ")[0]
    return [row.partition(": ")[2].partition(" [src:")[0] for row in after.splitlines() if row.strip()]


def snapshot(workspace: Path) -> dict[str, bytes]:
    return {path.as_posix(): path.read_bytes() for path in (workspace / "knowledge").rglob("*.md")}


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
    assert "-first.md#8] [src: raw/conversations/" in row, "the turn that proposed it"
    assert row.endswith("-second.md#3]"), "the turn that replaced it"
    assert section(memory, "Open items") == []
    assert section(memory, "Closed items")[0].startswith(f"{BERTH} (done ")


async def test_extracting_again_changes_no_byte(memory: Memory, clock: Clock, workspace: Path) -> None:
    await talk(memory, clock, "first", 0, *FIRST)
    await extract(memory)
    await talk(memory, clock, "second", 2, *SECOND)
    await extract(memory)
    before = snapshot(workspace)
    assert (await extract(memory)).files == {}
    assert (await extract(memory, anew=True)).files == {}
    assert snapshot(workspace) == before


async def test_items_are_open_and_in_force_again_if_the_conversation_that_settled_them_is_forgotten(
    memory: Memory, clock: Clock
) -> None:
    await talk(memory, clock, "first", 0, *FIRST)
    await talk(memory, clock, "second", 2, *SECOND)
    await extract(memory)
    assert VAULT not in section(memory, "Key Decisions")
    await forget(memory, ForgetTarget(session="second"))
    assert VAULT in section(memory, "Key Decisions")
    assert section(memory, "Open items") == [BERTH]
    assert "second" not in memory.files.read_text(PAGE)
    await extract(memory, anew=True)
    assert VAULT in section(memory, "Key Decisions")


async def test_hand_written_lines_of_a_page_survive(memory: Memory, clock: Clock) -> None:
    own = (
        "# Atlas\n\nOur backend.\n\n## Key Decisions\n\n- no microservices, ever\n\n## Notes\n- Bo knows the cluster\n"
    )
    memory.files.write_atomic(PAGE, own)
    await talk(memory, clock, "first", 0, *FIRST)
    await talk(memory, clock, "second", 2, *SECOND)
    await extract(memory)
    await extract(memory, anew=True)
    kept = [row for row in memory.files.read_text(PAGE).splitlines() if row in own.splitlines()]
    assert [row for row in kept if row] == [row for row in own.splitlines() if row]


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
    assert section(memory, "Open items") == [docs, tests]
    await talk(memory, clock, "second", 2, "- [x] write tests for the parser", "Great.")
    await extract(memory)
    assert section(memory, "Open items") == [docs]
    assert section(memory, "Closed items")[0].startswith(tests)
