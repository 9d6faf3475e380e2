"""Text is escaped, counted in bytes and written as one line of YAML without losing anything."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from mcp_server.text.markdown import json_line, load, read_moment, yaml_line
from mcp_server.text.transcript import STEP, after_bytes, escape, escape_line, size_in_bytes, unescape, unescape_line
from tests.text.test_transcript import ANY_TEXT


@given(ANY_TEXT)
def test_escaping_loses_nothing_and_leaves_nothing_that_looks_like_structure(text: str) -> None:
    escaped = escape(text)
    assert unescape(escaped) == text
    assert not any(line.startswith(("## ", "> [", "<!--")) for line in escaped.split("\n"))
    assert escaped.count("\n") == text.count("\n")
    escaped.encode()


@given(ANY_TEXT, st.sampled_from(["", "]", "→", "—"]))
def test_a_line_stays_one_line_without_what_it_must_not_hold(text: str, also: str) -> None:
    escaped = escape_line(text, also)
    assert unescape_line(escaped) == text
    assert not {"\n", *also} & set(escaped)


def test_a_code_that_is_no_character_is_left_as_it_is() -> None:
    assert unescape("\\u{ffffff} \\u{41}") == "\\u{ffffff} A"


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


TEXT = st.text() | st.sampled_from(
    [
        *("null", "Yes", "1e3", "2026-02-16", "0x1f", "~", "=", "<<", "[", "x y", " x", "-->", "\x85", "\ufeff"),
        *("- a", "a: b", "a #b"),
    ]
)

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)


@given(VALUES)
def test_a_value_on_one_line_is_read_back_by_a_yaml_parser(value: object) -> None:
    line = yaml_line(value)
    assert "\n" not in line
    assert load(f"key: {line}\n", "x") == {"key": value}


@given(VALUES)
def test_a_value_in_a_comment_cannot_end_it(value: object) -> None:
    assert not {"<", ">", "\n"} & set(json_line(value))


def test_times_are_read_in_utc() -> None:
    at = datetime(2026, 2, 17, 0, 30, tzinfo=timezone(timedelta(hours=2)))
    assert yaml_line(at) == "2026-02-16T22:30:00Z"
    assert yaml_line(at + timedelta(milliseconds=5)) == "2026-02-16T22:30:00.005Z"
    assert read_moment(yaml_line(at)) == at
    assert read_moment("2026-02-16T22:30:00") == datetime(2026, 2, 16, 22, 30, tzinfo=UTC)
    assert read_moment("soon") is None
    assert read_moment(7) is None


def test_a_time_beyond_the_calendar_is_none() -> None:
    for text in ("0001-01-01T00:00:00+05:00", "9999-12-31T23:59:59-05:00"):
        assert read_moment(text) is None
        assert read_moment(datetime.fromisoformat(text)) is None
