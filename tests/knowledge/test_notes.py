"""Notes of a conversation: found turn by turn, stored in its pauses, and found again from the transcript alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_server.app import open_memory
from mcp_server.checkpoints.checkpoint import make
from mcp_server.conversations.imports import ImportedSession, ImportedTurn, append_turns, record_session
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.conversations.sessions import end_session
from mcp_server.errors import NotFound
from mcp_server.forgetting.forget import forget
from mcp_server.forgetting.target import ForgetTarget
from mcp_server.jobs.duties import keep_house
from mcp_server.knowledge import notes
from mcp_server.knowledge.extract import refresh
from mcp_server.knowledge.notes import (
    NAMESPACE,
    Noted,
    Outcome,
    Review,
    from_dict,
    items,
    keep,
    noted,
    notes_of,
    outcome,
    outcome_of,
)
from mcp_server.memory import Memory
from mcp_server.model import COMPACTION, Caller, Role, ToolCall, Turn
from mcp_server.understanding import encoder
from mcp_server.understanding.model import recognizer
from tests.checkpoints.injected import INJECTED, SEEDS
from tests.conftest import KEYWORDS_ONLY, Clock

pytestmark = pytest.mark.anyio
AT = datetime(2026, 2, 16, 18, 45, tzinfo=UTC)
PROPOSAL = "I compared both. I suggest SQLite for the ledger, because it is one file. Shall I do that?"
SAID = "I suggest SQLite for the ledger, because it is one file."


def said(*messages: tuple[Role, str] | tuple[Role, str, tuple[ToolCall, ...]]) -> list[Turn]:
    return [
        Turn(n, message[0], message[1], AT + timedelta(minutes=n), tool_calls=message[2] if len(message) > 2 else ())
        for n, message in enumerate(messages, start=1)
    ]


def came_to(turns: list[Turn]) -> Outcome:
    return outcome(noted(turns, recognizer()), recognizer())


def test_an_accepted_proposal_is_a_decision_and_the_proposing_turn_counts_as_settled() -> None:
    found = came_to(said(("user", "Which store shall the ledger have?"), ("agent", PROPOSAL), ("user", "yes, do it")))
    (decision,) = found.decisions
    assert SAID in decision


def test_a_labeled_decision_counts_at_once_for_any_author() -> None:
    found = came_to(said(("user", "Decision: keep raw files for ever"), ("agent", "**Decision**: the logo is blue")))
    assert found.decisions == ("keep raw files for ever", "the logo is blue")


def test_a_decision_that_a_rule_says_too_is_listed_once() -> None:
    found = came_to(
        said(("user", "Rule: stay on Python 3.11 in every image"), ("user", "Decision: stay on Python 3.11"))
    )
    assert found.rules == ("stay on Python 3.11 in every image",)
    assert found.decisions == ()


JARS = (
    "There are two ways.\n\n1. Paper labels from the copy shop.\n2. Engraved lids from the smith in Rijeka.\n\n"
    "I'd take the engraved lids, they survive the wash. Would you like a drawing of them first?"
)


def test_sentences_that_no_item_quotes_are_noted_if_they_may_state_a_decision() -> None:
    notes = noted(
        said(
            ("user", "How shall we label the jars?"),
            ("agent", JARS),
            ("user", "Option 2, and the lids get a number each. The paper ones come off anyway."),
            ("agent", "I ordered forty lids with numbers 1 to 40. The invoice goes to the cooperative."),
            ("user", "Good. Perhaps the old jars go to the lower meadow."),
            ("agent", "All right."),
            *((role, "fine") for role in ("user", "agent", "user", "agent")),
        ),
        recognizer(),
    )
    found = [one.text for one in notes.likely]
    assert "Perhaps the old jars go to the lower meadow." in found
    assert not any("Paper" in text or text.endswith("?") for text in found), "no options that were not chosen"
    assert not any(text in item.text for text in found for item in notes.items if item.kind != "report")
    assert from_dict(notes.as_dict()).likely == notes.likely


def test_small_talk_and_explanations_settle_nothing() -> None:
    talk = said(
        ("user", "hi, how are you today?"),
        ("agent", "Well, thank you. How can I help?"),
        ("user", "what does a mutex do?"),
        ("agent", "A mutex lets one thread at a time into a critical section. The others wait until it is free."),
        ("user", "I see, thanks a lot!"),
        ("agent", "You're welcome."),
    )
    assert came_to(talk) == Outcome()


def test_code_settles_nothing() -> None:
    code = "```\nDecision: keep SQLite\n- [ ] use a queue\nTODO: call Ana\n```"
    assert came_to(said(("user", "show me the file"), ("agent", code), ("user", "thanks"))) == Outcome()


@settings(max_examples=12, deadline=None)
@given(INJECTED)
def test_injected_messages_settle_nothing_and_do_not_separate_messages(injected: str) -> None:
    plain = said(("user", "Which store?"), ("agent", PROPOSAL), ("user", "ok, do that"))
    among = [*plain[:2], Turn(90, "user", injected, AT), Turn(91, "system", "ok", AT), plain[2]]
    (decision,) = came_to(plain).decisions
    assert SAID in decision
    assert came_to(among).decisions == (decision,)
    assert came_to(said(("agent", PROPOSAL), ("user", injected), ("agent", injected))).rules == ()
    assert not [item for item in items(noted(among, recognizer()), recognizer()) if item.turn >= 90]


def test_the_same_open_item_is_noted_once_and_closed_when_done() -> None:
    turns = said(
        ("user", "TODO: send Grigorije a plan"), ("user", "TODO: send a plan to Grigorije"), ("agent", "ok, noted")
    )
    assert came_to(turns).open_items == ("send a plan to Grigorije",)
    assert (
        came_to([*turns, Turn(4, "agent", "- [x] send Grigorije the plan", AT + timedelta(hours=1))]).open_items == ()
    )


def test_the_last_tool_call_and_the_files_that_were_touched_are_known() -> None:
    first = ToolCall("Read", "a.py", "ok", ("a.py", "b.py"))
    last = ToolCall("Bash", "pytest", "3 passed", ("a.py",))
    notes = noted(said(("agent", "", (first, last)), ("user", "thanks"), ("agent", "bye")), recognizer())
    assert notes.last_tool_call == last
    assert notes.files == ("b.py", "a.py"), "the one touched last is last"


def test_of_many_the_newest_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notes, "MAX_FILES", 10)
    monkeypatch.setattr(notes, "MAX_ITEMS", 20)
    calls = tuple(ToolCall("Read", f"{n}", "", (f"{n}.py",)) for n in range(15))
    todo = ["\n".join(f"- [ ] alpha{n} matters" for n in range(start, start + 15)) for start in (0, 15)]
    found = noted(said(("agent", todo[0], calls), ("agent", todo[1]), *(("user", "ok"),) * 3), recognizer())
    assert found.files == tuple(f"{n}.py" for n in range(5, 15))
    assert len(found.items) == 20
    assert found.items[-1].text == "alpha29 matters"


MESSAGES = st.sampled_from(
    [
        "yes",
        "ok, but keep 30 copies",
        "no, no Rust here. We stay with Python for the parser.",
        "take 2",
        "Let's use Postgres 16 for the billing service instead of MySQL.",
        "I'd run the backup of the ledger every night at 02:00 and keep the last 14 copies on the NAS. OK?",
        "1. Mail them as PDF every night\n2. Upload them to the storage bucket\n\nWhich one?",
        "From here on write all commit messages in English.",
        "I still have to call Ana about the winter berth.",
        "btw the berth thing with Ana is done, she signed",
        "Decision: use two files here",
        "- [x] call Ana about the berth",
        "x" * 9_000 + " we go with Postgres 16 for billing.",
        PROPOSAL,
        "",
        SEEDS[0],
    ]
)
TURNS = st.lists(
    st.tuples(
        st.sampled_from(["user", "agent", "user", "agent", "system"]),
        MESSAGES,
        st.sampled_from([(), (ToolCall("Read", "a.py", "", ("a.py",)),)]),
    ),
    max_size=14,
)


@settings(max_examples=20, deadline=None)
@given(TURNS, st.lists(st.integers(0, 14), max_size=5))
def test_reading_turn_by_turn_gives_the_same_as_reading_all_at_once(
    messages: list[tuple[Role, str, tuple[ToolCall, ...]]], cuts: list[int]
) -> None:
    turns = said(*messages)
    notes = Noted()
    for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(turns)], strict=True):
        notes = from_dict(noted(turns[start:end], recognizer(), notes).as_dict())
    whole = noted(turns, recognizer())
    assert notes == whole
    assert items(notes, recognizer()) == items(whole, recognizer())


def test_a_models_review_replaces_the_items_before_it() -> None:
    turns = said(("user", "Decision: keep raw files for ever"), ("user", "TODO: call Ana"), ("agent", "ok"))
    notes = noted(turns, recognizer())
    reviewed = Noted(
        **{**{name: getattr(notes, name) for name in notes.__slots__}, "review": Review(2, ("Keep raw",), ())}
    )
    later = noted([Turn(4, "user", "Decision: two caches", AT + timedelta(hours=1))], recognizer(), reviewed)
    found = outcome(later, recognizer())
    assert found.decisions == ("Keep raw", "two caches")
    assert found.open_items == ()


@pytest.mark.parametrize("stored", [None, 3, [], {}, {"turn": "x"}, {**Noted(3).as_dict(), "last_tool_call": ["a"]}])
def test_what_was_stored_broken_counts_as_nothing(stored: object) -> None:
    assert from_dict(stored) == Noted()


def test_a_compaction_of_the_client_changes_nothing_but_the_number() -> None:
    turns = [Turn(9, "system", "compacted", AT, name=COMPACTION)]
    assert noted(turns, recognizer(), Noted(8, files=("a.py",))) == Noted(9, files=("a.py",))


CALLER = Caller()
CALL = ToolCall("Bash", "pytest -q", "3 passed", ("tests/test_oven.py",))
ANSWER = "I suggest SQLite for the ledger, because it is one file. Shall I do that?"
DECISION = "I suggest SQLite for the ledger, because it is one file."


async def talk(memory: Memory, session: str = "s1") -> None:
    for role, content, calls in (
        ("user", "Which store shall the ledger have?", ()),
        ("agent", ANSWER, (CALL,)),
        ("user", "yes, do it", ()),
        ("user", "TODO: call Ana about the winter berth", ()),
    ):
        await observe(memory, NewTurn(role, content, session=session, tool_calls=calls), CALLER)


async def decisions(memory: Memory, session: str) -> tuple[str, ...]:
    return (await outcome_of(memory, await notes_of(memory, session))).decisions


async def assert_whole(memory: Memory, notes: Noted) -> None:
    outcome = await outcome_of(memory, notes)
    assert outcome.decisions == (DECISION,)
    assert outcome.open_items == ("call Ana about the winter berth",)
    assert notes.last_tool_call == CALL
    assert notes.files == ("tests/test_oven.py",)


async def test_notes_are_stored_in_a_pause_and_with_a_checkpoint(memory: Memory) -> None:
    await talk(memory)
    await assert_whole(memory, await notes_of(memory, "s1"))
    await refresh(memory)
    stored = await memory.state.get(NAMESPACE, "s1")
    assert stored["turn"] == 4
    assert from_dict(stored) == await notes_of(memory, "s1")
    await observe(memory, NewTurn("user", "thanks", session="s1"), CALLER)
    await make(memory, "s1", "asked")
    assert (await memory.state.get(NAMESPACE, "s1"))["turn"] == 5


async def test_notes_that_an_earlier_version_stored_are_the_same_notes(memory: Memory) -> None:
    await talk(memory)
    await keep(memory, "s1")
    stored = await memory.state.get(NAMESPACE, "s1")
    del stored["recent"]
    await memory.state.put(NAMESPACE, "s1", stored)
    await assert_whole(memory, await notes_of(memory, "s1"))


async def test_pairs_that_were_read_in_a_pause_are_not_read_again(memory: Memory) -> None:
    for content in (
        "Decision: we deploy every Friday",
        "ok",
        "Decision: we deploy on Tuesdays now, not on Fridays",
        "ok",
    ):
        await observe(memory, NewTurn("user", content, session="s1"), CALLER)
    await keep(memory, "s1")
    stored = await notes_of(memory, "s1")
    assert stored.estimates
    encoder.pair.cache_clear()
    found = await outcome_of(memory, stored)
    assert encoder.pair.cache_info().misses == 0
    assert found == await outcome_of(memory, replace(stored, estimates={}))
    assert found.replaced == ("we deploy every Friday",)


async def test_the_last_tool_call_is_there_in_another_process_at_once(memory: Memory, place: Path | str) -> None:
    await observe(memory, NewTurn("agent", "", session="s1", tool_calls=(CALL,)), CALLER)
    async with open_memory(place, KEYWORDS_ONLY) as other:
        assert (await notes_of(other, "s1")).last_tool_call == CALL


async def test_lost_notes_are_made_again_from_the_transcript(memory: Memory) -> None:
    await talk(memory)
    before = await notes_of(memory, "s1")
    await memory.state.remove(NAMESPACE, "s1")
    assert await notes_of(memory, "s1") == before
    await observe(memory, NewTurn("user", "Decision: two cache files", session="s1"), CALLER)
    assert await decisions(memory, "s1") == (DECISION, "two cache files")


async def test_turns_that_a_crash_left_unnoted_are_noted_with_the_next(memory: Memory) -> None:
    await talk(memory)
    await memory.state.put(NAMESPACE, "s1", Noted(1).as_dict())
    await observe(memory, NewTurn("user", "thanks", session="s1"), CALLER)
    await assert_whole(memory, await notes_of(memory, "s1"))


async def test_imported_and_captured_conversations_have_notes_too(memory: Memory, clock: Clock) -> None:
    turns = (
        ImportedTurn("user", "Which store shall the ledger have?", clock(), turn_id="t0"),
        ImportedTurn("agent", ANSWER, clock(), turn_id="t1"),
        ImportedTurn("user", "yes, do it", clock(), turn_id="t2"),
    )
    await record_session(memory, ImportedSession("imported", turns, "import:test"))
    await append_turns(memory, ImportedSession("captured", turns, "import:test"))
    for session in ("imported", "captured"):
        assert await decisions(memory, session) == (DECISION,)


async def test_what_is_forgotten_is_not_noted_any_more(memory: Memory) -> None:
    await talk(memory)
    await forget(memory, ForgetTarget(text="call Ana about the winter berth"))
    assert (await outcome_of(memory, await notes_of(memory, "s1"))).open_items == ()


async def test_the_notes_of_sessions_that_are_long_over_are_dropped_and_come_back(memory: Memory, clock: Clock) -> None:
    await talk(memory)
    before = await notes_of(memory, "s1")
    await keep(memory, "s1")
    await end_session(memory, "s1")
    for days, kept in ((0, ["s1"]), (31, [])):
        clock.forward(days=days)
        await keep_house(memory)
        assert await memory.state.keys_of(NAMESPACE) == kept
    assert await notes_of(memory, "s1") == before


async def test_a_session_that_never_was_has_no_notes(memory: Memory) -> None:
    with pytest.raises(NotFound):
        await notes_of(memory, "never")
