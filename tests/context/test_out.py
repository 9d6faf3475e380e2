"""What is no longer so, and what is another project's, is not pushed into a prompt; the log says why."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_server.context.push import for_prompt
from mcp_server.context.windows import PUSHED
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.memory import Memory
from mcp_server.model import Caller
from mcp_server.storage import logs

pytestmark = pytest.mark.anyio
CALLER = Caller(explicit_sessions=True)
SRC = "[src: raw/conversations/2026/02/16/1845-s-talk.md#1]"
OLD = f"- 2026-02-10: Scans older than 14 days can be dropped from the lantern archive. {SRC}"
NEW = f"- 2026-02-11: The legal team wants scans in the lantern archive kept 30 days instead of 14. {SRC}"


@pytest.fixture
async def lantern(memory: Memory) -> Memory:
    """A memory of two projects; `s` works on lantern."""
    for session, project in (("s", "lantern"), ("other", "harbor")):
        await observe(memory, NewTurn("user", "We begin.", session, project=project), CALLER)
    return memory


async def asked(memory: Memory, prompt: str) -> tuple[str, dict[str, Any]]:
    """What is pushed, and what the log says of each passage by its id."""
    said = await for_prompt(memory, "s", prompt, CALLER)
    (newest, *_) = logs.newest_first(memory.files, PUSHED)
    return said.text, {one["id"]: one for one in newest["considered"]}


async def test_a_line_that_a_newer_one_takes_back_is_not_pushed(lantern: Memory) -> None:
    lantern.files.write_atomic("knowledge/projects/lantern/notes.md", f"# lantern\n\n## Facts\n{OLD}\n{NEW}\n")
    await lantern.index.refresh()
    text, considered = await asked(lantern, "When can old scans be dropped from the lantern archive?")
    assert "14 days can" not in text
    assert "30 days instead" in text
    old = considered["knowledge/projects/lantern/notes.md:4-4"]
    assert (old["included"], old["reason"]) == (False, "no longer so: a newer line says otherwise")


async def test_the_turn_of_a_replaced_line_is_not_pushed_and_the_turn_that_replaced_it_is(lantern: Memory) -> None:
    old, new = (
        "The lantern archive moves on 16 January, it is decided.",
        "The lantern archive moves on 23 January, then.",
    )
    for number, said in enumerate((old, new)):
        await observe(lantern, NewTurn("user", said, f"t{number}", project="lantern"), CALLER)
    first, second = (f"[src: {path}#1]" for path in sorted(row.path for row in await lantern.state.sessions())[-2:])
    rows = f"## Replaced decisions\n\n- 2026-02-10: {old} (replaced 2026-02-12) {first} {second}\n"
    lantern.files.write_atomic("knowledge/projects/lantern/context.md", f"# lantern\n\n{rows}")
    await lantern.index.refresh()
    text, _ = await asked(lantern, "When does the lantern archive move in January?")
    assert "16 January" not in text
    assert "23 January" in text


async def test_a_proposal_that_the_user_changed_is_not_pushed_without_the_change(lantern: Memory) -> None:
    proposal, answer = "I'd keep scans of the lantern archive for 30 days.", "fine, but make it 45 days"
    await observe(lantern, NewTurn("agent", proposal, "t", project="lantern"), CALLER)
    await observe(lantern, NewTurn("user", answer, "t", project="lantern"), CALLER)
    path = next(row.path for row in await lantern.state.sessions() if row.session == "t")
    rows = f"## Key Decisions\n\n- 2026-02-10: {proposal} (amended: {answer}) [src: {path}#1]\n"
    lantern.files.write_atomic("knowledge/projects/lantern/context.md", f"# lantern\n\n{rows}")
    await lantern.index.refresh()
    text, considered = await asked(lantern, "How many days do we keep scans of the lantern archive?")
    assert "(amended: fine, but make it 45 days)" in text
    assert f"agent: {proposal}" not in text
    reasons = {one["reason"] for one in considered.values()}
    assert "it was changed: a line of the page says how" in reasons


async def test_a_line_that_was_perhaps_changed_comes_with_the_newer_line(lantern: Memory) -> None:
    old, new = "The lantern archive is scanned by Orla in Riga, 40 boxes a week.", "Orla is away until spring."
    for text in (old, new):
        await observe(lantern, NewTurn("user", text, "t", project="lantern"), CALLER)
    path = next(row.path for row in await lantern.state.sessions() if row.session == "t")
    noted = f"- 2026-02-10: {old} (perhaps changed 2026-02-12) [src: {path}#1] [src: {path}#2]"
    rows = f"## Key Decisions\n\n{noted}\n- 2026-02-12: {new} [src: {path}#2]\n"
    lantern.files.write_atomic("knowledge/projects/lantern/context.md", f"# lantern\n\n{rows}")
    await lantern.index.refresh()
    text, _ = await asked(lantern, "Who scans the lantern archive, and how many boxes a week?")
    assert f"{old} (perhaps changed 2026-02-12)" in text
    assert new in text
    assert f"user: {old}" not in text


async def test_a_journals_line_of_another_project_is_not_pushed(lantern: Memory) -> None:
    rows = [
        f"- The crane drivers of the quay want earlier shifts in winter. {SRC}",
        "- by hand: tea for the crane drivers",
    ]
    lines = ["## 2025-11-09", "", "### harbor", *rows]
    lantern.files.write_atomic("knowledge/journal/2025-11-09.md", "\n".join(lines) + "\n")
    await lantern.index.refresh()
    text, considered = await asked(lantern, "What do the crane drivers want in winter?")
    assert "earlier shifts" not in text
    assert considered["knowledge/journal/2025-11-09.md:4-4"]["reason"] == "another project's: harbor"


async def test_an_earlier_request_about_the_subject_is_not_pushed(lantern: Memory) -> None:
    said = "The Riga scanner reads the lantern scans at 600 dpi since the repair."
    turns = [
        NewTurn("user", text, "t", project="lantern") for text in (said, "add a price column for the lantern scans")
    ]
    for turn in turns:
        await observe(lantern, turn, CALLER)
    await lantern.index.refresh()
    text, considered = await asked(lantern, "How many dpi do the lantern scans of the Riga scanner have?")
    assert "600 dpi" in text
    assert "price column" not in text
    assert "a question or a task, which states nothing" in {one["reason"] for one in considered.values()}


async def test_the_log_of_an_empty_memory_says_that_nothing_in_it_is_about_the_prompt(lantern: Memory) -> None:
    await lantern.index.refresh()
    said = await for_prompt(lantern, "s", "Which name and which timezone do I have, and what do I work on?", CALLER)
    assert (said.text, said.why) == ("", "nothing in this memory is about the prompt")
