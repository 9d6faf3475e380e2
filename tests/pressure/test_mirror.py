"""An agent's own list of messages beside the live set of the same conversation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mcp_server.model import Turn
from mcp_server.pressure.mirror import NOTE, Message, aligned, face, mark, mirrored, note_of, said
from mcp_server.relevance.chunks import LiveChunk, chunks_of

AT = datetime(2026, 2, 16, tzinfo=UTC)
Chunks = dict[int, dict[int, LiveChunk]]


def count(text: str) -> int:
    return len(text.split())


def heard(messages: Sequence[Message]) -> tuple[list[Turn], Chunks]:
    """The turns that the messages become, all live and whole."""
    turns: list[Turn] = []
    for message in messages:
        if one := said(message):
            turns.append(Turn(len(turns) + 1, one.role, one.content, AT, tool_calls=one.tool_calls))
    return turns, {turn.number: {c.part: c for c in chunks_of("s", turn, count)} for turn in turns}


def known(messages: Sequence[Message], turns: list[Turn], chunks: Chunks, handed: Mapping[str, int]) -> Any:
    return aligned(messages, turns, chunks, str, handed)


def rendered(
    messages: Sequence[Message], turns: list[Turn], chunks: Chunks, originals: Mapping[int, Message] | None = None
) -> list[Message]:
    numbers = known(messages, turns, chunks, {})
    by_number = {turn.number: turn for turn in turns}
    return mirrored(messages, numbers, by_number, chunks, originals or {}, {}, "")


def gone(chunks: Chunks, *turns: int) -> Chunks:
    return {
        number: {part: replace(one, form="cold") if number in turns else one for part, one in parts.items()}
        for number, parts in chunks.items()
    }


TALK: list[Message] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "ok"},
    {"role": "assistant", "content": "Which boat?", "id": 7},
    {"role": "user", "content": "ok"},
]


def test_what_is_whole_is_the_very_message_that_was_given() -> None:
    turns, chunks = heard(TALK)
    assert all(one is two for one, two in zip(rendered(TALK, turns, chunks), TALK, strict=True))


def test_equal_messages_are_the_turns_in_their_order() -> None:
    turns, chunks = heard(TALK)
    assert known(TALK, turns, chunks, {}) == [1, 2, 3, 4]
    assert known([*TALK, {"role": "user", "content": "ok"}], turns, chunks, {}) == [1, 2, 3, 4, None]
    assert known(TALK[2:], turns, chunks, {}) == [3, 4]


def test_what_is_cold_leaves_and_comes_back_in_its_place() -> None:
    turns, chunks = heard(TALK)
    short = rendered(TALK, turns, gone(chunks, 3))
    assert short == [TALK[0], TALK[1], TALK[3]]
    assert rendered(short, turns, chunks, {3: TALK[2]}) == TALK


def test_a_summary_stands_in_the_message_and_is_no_new_one() -> None:
    turns, chunks = heard(TALK)
    chunks[3] = {0: replace(chunks[3][0], form="summary", shown="Boat?")}
    short = rendered(TALK, turns, chunks)
    assert short[2] == {"role": "assistant", "content": "Boat?", "id": 7}
    assert known(short, turns, chunks, {}) == [1, 2, 3, 4]


def test_a_short_form_that_was_handed_out_is_still_known_when_it_is_whole_again() -> None:
    turns, chunks = heard(TALK)
    listed = [TALK[0], {"role": "assistant", "content": "Boat?"}]
    handed = {mark("Boat?"): 3}
    numbers = known(listed, turns, chunks, handed)
    assert numbers == [1, 3]
    made = mirrored(listed, numbers, {turn.number: turn for turn in turns}, chunks, {}, handed, "")
    assert made[1]["content"] == "Which boat?"


def test_an_answer_to_a_call_and_a_call_never_leave_alone() -> None:
    talk: list[Message] = [
        {"role": "assistant", "content": "I look.", "tool_calls": [{"id": "1"}]},
        {"role": "tool", "content": "a long file", "name": "read", "tool_call_id": "1"},
        {"role": "assistant", "content": [{"type": "text", "text": "See"}, {"type": "image", "data": "…"}]},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "2"}]},
    ]
    turns, chunks = heard(talk)
    assert [turn.number for turn in turns] == [1, 2, 3]
    cold = gone(chunks, 1, 2, 3)
    short = rendered(talk, turns, cold)
    assert [set(one) for one in short] == [set(one) for one in talk]
    assert "recover c" in short[0]["content"]
    assert "recover c" in short[1]["content"]
    assert short[2]["content"][1] == {"type": "image", "data": "…"}
    assert short[3] is talk[3]
    assert known(short, turns, cold, {}) == [1, 2, 3, None]


def test_a_tool_in_one_line_says_how_it_comes_back() -> None:
    turns, chunks = heard([{"role": "tool", "content": "a long file", "name": "read"}])
    chunks[1] = {1: replace(chunks[1][1], form="one line")}
    assert f"recover {chunks[1][1].id}" in face(turns[0], chunks[1]).text


def test_the_note_names_the_newest_within_its_tokens_and_is_never_recorded() -> None:
    turns, chunks = heard([{"role": "user", "content": f"word {number}"} for number in range(20)])
    by_number = {turn.number: turn for turn in turns}
    cold = [replace(parts[0], form="cold") for parts in chunks.values()]
    note = note_of(by_number, cold, 60, count)
    assert count(note) <= 60
    assert "word 19" in note
    assert "more" in note
    assert note_of(by_number, [], 60, count) == ""
    assert note_of(by_number, cold, 3, count) == ""
    assert said({"role": "system", "content": note}) is None
    made = mirrored([{"role": "system", "content": "Be brief."}], [None], by_number, chunks, {}, {}, note)
    assert [one["content"].startswith(NOTE) for one in made] == [False, True]
    assert mirrored(made, [None, None], by_number, chunks, {}, {}, "") == made[:1]


@given(st.lists(st.tuples(st.sampled_from(["user", "assistant", "tool"]), st.sampled_from("ab")), min_size=1))
def test_a_list_that_only_grows_is_heard_once(talk: list[tuple[str, str]]) -> None:
    messages: list[Message] = [{"role": role, "content": words} for role, words in talk]
    turns, chunks = heard(messages)
    assert known(messages, turns, chunks, {}) == [turn.number for turn in turns]
    assert rendered(messages, turns, chunks) == messages
