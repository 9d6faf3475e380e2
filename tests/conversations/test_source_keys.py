"""A turn that arrives twice is stored once; two honest "continue" are stored twice."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from mcp_server.conversations.source_keys import Known, TurnKey, content_sha, keys_of, missing, repeated, sort_out
from mcp_server.model import Role, Turn

AT = datetime(2026, 1, 1, tzinfo=UTC)
ROLES: list[Role] = ["user", "agent"]
sequences = st.lists(st.tuples(st.sampled_from(ROLES), st.sampled_from(["continue", "ok", "done"])), max_size=12)


def turn(number: int, role: Role, content: str, turn_id: str | None = None) -> Turn:
    return Turn(number, role, content, AT, turn_id)


def arriving(content: str, turn_id: str | None = None, role: Role = "user") -> tuple[Role, str, str | None]:
    return role, content_sha(content), turn_id


def test_the_same_id_is_the_same_turn_whatever_came_between() -> None:
    keys = keys_of([turn(1, "user", "hi", "a"), turn(2, "agent", "hello")])
    assert repeated(keys, *arriving("hi", "a")) == keys[0]


def test_a_retry_without_an_id_repeats_the_last_turn() -> None:
    keys = keys_of([turn(1, "user", "continue")])
    assert repeated(keys, *arriving("continue")) == keys[0]
    assert repeated(keys, *arriving("continue", "late-id")) == keys[0]


def test_saying_it_again_after_an_answer_is_a_new_turn() -> None:
    keys = keys_of([turn(1, "user", "continue"), turn(2, "agent", "done")])
    assert repeated(keys, *arriving("continue")) is None


def test_two_ids_are_two_turns_even_with_the_same_words() -> None:
    keys = keys_of([turn(1, "user", "continue", "a")])
    assert repeated(keys, *arriving("continue", "b")) is None


def test_nth_counts_the_earlier_identical_turns() -> None:
    keys = keys_of([turn(1, "user", "continue"), turn(2, "agent", "ok"), turn(3, "user", "continue")])
    assert [key.nth for key in keys] == [0, 0, 1]
    assert keys_of([turn(4, "user", "continue")], keys)[0].nth == 2


def test_an_import_adds_only_what_was_not_captured_live() -> None:
    keys = keys_of([turn(1, "user", "continue", "a"), turn(2, "agent", "ok")])
    sequence = [arriving("continue", "a"), arriving("ok", role="agent"), arriving("continue", "b")]
    assert missing(keys, sequence) == [2]


@given(sequences)
def test_importing_a_sequence_twice_adds_nothing(said: list[tuple[Role, str]]) -> None:
    turns = [turn(number, role, content) for number, (role, content) in enumerate(said, 1)]
    sequence = [(role, content_sha(content), None) for role, content in said]
    assert missing([], sequence) == list(range(len(said)))
    assert missing(keys_of(turns), sequence) == []


@given(sequences, st.integers(0, 12))
def test_keys_do_not_depend_on_where_the_reading_was_interrupted(said: list[tuple[Role, str]], cut: int) -> None:
    turns = [turn(number, role, content) for number, (role, content) in enumerate(said, 1)]
    first: list[TurnKey] = keys_of(turns[:cut])
    assert first + keys_of(turns[cut:], first) == keys_of(turns)


def known(keys: list[TurnKey], elsewhere: frozenset[str] = frozenset()) -> Known:
    nameless: dict[tuple[Role, str], tuple[int, ...]] = {}
    for key in keys:
        if key.turn_id is None:
            nameless[key.role, key.sha] = (*nameless.get((key.role, key.sha), ()), key.number)
    return Known(frozenset(key.turn_id for key in keys if key.turn_id), {}, nameless, elsewhere)


def with_id(content: str, turn_id: str, role: Role = "user") -> tuple[Role, str, str]:
    return role, content_sha(content), turn_id


def test_a_turn_recorded_without_an_id_takes_the_first_that_fits() -> None:
    keys = keys_of([turn(1, "user", "ok"), turn(2, "agent", "fine"), turn(3, "user", "ok", "b")])
    done = sort_out(known(keys), [with_id("ok", "a"), with_id("ok", "b"), with_id("ok", "c")])
    assert (done.new, done.named) == ((2,), ((1, "a"),))


def test_what_another_session_recorded_and_what_comes_twice_is_not_new() -> None:
    done = sort_out(known([], frozenset("a")), [with_id("x", "a"), with_id("x", "b"), with_id("x", "b")])
    assert done.new == (1,)


@given(sequences, st.lists(st.booleans(), min_size=12, max_size=12), st.integers(0, 12))
def test_in_two_parts_or_in_one_the_same_turns_are_new(
    said: list[tuple[Role, str]], named: list[bool], cut: int
) -> None:
    turns = [
        turn(number, role, content, str(number) if with_its_id else None)
        for number, ((role, content), with_its_id) in enumerate(zip(said, named, strict=False), 1)
    ]
    recorded = keys_of(turns[:cut])
    arriving = [with_id(content, str(number), role) for number, (role, content) in enumerate(said, 1)]
    whole = sort_out(known(recorded), arriving)
    assert whole.new == tuple(range(len(recorded), len(said)))
    first = sort_out(known(recorded), arriving[:5])
    ids = dict(first.named)
    later = [replace(key, turn_id=key.turn_id or ids.get(key.number)) for key in recorded]
    later += keys_of([turn(99, said[at][0], said[at][1], str(at + 1)) for at in first.new], recorded)
    second = sort_out(known(later), arriving[5:])
    assert (*first.new, *(at + 5 for at in second.new)) == whole.new


def test_lone_surrogates_have_a_hash_too() -> None:
    assert content_sha("\ud800") != content_sha("?")
