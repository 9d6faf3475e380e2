"""Prune: what would go is told in words, a dry run leaves every byte, and what goes can be brought back."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcp_server.app import open_memory
from mcp_server.conversations.observe import ContextChunk, NewTurn, observe
from mcp_server.conversations.sessions import end_session
from mcp_server.errors import Invalid, NotFound, Refused
from mcp_server.knowledge.anchor import anchor
from mcp_server.knowledge.prune_knowledge import Pruned
from mcp_server.memory import Memory
from mcp_server.model import Caller, Delivery, ToolCall
from mcp_server.pressure.advisor import STATES
from mcp_server.pressure.prune import last_session, prune
from tests.conftest import KEYWORDS_ONLY, Clock

pytestmark = pytest.mark.anyio

CALLER = Caller()
LIMIT = 2_000


async def converse(memory: Memory, delivery: Delivery = "replace") -> None:
    """A conversation at about a third of its limit, two hours old, with files, and its index."""
    clock = memory.clock
    assert isinstance(clock, Clock)
    loaded = (ContextChunk("file", "docs/old.txt", 60), ContextChunk("skill", "skills/oven", 40))
    await observe(memory, NewTurn("user", "We bake bread in the oven.", "s", delivery=delivery, chunks=loaded), CALLER)
    for number in range(8):
        call = ToolCall("Read", f"src/part{number}.py", "text " * 20, (f"src/part{number}.py",))
        words = f"Part {number} of the garden fence needs paint and new nails, the ladder is in the shed."
        await observe(memory, NewTurn("agent", words, "s", tool_calls=(call,)), CALLER)
    clock.forward(hours=2)
    await observe(memory, NewTurn("user", "How hot should the bread oven be for baking?", "s"), CALLER)
    await memory.index.refresh()


async def asked(memory: Memory, strategy: str, *, dry_run: bool = True, target: int | None = None) -> Pruned:
    return await prune(memory, strategy, "s", dry_run, CALLER, target=target)


async def test_compact_takes_what_matters_least_and_it_can_come_back(small: Memory) -> None:
    await converse(small)
    told = await asked(small, "compact", target=15)
    done = await asked(small, "compact", target=15, dry_run=False)
    assert [one.id for one in told.of_fate("gone")] == [one.id for one in done.of_fate("gone")]
    assert done.after is not None
    assert done.after <= LIMIT * 15 // 100
    assert done.after == await small.live.tokens("s")
    assert set(done.undo) == {record.chunk_id for record in small.cold.of("s")}
    assert any("among the newest" in one.why for one in done.of_fate("keep"))


async def test_compact_under_its_trigger_halves_what_is_live(small: Memory) -> None:
    await converse(small)
    done = await asked(small, "compact", dry_run=False)
    assert done.before is not None
    assert done.after is not None
    assert done.after <= done.before // 2


async def test_auto_under_the_trigger_takes_what_has_nothing_to_do_with_the_message(small: Memory) -> None:
    await converse(small)
    done = await asked(small, "auto", dry_run=False)
    assert any("bread oven" in one.what for one in done.of_fate("keep"))
    gone = [one for one in done.of_fate("gone") if "fence" in one.what]
    assert len(gone) >= 4
    assert all("score at or below 0.3" in one.why for one in gone)


async def test_auto_says_how_much_compacting_would_free_where_little_is_unrelated(small: Memory) -> None:
    await observe(small, NewTurn("user", "Which line of this log names the oven?", "s", delivery="replace"), CALLER)
    log = "\n".join(f"line {number} of the oven log" for number in range(100))
    await observe(small, NewTurn("user", log, "s"), CALLER)
    await small.index.refresh()
    auto, compact = await asked(small, "auto"), await asked(small, "compact")
    assert auto.before == auto.after
    assert compact.before is not None
    assert compact.after is not None
    assert f'strategy="compact" would free about {compact.before - compact.after:,} tokens' in auto.markdown


async def test_auto_names_what_other_strategies_would_find(small: Memory) -> None:
    await converse(small)
    memory_file(small, 190)
    assert 'strategy="memory" would take' in (await asked(small, "auto")).markdown


async def test_the_advisors_prune_goes_and_its_review_stays(small: Memory) -> None:
    await converse(small)
    told = await asked(small, "advisor")
    assert "of 30 points: unrelated to the prompt; 1 access" in told.markdown
    assert not {one.id for one in told.of_fate("gone")} & {"skill:oven"}
    done = await asked(small, "advisor", dry_run=False)
    cold = small.cold.of("s")
    assert {record.chunk_id for record in cold} == set(done.undo)
    assert {record.drop_reason for record in cold} == {"asked"}
    assert small.files.exists(f"{STATES}/s.json")
    assert len((await asked(small, "advisor")).fates) == len(told.fates) - len(done.of_fate("gone"))


async def test_the_advisor_leaves_what_is_anchored_and_what_came_with_something_that_stays(small: Memory) -> None:
    await converse(small)
    both = ToolCall("Read", "two files", "text " * 20, ("docs/oven.md", "docs/older.txt"))
    await observe(small, NewTurn("agent", "Read both.", "s", tool_calls=(both,)), CALLER)
    await anchor(small, "src/part0.py", True)
    clock = small.clock
    assert isinstance(clock, Clock)
    clock.forward(hours=9)
    fates = {one.id: one for one in (await asked(small, "advisor")).fates}
    assert fates["file:docs/oven.md"].fate == "keep"
    assert fates["file:docs/older.txt"].fate == "keep" or "which stays" in fates["file:docs/older.txt"].why
    assert "anchored" in fates["file:src/part0.py"].why or fates["file:src/part0.py"].fate == "keep"


async def test_clarity_says_which_items_leave_the_block(small: Memory) -> None:
    await converse(small)
    for number in range(30):
        await observe(small, NewTurn("user", f"Paint part {number} green, please, once more.", "s"), CALLER)
    told = await asked(small, "clarity")
    done = await asked(small, "clarity", dry_run=False)
    assert [one.id for one in told.of_fate("gone")] == [one.id for one in done.of_fate("gone")]
    assert "points" in told.markdown


@pytest.mark.parametrize("strategy", ["auto", "compact", "advisor"])
async def test_in_add_every_answer_says_that_it_is_our_mirror(small: Memory, strategy: str) -> None:
    await converse(small, "add")
    for dry_run in (True, False):
        text = (await asked(small, strategy, dry_run=dry_run)).markdown
        assert "our mirror" in text
        assert ("The context is not full yet" in text) is (strategy == "auto")
        assert "The client's own window still holds all of it" in text
        assert "/compact" in text


async def test_a_session_that_is_over_or_unknown_or_unnamed_is_said(small: Memory) -> None:
    await converse(small)
    with pytest.raises(NotFound, match="name a session"):
        await prune(small, "auto", None, True, CALLER)
    with pytest.raises(NotFound, match="no session"):
        await prune(small, "auto", "ss", True, CALLER)
    assert await last_session(small) == "s"
    await end_session(small, "s")
    with pytest.raises(Refused, match="has ended"):
        await asked(small, "compact")
    assert await last_session(small) is None


async def test_a_wrong_strategy_or_target_is_said(small: Memory) -> None:
    with pytest.raises(Invalid, match="did you mean 'compact'"):
        await asked(small, "compct")
    with pytest.raises(Invalid, match="takes no target"):
        await asked(small, "files", target=3)
    with pytest.raises(Invalid, match="percent"):
        await asked(small, "compact", target=300)


async def test_without_cold_storage_nothing_is_dropped(workspace: Path, clock: Clock) -> None:
    environ = KEYWORDS_ONLY | {"CONTEXT_MANAGER_CONTEXT__COLD_STORAGE_ENABLED": "false"}
    async with open_memory(workspace, environ, clock=clock) as memory:
        await converse(memory)
        with pytest.raises(Refused, match="cold_storage_enabled"):
            await asked(memory, "compact")


def knowledge(workspace: Path, path: str, text: str) -> None:
    """A file as somebody left it long ago."""
    import os

    file = workspace / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    os.utime(file, (1_600_000_000, 1_600_000_000))


def memory_file(memory: Memory, lines: int) -> None:
    """A MEMORY.md of so many lines, an entry a line."""
    head = "# Core Memory\n\n## Facts\n\n"
    body = "".join(f"- 2026-01-{1 + n % 28:02}: fact number {n}\n" for n in range(lines - 4))
    memory.files.write_atomic("knowledge/memory/MEMORY.md", head + body)
