"""What we write on one line of YAML, a YAML parser reads back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from mcp_server.text.yaml import json_line, load, read_moment, yaml_line

TEXT = st.text() | st.sampled_from(
    [
        "null",
        "Yes",
        "1e3",
        "2026-02-16",
        "0x1f",
        "- a",
        "a: b",
        "a #b",
        "~",
        "=",
        "<<",
        "[",
        "x y",
        " x",
        "-->",
        "\x85",
        "\ufeff",
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
