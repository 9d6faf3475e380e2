"""Bytes of a text, counted without a copy: as if it were encoded whole."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mcp_server.text.transcript import STEP, after_bytes, size_in_bytes

TEXTS = st.tuples(st.text(alphabet="aé—😀\udc80\n", max_size=12), st.sampled_from([1, 7, STEP // 4])).map(
    lambda pair: pair[0] * pair[1]
)


def encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


@given(TEXTS, st.data())
def test_sizes_are_those_of_the_encoded_text(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    assert size_in_bytes(text, start, end) == len(encoded(text[start:end]))


@given(TEXTS, st.data())
def test_the_place_after_some_bytes_is_found_unless_the_text_ends_before(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    size = len(encoded(text[start:end]))
    assert after_bytes(text, start, size) == end
    assert after_bytes(text, start, len(encoded(text[start:])) + 1) is None
