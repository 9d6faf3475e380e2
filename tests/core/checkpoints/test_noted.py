"""What is noted of a conversation while it is said (S3 "Issue 1", "Issue 4", "Improvement 6")."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.core.checkpoints.noted import MOST_FILES, MOST_ITEMS, Noted, from_dict, noted
from mcp_server.core.model import COMPACTION, Role, ToolCall, Turn
from tests.core.checkpoints.injected import INJECTED, SEEDS

AT = datetime(2026, 2, 16, 18, 45, tzinfo=UTC)
LONG = "I looked at both stores.\n\nWe'll use SQLite for the index, because it is one file.\n\n" + "It is small. " * 40


def said(*messages: tuple[Role, str] | tuple[Role, str, tuple[ToolCall, ...]]) -> list[Turn]:
    return [
        Turn(number, message[0], message[1], AT, tool_calls=message[2] if len(message) > 2 else ())
        for number, message in enumerate(messages, start=1)
    ]


def test_a_confirmed_answer_leaves_its_decision() -> None:
    notes = noted(said(("user", "Which store?"), ("agent", LONG), ("user", "yes, do it")))
    assert notes.decisions == ("We'll use SQLite for the index, because it is one file.",)


@pytest.mark.parametrize(
    "reply", ["What about Postgres?", "yes, but use Postgres instead", "tell me more about it first"]
)
def test_without_a_yes_nothing_is_decided(reply: str) -> None:
    assert noted(said(("agent", LONG), ("user", reply), ("user", "ok"))).decisions == ()


def test_an_explicit_decision_counts_at_once_whoever_wrote_it() -> None:
    notes = noted(said(("user", "Decision: keep raw files for ever"), ("agent", "Going with two files for the cache")))
    assert notes.decisions == ("Decision: keep raw files for ever", "Going with two files for the cache")


@given(INJECTED)
def test_what_a_program_injects_neither_confirms_nor_stands_between(injected: str) -> None:
    notes = noted(said(("agent", LONG), ("user", injected), ("system", "ok"), ("user", "ok, do that")))
    assert len(notes.decisions) == 1
    injected_only = noted(said(("agent", LONG), ("user", injected), ("agent", injected)))
    assert (injected_only.decisions, injected_only.open_items) == ((), ())


def test_a_decision_that_was_changed_stands_once_in_its_last_words() -> None:
    notes = noted(
        said(
            ("user", "Decision: store ledger rows nightly"),
            ("user", "Decision: keep the raw files"),
            ("user", "Decision: store ledger rows hourly"),
            ("user", "Decision: keep the files"),
        )
    )
    assert notes.decisions == ("Decision: keep the raw files", "Decision: store ledger rows hourly")


def test_the_same_open_item_is_noted_once_and_closed_when_done() -> None:
    turns = said(("user", "TODO: send Grigorije a plan"), ("user", "I need to send him a plan"), ("agent", "ok"))
    assert noted(turns).open_items == ("send Grigorije a plan",)
    assert noted([*turns, *said(("agent", "- [x] send Grigorije the plan"))]).open_items == ()


def test_the_last_tool_call_and_the_files_that_were_touched_are_known() -> None:
    first = ToolCall("Read", "a.py", "ok", ("a.py", "b.py"))
    last = ToolCall("Bash", "pytest", "3 passed", ("a.py",))
    notes = noted(said(("agent", "", (first, last)), ("user", "thanks"), ("agent", "bye")))
    assert notes.last_tool_call == last
    assert notes.files == ("b.py", "a.py"), "the one touched last stands last"


def test_of_many_the_newest_are_kept() -> None:
    calls = tuple(ToolCall("Read", f"{n}", "", (f"{n}.py",)) for n in range(MOST_FILES + 5))
    items = "\n".join(f"- [ ] {word}{n} matters" for n, word in enumerate(("alpha", "beta") * MOST_ITEMS))
    notes = noted(said(("agent", items, calls)))
    assert notes.files == tuple(f"{n}.py" for n in range(5, MOST_FILES + 5))
    assert len(notes.open_items) == MOST_ITEMS
    assert notes.open_items[-1].startswith(f"beta{2 * MOST_ITEMS - 1}")


MESSAGES = st.sampled_from(
    [
        *("yes", "ok, do it", "no", "Decision: use two files here", "TODO: call Ana", "- [x] call Ana", "", LONG),
        "I need to call Ana tomorrow",
        *SEEDS[:2],
    ]
)
TURNS = st.lists(
    st.builds(
        lambda role, text, calls: (role, text, calls),
        st.sampled_from(["user", "agent", "system"]),
        MESSAGES,
        st.sampled_from([(), (ToolCall("Read", "a.py", "", ("a.py",)),)]),
    ),
    max_size=12,
)


@given(TURNS, st.integers(0, 12))
def test_it_makes_no_difference_how_the_turns_are_cut_into_pieces(messages: list[tuple[Role, str]], at: int) -> None:
    turns = said(*messages)
    stored = from_dict(noted(turns[:at]).as_dict())
    assert noted(turns[at:], stored) == noted(turns)


@pytest.mark.parametrize("stored", [None, 3, [], {}, {"turn": "x"}, {**Noted(3).as_dict(), "last_tool_call": ["a"]}])
def test_what_was_stored_broken_counts_as_nothing(stored: object) -> None:
    assert from_dict(stored) == Noted()


def test_a_compaction_of_the_client_changes_nothing_but_the_number() -> None:
    turns = [Turn(9, "system", "compacted", AT, name=COMPACTION)]
    assert noted(turns, Noted(8, ("Use two files",))) == Noted(9, ("Use two files",))
