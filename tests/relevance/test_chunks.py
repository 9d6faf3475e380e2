"""Chunks of a turn, how it is shown when some of them left, and scores of chunks, by values calculated by hand."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.model import ToolCall, Turn
from mcp_server.relevance.chunks import as_shown, chunks_of, score, text_of
from mcp_server.settings import Context

AT = datetime(2026, 3, 1, tzinfo=UTC)
TURN = Turn(4, "agent", "It fails.", AT, tool_calls=(ToolCall("Bash", "make", "error 2"), ToolCall("Read", "a.py")))


def words_of_chunk(text: str) -> int:
    return len(text.split())


def test_a_turn_is_one_chunk_for_its_words_and_one_for_each_call() -> None:
    chunks = list(chunks_of("s", TURN, words_of_chunk))
    assert [(chunk.kind, chunk.part, chunk.tokens, chunk.one_line) for chunk in chunks] == [
        ("message", 0, 2, None),
        ("tool", 1, 5, 2),
        ("tool", 2, 2, 2),
    ]
    assert text_of(TURN, 0) == "It fails."
    assert text_of(TURN, 1) == "[tool:Bash] make → error 2"


def test_the_same_place_has_the_same_id_and_another_session_another_one() -> None:
    first, again, other = (list(chunks_of(session, TURN, words_of_chunk)) for session in ("s", "s", "t"))
    assert first == again
    assert {chunk.id for chunk in first}.isdisjoint(chunk.id for chunk in other)


def test_a_turn_is_shown_as_its_chunks_are() -> None:
    said, tool, read = chunks_of("s", TURN, words_of_chunk)
    assert as_shown(TURN, {}) == TURN
    assert as_shown(TURN, {0: said, 1: tool, 2: read}) == TURN
    short = as_shown(TURN, {0: replace(said, form="summary", shown="Fails."), 1: replace(tool, form="one line")})
    assert short is not None
    assert (short.content, short.tool_calls[0].result) == ("Fails.", "")
    rest = as_shown(TURN, {0: replace(said, form="cold"), 1: replace(tool, form="cold")})
    assert rest is not None
    assert (rest.content, rest.tool_calls) == ("", (ToolCall("Read", "a.py"),))
    assert as_shown(TURN, {n: replace(said, form="cold") for n in range(3)}) is None


W = Context()


@pytest.mark.parametrize(
    ("similarity", "age", "important", "total"),
    [
        (1.0, 0, False, 0.8),
        (1.0, 0, True, 0.9),
        (0.5, 0.5, False, 0.4),
        (0.5, 24, False, 0.3),
        (0.04, 24, False, 0.0),  # under memfas_min_score
        (0.05, 24, False, 0.03),
        (0.0, 24, True, 0.1),
    ],
)
def test_the_formula_gives_what_a_hand_calculates(similarity: float, age: float, important: bool, total: float) -> None:
    assert score(similarity, age, important, W).total == pytest.approx(total)


@given(st.floats(0, 1), st.floats(0, 1e6), st.booleans())
def test_the_terms_add_up_and_age_never_helps(similarity: float, age: float, important: bool) -> None:
    now = score(similarity, age, important, W)
    assert score(similarity, age + 1, important, W).total <= now.total <= 0.9 + 1e-9
