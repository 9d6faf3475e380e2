"""After its window was emptied, a conversation's first contexts say where it stood."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.app import open_memory
from mcp_server.checkpoints import stored
from mcp_server.checkpoints.checkpoint import announced, summary
from mcp_server.checkpoints.stored import resume
from mcp_server.context.compile import CompileRequest, compile_context
from mcp_server.context.slots.checkpoint import EXCHANGES
from mcp_server.conversations.imports import ImportedSession, ImportedTurn, append_turns
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.errors import NotFound
from mcp_server.memory import Memory
from mcp_server.model import COMPACTION, Caller, Role, Turn
from tests.checkpoints.injected import INJECTED
from tests.conftest import Clock
from tests.pressing import SMALL, USER, errand

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("fast_notes")]

CALLER = Caller()
DECIDED = "- use two files for the cache"


async def say(memory: Memory, content: str, session: str = "s", **more: str) -> None:
    await observe(memory, NewTurn("user", content, session=session, **more), USER)  # type: ignore[arg-type]


async def text(memory: Memory, session: str = "s") -> str:
    return (await compile_context(memory, CompileRequest(session=session), CALLER)).text


async def compacted_by_the_client(memory: Memory, clock: Clock) -> None:
    await say(memory, f"Decision: {DECIDED.removeprefix('- ')}")
    boundary = ImportedTurn("system", "The client compacted its context.", clock(), turn_id="c1", name=COMPACTION)
    await append_turns(memory, ImportedSession("s", (boundary,), "import:claude-code"))


async def test_the_contexts_after_the_clients_compaction_say_it_and_later_ones_do_not(
    memory: Memory, clock: Clock
) -> None:
    await say(memory, "Hello")
    assert "<!-- checkpoint" not in await text(memory)
    await compacted_by_the_client(memory, clock)
    for number in range(EXCHANGES):
        await say(memory, f"And what about part {number}?")
        assert DECIDED in await text(memory)
    await say(memory, "And that?")
    assert "<!-- checkpoint" not in await text(memory)


async def test_what_was_settled_since_the_compaction_is_told_with_the_newest_checkpoint(
    memory: Memory, clock: Clock
) -> None:
    from mcp_server.checkpoints.checkpoint import make

    await compacted_by_the_client(memory, clock)
    await say(memory, "Decision: paint the fence green")
    made = await make(memory, "s", "asked")
    await say(memory, "And now?")
    shown = await text(memory)
    assert DECIDED in shown
    assert "- paint the fence green" in shown
    assert f"read checkpoints/s/{made.id}.md" in shown


@pytest.mark.parametrize("delivery", ["replace", "add"])
async def test_a_compaction_by_the_server_is_reported_for_replace_and_empties_no_window_for_add(
    place: Path | str, clock: Clock, delivery: str
) -> None:
    async with open_memory(place, SMALL, clock=clock) as memory:
        await say(memory, f"Decision: {DECIDED.removeprefix('- ')}", delivery=delivery)
        for number in range(1, 12):
            await say(memory, errand(number), delivery=delivery)
        assert {head.reason for head in await stored.listed(memory, "s")} == {"compaction"}
        assert (DECIDED in await text(memory)) is (delivery == "replace")
        assert ("<!-- checkpoint" in await text(memory)) is (delivery == "replace")


async def test_resuming_makes_what_was_said_before_missing_and_what_comes_present(memory: Memory) -> None:
    await say(memory, f"Decision: {DECIDED.removeprefix('- ')}")
    await say(memory, "The mooring at the north pier costs 340 euros a year.")
    await memory.index.refresh()
    await say(memory, "what does the mooring at the north pier cost?")
    assert "340 euros" not in await text(memory), "the client has it in its window"

    done = await resume(memory, "s", CALLER)
    assert DECIDED in done.compiled.text
    assert "340 euros" in done.compiled.text
    assert done.compiled.receipt.delivery == "replace"
    assert not done.earlier
    assert (await resume(memory, "s", CALLER)).checkpoint.id == done.checkpoint.id, "nothing was said since"

    await say(memory, "so what does the mooring at the north pier cost?")
    await memory.index.refresh()
    shown = await text(memory)
    assert DECIDED in shown
    assert "340 euros" in shown, "a fresh window does not have it"


async def test_a_budget_holds_for_what_is_resumed(memory: Memory) -> None:
    for number in range(30):
        await say(memory, errand(number + 1))
    done = await resume(memory, "s", CALLER, budget=700)
    assert done.compiled.tokens <= 700
    assert "<!-- checkpoint" in done.compiled.text
    assert "Part 30: " in done.compiled.text, "what was said last"


async def test_what_is_not_there_cannot_be_resumed(memory: Memory) -> None:
    with pytest.raises(NotFound, match="no conversation to resume"):
        await resume(memory, None, CALLER)
    await say(memory, "Hello", session="kitchen")
    with pytest.raises(NotFound, match="did you mean 'kitchen'"):
        await resume(memory, "kitchem", CALLER)
    with pytest.raises(NotFound, match="no checkpoint"):
        await resume(memory, "ckp_nothing", CALLER)
    assert (await resume(memory, None, CALLER)).session == "kitchen"


START = datetime(2026, 3, 1, tzinfo=UTC)
LONG = "I'll use one SQLite file for the ledger.\n" + "It is one file and easy to copy. " * 15


def turn(number: int, role: Role, content: str, **more: Any) -> Turn:
    return Turn(number, role, content, START + timedelta(minutes=number), **more)


def talk(*said: str) -> list[Turn]:
    """Turns of user and agent in turn; "" leaves one out."""
    return [turn(n, "agent" if n % 2 == 0 else "user", text) for n, text in enumerate(said, start=1) if text]


def test_the_summary_has_the_first_message_and_the_last_request_in_few_words() -> None:
    turns = talk("My bakery needs an oven", "Which one?", "ok", "Fine.", "How hot must the oven be?", "230", "thanks")
    assert summary(turns) == "Began with: My bakery needs an oven\nLast asked: How hot must the oven be?"
    assert summary(talk("My bakery needs an oven")) == "Began with: My bakery needs an oven"
    assert summary(talk("ok")) == "Began with: ok", "there is nothing better"
    assert summary([turn(1, "agent", "Hello")]) == ""
    assert len(summary(talk("oven plan " * 100, "", "flour list " * 100))) <= 400


TURNS = st.lists(
    st.tuples(
        st.sampled_from(["user", "agent", "system"]),
        st.sampled_from(["yes", "How hot is the oven?", LONG, "Decision: keep rye bread", "ok", "I need a plan", ""]),
    ),
    max_size=12,
)


@given(TURNS, st.lists(st.tuples(st.integers(0, 12), INJECTED), min_size=1, max_size=4))
def test_what_is_injected_changes_nothing_of_the_summary(
    said: list[tuple[Role, str]], injected: list[tuple[int, str]]
) -> None:
    turns = [turn(number, role, text) for number, (role, text) in enumerate(said, start=1)]
    among = list(turns)
    for place, text in injected:
        among.insert(min(place, len(among)), turn(100 + place, "user", text))
    assert summary(among) == summary(turns)


def test_the_next_step_is_what_was_announced_last_by_the_user_if_possible() -> None:
    said: list[tuple[Role, str]] = [
        ("user", "Merged. Next we do the load test."),
        ("agent", "Done. Next steps: review of the role by Petar."),
        ("user", "Good. That's it, we go on tomorrow with the staging rollout."),
        ("agent", "See you tomorrow. What is the next step?"),
    ]
    turns = [turn(number, role, text) for number, (role, text) in enumerate(said, start=1)]
    assert announced(turns, ()) == "That's it, we go on tomorrow with the staging rollout."
    assert announced(turns[1:2], ()) == "Next steps: review of the role by Petar."


def test_without_an_announcement_an_open_item_that_is_one_is_the_next_step_else_there_is_none() -> None:
    turns = [turn(1, "user", "Thanks, that will do.")]
    items = ("Next step: book the hall", "Somebody has to check the cache, I doubt it.")
    assert announced(turns, items) == "Next step: book the hall"
    assert announced(turns, items[1:]) == ""
