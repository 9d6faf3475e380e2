"""The conversation before, for who asks to go on: title, date, and its last exchanges in short."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mcp_server.context import windows
from mcp_server.context.compiler import compile_inputs
from mcp_server.context.inputs import LastSession
from mcp_server.context.windows import Window
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.memory import Memory
from mcp_server.model import COMPACTION, Caller
from tests.conftest import Clock
from tests.context.states import inputs, tokens, turn

pytestmark = pytest.mark.anyio

LAST = LastSession(
    "raw/conversations/2026/05/01/0900-ses_old-tea.md",
    "Which tea --> to buy",
    "2026-05-01",
    (turn(1, "user", "Which tea shall I buy?"), turn(2, "agent", "Green tea, " + "very green, " * 400 + "from Uji.")),
)


def test_it_shows_title_date_and_the_last_turns_cut() -> None:
    text = compile_inputs(inputs(message="", budget=1200, last_session=LAST), tokens().count).text
    head, first, second = text.split("\n\n")[1].split("\n")
    assert head.startswith("<!-- last session: 2026-05-01 · Which tea --› to buy · read raw/conversations/")
    assert first == "user: Which tea shall I buy?"
    assert second.startswith("agent: Green tea, very green,")
    assert second.endswith("from Uji.")
    assert tokens().count(second) < 90


def test_the_newest_turns_come_in_first_when_room_is_short() -> None:
    many = LastSession(LAST.path, "Tea", LAST.day, tuple(turn(n, "user", f"Word {n} " * 30) for n in range(1, 20)))
    compiled = compile_inputs(inputs(message="", budget=600, last_session=many), tokens().count)
    assert compiled.tokens <= 600
    assert "Word 19" in compiled.text
    assert "Word 1 " not in compiled.text
    reasons = {one.reason for one in compiled.receipt.considered if one.slot == "last session"}
    assert reasons == {"said last", "older than what fits"}
    accounted = [one.turn for one in compiled.receipt.considered if one.slot == "last session"]
    assert accounted == list(range(19, 0, -1)), "each of them"


def test_what_a_program_wrote_under_the_users_name_is_not_told_as_the_users() -> None:
    said = turn(1, "user", "<system-reminder>It was decided to buy coffee.</system-reminder>")
    for more in ({"last_session": replace(LAST, turns=(said,))}, {"turns": (said,), "delivery": "replace"}):
        text = compile_inputs(inputs(message="", budget=1200, **more), tokens().count).text
        assert "decided to buy coffee" in text
        assert "user: " not in text


def test_without_room_for_its_label_it_is_left_out() -> None:
    far = replace(LAST, path=f"raw/conversations/{'a-long-name/' * 30}tea.md")
    compiled = compile_inputs(inputs(message="", budget=130, last_session=far), tokens().count)
    assert "last session" not in compiled.text
    assert not any(one.included for one in compiled.receipt.considered)


HELD = Window(frozenset({"0123456789ab"}), brief=True, checkpoint="cp_1")


async def say(memory: Memory, role: str, text: str, name: str | None = None) -> None:
    await observe(memory, NewTurn(role, text, "s", name=name), Caller())


async def test_what_was_sent_is_known_after_it_was_kept(memory: Memory) -> None:
    assert await windows.window_of(memory, "s") == Window()
    await windows.keep(memory, "s", HELD)
    assert await windows.window_of(memory, "s") == replace(HELD, at=memory.clock().isoformat())
    assert await windows.window_of(memory, "beside") == Window()


async def test_a_compaction_of_which_the_client_tells_empties_it_once(memory: Memory) -> None:
    await say(memory, "user", "The hull is green.")
    await windows.keep(memory, "s", HELD)
    await windows.compacted(memory, "s")
    assert (await windows.window_of(memory, "s")).lines, "it had not begun to compact"

    await windows.compacting(memory, "s")
    await windows.compacted(memory, "s")
    emptied = await windows.window_of(memory, "s")
    assert (emptied.lines, emptied.brief, emptied.checkpoint) == (frozenset(), False, "")

    await windows.keep(memory, "s", replace(emptied, lines=HELD.lines))
    await say(memory, "system", "compacted", COMPACTION)  # its turn is recorded later
    assert windows.window_from(await windows.window_of(memory, "s"), 2).lines == HELD.lines


async def test_a_compaction_of_which_only_the_transcript_tells_empties_it_too(memory: Memory) -> None:
    await windows.keep(memory, "s", HELD)
    window = await windows.window_of(memory, "s")
    assert windows.window_from(window, None).lines == HELD.lines
    assert windows.window_from(window, 2) == Window(start=2, at=memory.clock().isoformat())


async def test_windows_are_forgotten_after_two_months(memory: Memory, clock: Clock) -> None:
    await windows.keep(memory, "old", HELD)
    clock.forward(days=59)
    await windows.keep(memory, "new", HELD)
    clock.forward(days=2)
    assert await windows.forget_old(memory) == 1
    assert not (await windows.window_of(memory, "old")).brief
    assert (await windows.window_of(memory, "new")).brief
