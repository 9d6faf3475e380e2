"""What a conversation settles is on its project's page while it goes on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path

import anyio
import pytest

from mcp_server.app import open_memory
from mcp_server.checkpoints.checkpoint import make
from mcp_server.checkpoints.restore import restore
from mcp_server.context.push import IN_WINDOW, for_prompt, for_start
from mcp_server.conversations import sessions
from mcp_server.conversations.closed_sessions import LIVE_ITEMS, LIVE_PAGES
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.forgetting.forget import forget
from mcp_server.forgetting.target import ForgetTarget
from mcp_server.jobs.duties import concerns_live
from mcp_server.knowledge import derive, notes
from mcp_server.knowledge.extract import refresh
from mcp_server.knowledge.writing import write_lines
from mcp_server.memory import Memory
from mcp_server.model import Caller
from mcp_server.storage.values import Change
from mcp_server.text.entries import Line
from tests.conftest import KEYWORDS_ONLY, Clock, copied
from tests.knowledge.test_extract import end
from tests.knowledge.test_items import FIRST, JWT, PAGE, RULE, SECOND, VAULT, section, snapshot
from tests.preloaded import python
from tests.understanding.talks import BERTH, HELLO, PROPOSAL

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("fast_notes")]


async def say(memory: Memory, clock: Clock, session: str, *said: str, start: int = 0) -> None:
    """Records turns of user and agent in turn; `start` is the number of the first one."""
    for number, text in enumerate(said, start):
        clock.forward(seconds=60)
        turn = NewTurn("agent" if number % 2 else "user", text, session=session, at=clock.now, project="atlas")
        await observe(memory, turn, Caller())


@asynccontextmanager
async def another(root: Path, new_workspace: Path, clock: Clock) -> AsyncIterator[Memory]:
    copied(new_workspace, root)
    async with open_memory(root, KEYWORDS_ONLY, clock=clock) as opened:
        yield opened


async def show_what_the_end_does_not_find(memory: Memory, session: str) -> None:
    row = await memory.state.session(session)
    assert row is not None
    text = "scratch the AppRole login for Vault, we switch to paper instead"
    line = Line("decision", text, "2026-02-16", 3, row.path, said="2026-02-16", project="atlas", changes=0.9)
    await write_lines(memory, (), live={row.path: {"turn": row.turns, "lines": [asdict(line)]}})
    assert text in memory.files.read_text(PAGE)


async def test_an_item_is_on_the_page_when_its_exchange_is_over(memory: Memory, clock: Clock) -> None:
    await say(memory, clock, "first", *HELLO, BERTH)
    await refresh(memory)
    assert not memory.files.exists(PAGE), "the agent has not answered yet"
    await say(memory, clock, "first", "OK, I'll keep that in mind.", start=3)
    assert await refresh(memory) == 1
    assert section(memory, "Open items") == [BERTH]
    assert await refresh(memory) == 0


async def test_a_proposal_waits_for_the_answer(memory: Memory, clock: Clock) -> None:
    await say(memory, clock, "first", *HELLO, "and backups?", PROPOSAL)
    await refresh(memory)
    assert not memory.files.exists(PAGE)
    await say(memory, clock, "first", "yes please", "Set up that way.", start=4)
    await refresh(memory)
    assert section(memory, "Key Decisions") == [PROPOSAL]


async def test_the_page_at_the_end_is_the_same_as_without_live_items(
    memory: Memory, clock: Clock, tmp_path: Path, new_workspace: Path
) -> None:
    start = clock.now
    pages = []
    async with another(tmp_path / "other", new_workspace, clock) as other:
        for one, is_live in ((memory, True), (other, False)):
            clock.now = start
            one.files.write_atomic(PAGE, "# Atlas\n\n## Key Decisions\n- 2026-01-01: no Redis\n\n## Notes\n- mine\n")
            for session, said in (("first", FIRST), ("second", SECOND)):
                for number, text in enumerate((*HELLO, *said)):
                    await say(one, clock, session, text, start=number)
                    if is_live:
                        await refresh(one)
                if is_live:
                    await show_what_the_end_does_not_find(one, session)
                await end(one, session)
            pages.append(one.files.read_text(PAGE))
            assert await refresh(one) == 0
    assert pages[0] == pages[1]
    assert "## Replaced decisions" in pages[0]


async def test_two_open_conversations_share_a_page_and_end_one_after_the_other(
    memory: Memory, clock: Clock, tmp_path: Path, new_workspace: Path
) -> None:
    start = clock.now
    pages = []
    async with another(tmp_path / "other", new_workspace, clock) as other:
        for one, is_live in ((memory, True), (other, False)):
            clock.now = start
            for number, text in enumerate((*HELLO, *FIRST)):
                await say(one, clock, "first", text, start=number)
                if number < len((*HELLO, *SECOND)):
                    await say(one, clock, "second", (*HELLO, *SECOND)[number], start=number)
                if is_live:
                    await refresh(one)
            for session in ("second", "first"):
                await end(one, session)
            pages.append(one.files.read_text(PAGE))
    assert pages[0] == pages[1]


async def test_a_live_line_that_somebody_deletes_or_moves_does_not_come_back(memory: Memory, clock: Clock) -> None:
    await say(memory, clock, "first", *HELLO, *FIRST)
    await refresh(memory)
    text = memory.files.read_text(PAGE)
    (rule,) = [row for row in text.splitlines() if RULE in row]
    (task,) = [row for row in text.splitlines() if BERTH in row]
    text = text.replace(f"{rule}\n", "").replace(f"{task}\n", "") + f"\n## Closed items\n{task}\n\n## Notes\n- mine\n"
    memory.files.write_atomic(PAGE, text)
    await say(memory, clock, "first", "Decision: dates are ISO dates", "Noted.", start=2 + len(FIRST))
    await refresh(memory)

    def check() -> None:
        assert section(memory, "Rules") == []
        assert section(memory, "Open items") == []
        assert section(memory, "Closed items") == [BERTH]
        assert "dates are ISO dates" in section(memory, "Key Decisions")
        assert VAULT in section(memory, "Key Decisions")
        assert memory.files.read_text(PAGE).count("- mine") == 1

    check()
    await end(memory, "first")
    check()


async def test_a_page_that_somebody_edits_is_settled_again_without_a_new_turn(memory: Memory, clock: Clock) -> None:
    await say(memory, clock, "first", *HELLO, *FIRST)
    await refresh(memory)
    text = memory.files.read_text(PAGE)
    (rule,) = [row for row in text.splitlines() if RULE in row]
    memory.files.write_atomic(PAGE, text.replace(f"{rule}\n", ""))
    assert concerns_live(Change("file", PAGE))
    await refresh(memory)
    stored = (await memory.state.entries(LIVE_PAGES))[PAGE]
    assert stored["shown"] == memory.files.read_text(PAGE)
    assert RULE in stored["gone"][0]["text"]
    assert section(memory, "Rules") == []


async def test_a_live_conversation_replaces_a_decision_and_what_it_settled_moves_back_if_it_is_forgotten(
    memory: Memory, clock: Clock
) -> None:
    await say(memory, clock, "first", *HELLO, *FIRST)
    await end(memory, "first")
    before = section(memory, "Key Decisions")
    clock.forward(hours=1)
    await say(memory, clock, "second", *HELLO, *SECOND)
    await refresh(memory)
    assert VAULT not in section(memory, "Key Decisions")
    assert JWT in section(memory, "Key Decisions")
    await forget(memory, ForgetTarget(session="second"))
    await refresh(memory)
    assert section(memory, "Key Decisions") == before
    assert section(memory, "Open items") == [BERTH]
    assert "second" not in memory.files.read_text(PAGE)
    assert not await memory.state.entries(LIVE_PAGES)
    assert JWT not in str(await memory.state.entries(LIVE_ITEMS))


async def test_two_processes_write_the_same_and_write_it_once(
    memory: Memory, clock: Clock, place: Path | str, new_id: Callable[[], str]
) -> None:
    async with open_memory(place, KEYWORDS_ONLY, clock=clock, new_id=new_id) as other:
        await say(memory, clock, "first", *HELLO, *FIRST)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(refresh, memory)
            tasks.start_soon(refresh, other)
        before = snapshot(memory)
        assert section(memory, "Open items") == [BERTH]
        clock.forward(seconds=5)
        assert [await refresh(other), await refresh(memory)] == [0, 0]
        assert snapshot(memory) == before


async def test_nothing_is_live_where_extraction_is_manual(
    place: Path | str, clock: Clock, new_id: Callable[[], str]
) -> None:
    manual = {**KEYWORDS_ONLY, "CONTEXT_MANAGER_LIFECYCLE__EXTRACTION_TRIGGER": "manual"}
    async with open_memory(place, manual, clock=clock, new_id=new_id) as memory:
        await say(memory, clock, "first", *HELLO, *FIRST)
        assert await refresh(memory) == 0
        assert not memory.files.exists(PAGE)


KILLED = """
import sys
from datetime import datetime
from pathlib import Path
import anyio
from mcp_server.knowledge.extract import extract_pending
from mcp_server.knowledge.extract import refresh
from mcp_server.app import open_memory
from mcp_server.storage.local import durable
from mcp_server.storage.local.state import LocalState
from mcp_server.understanding import encoder
from tests.killing import die_at

encoder.read = lambda messages: None  # as `fast_notes` does

async def main():
    now = datetime.fromisoformat(sys.argv[3])
    keywords_only = {"CONTEXT_MANAGER_SEARCH__EMBEDDER": "none"}
    async with open_memory(Path(sys.argv[1]), keywords_only, clock=lambda: now) as memory:
        die_at(int(sys.argv[2]), (durable, "put"), (LocalState, "put"), (LocalState, "remove"))
        await refresh(memory)
        await extract_pending(memory)

anyio.run(main)
"""


@pytest.mark.parametrize("ended", [False, True], ids=["open", "ended"])
@pytest.mark.folder_only
async def test_a_kill_at_any_step_changes_no_byte_of_the_result(
    new_workspace: Path, workspace: Path, clock: Clock, tmp_path: Path, ended: bool
) -> None:
    copied(new_workspace, workspace)
    own = "# Atlas\n\n## Key Decisions\n- by hand\n\n## Replaced decisions\n\n- old, by hand\n\n## Notes\n"

    async def finished(root: Path) -> str:
        async with open_memory(root, KEYWORDS_ONLY, clock=clock) as memory:
            await end(memory, "second")
            assert not await memory.state.entries(LIVE_PAGES)
            assert not await memory.state.entries(LIVE_ITEMS)
            return memory.files.read_text(PAGE)

    async with open_memory(workspace, KEYWORDS_ONLY, clock=clock) as memory:
        memory.files.write_atomic(PAGE, own)
        await say(memory, clock, "first", *HELLO, *FIRST)
        await end(memory, "first")
        await say(memory, clock, "second", *HELLO, *SECOND[:2])
        await refresh(memory)
        if ended:
            await say(memory, clock, "second", *SECOND[2:], start=4)
            await refresh(memory)
            shown = memory.files.read_text(PAGE)
            await sessions.end_session(memory, "second")
        else:
            shown = memory.files.read_text(PAGE)
            await say(memory, clock, "second", *SECOND[2:], start=4)
    copied(workspace, tmp_path / "reference")
    expected = await finished(tmp_path / "reference")
    killed = 0
    for step in range(1, 30):
        root = tmp_path / f"step-{step}"
        copied(workspace, root)
        done = await anyio.run_process(python("-c", KILLED, str(root), str(step), clock.now.isoformat()), check=False)
        assert done.returncode in (0, -9), done.stderr.decode()
        killed += done.returncode == -9
        assert (root / PAGE).read_text() in {shown, expected} or not ended
        assert await finished(root) == expected
        if done.returncode == 0:
            break
    assert killed >= 3


async def test_a_window_that_opens_right_after_an_exchange_is_told_what_it_settled(
    memory: Memory, clock: Clock, tmp_path: Path
) -> None:
    folder = tmp_path / "atlas"
    folder.mkdir()
    (folder / ".context-manager").write_text("atlas\n", "utf-8")
    await say(memory, clock, "first", *HELLO, BERTH, "OK, I'll keep that in mind.")
    begun = await for_start(memory, "second", "startup", Caller(folder=str(folder)))
    assert BERTH in begun.text


async def test_a_prompt_is_not_told_what_its_own_window_settled(memory: Memory, clock: Clock) -> None:
    await say(memory, clock, "first", *HELLO, *FIRST)
    await refresh(memory)
    await memory.index.refresh()
    prompt = "who is to be called about the winter berth?"
    own = await for_prompt(memory, "first", prompt, Caller())
    assert BERTH not in own.text
    assert IN_WINDOW in {one["reason"] for one in own.considered}
    await observe(memory, NewTurn("user", "hello", session="second", project="atlas"), Caller())
    assert BERTH in (await for_prompt(memory, "second", prompt, Caller())).text


async def test_a_resumed_window_is_not_told_what_its_earlier_parts_settled(memory: Memory, clock: Clock) -> None:
    await say(memory, clock, "first", *HELLO, *FIRST)
    await end(memory, "first")
    await say(memory, clock, "first", "good morning", "Good morning.")
    await memory.index.refresh()
    own = await for_prompt(memory, "first", "who is to be called about the winter berth?", Caller())
    assert BERTH not in own.text
    assert IN_WINDOW in {one["reason"] for one in own.considered}


async def test_the_oldest_items_of_a_long_conversation_stay_on_the_page(
    memory: Memory, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notes, "MAX_ITEMS", 2)
    monkeypatch.setattr(derive, "MAX_ITEMS", 2)
    rules = [
        "Rule: invoices are kept for a year",
        "Rule: dates are written as ISO dates",
        "Rule: never push to main on a Friday",
        "Rule: commit messages begin with a verb",
        "Rule: Ana approves every purchase",
    ]
    for number, rule in enumerate(rules):
        await say(memory, clock, "first", rule, "Noted.", start=2 * number)
        await refresh(memory)
    assert len(section(memory, "Rules")) == len(rules)


async def test_what_an_open_conversation_settled_is_shown_again_after_the_knowledge_went_back(
    memory: Memory, clock: Clock
) -> None:
    await say(memory, clock, "first", *HELLO, *FIRST)
    made = await make(memory, "first", "asked")
    await refresh(memory)
    assert section(memory, "Open items") == [BERTH]
    await restore(memory, made.id, Caller(), apply=True, knowledge=True)
    assert not memory.files.exists(PAGE), "as it was before the first refresh"
    await refresh(memory)
    assert section(memory, "Open items") == [BERTH]
