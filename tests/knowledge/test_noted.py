"""The notes of a conversation: what was settled and is open, the last tool call, the files that were touched."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_server.knowledge.notes import MAX_FILES, MAX_ITEMS, Noted, Outcome, Review, from_dict, items, noted, outcome
from mcp_server.model import COMPACTION, Role, ToolCall, Turn
from mcp_server.understanding.model import recognizer
from tests.checkpoints.injected import INJECTED, SEEDS

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
            ("user", "Good. I suppose one keeps the old jars for the lower meadow."),
            ("agent", "All right."),
            *((role, "fine") for role in ("user", "agent", "user", "agent")),
        ),
        recognizer(),
    )
    found = [one.text for one in notes.likely]
    assert "I suppose one keeps the old jars for the lower meadow." in found
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


def test_of_many_the_newest_are_kept() -> None:
    calls = tuple(ToolCall("Read", f"{n}", "", (f"{n}.py",)) for n in range(MAX_FILES + 5))
    todo = ["\n".join(f"- [ ] alpha{n} matters" for n in range(start, start + 205)) for start in (0, 205)]
    said_ = said(("agent", todo[0], calls), ("agent", todo[1]), *(("user", "ok"),) * 3)
    notes = noted(said_, recognizer())
    assert notes.files == tuple(f"{n}.py" for n in range(5, MAX_FILES + 5))
    assert len(notes.items) == MAX_ITEMS
    assert notes.items[-1].text == "alpha409 matters"


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
