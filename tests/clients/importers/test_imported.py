"""Times as data files write them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.clients.importers.imported import parse_time, short_name


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("1:56 pm on 8 May, 2023", datetime(2023, 5, 8, 13, 56, tzinfo=UTC)),
        ("12:05 am on 1 January, 2024", datetime(2024, 1, 1, 0, 5, tzinfo=UTC)),
        ("12:00 p.m. on 31 Dec, 2024", datetime(2024, 12, 31, 12, 0, tzinfo=UTC)),
        ("10 am on 3rd Sept 2022", datetime(2022, 9, 3, 10, tzinfo=UTC)),
        ("March-15-2024", datetime(2024, 3, 15, 12, tzinfo=UTC)),
        ("June 1st, 2024", datetime(2024, 6, 1, 12, tzinfo=UTC)),
        ("2024-03-15", datetime(2024, 3, 15, 12, tzinfo=UTC)),
        ("2024-03-15T09:30:00+02:00", datetime(2024, 3, 15, 7, 30, tzinfo=UTC)),
        ("2024-03-15 09:30", datetime(2024, 3, 15, 9, 30, tzinfo=UTC)),
    ],
)
def test_dates_are_read_as_people_write_them(text: str, moment: datetime) -> None:
    assert parse_time(text) == moment


@pytest.mark.parametrize("text", [None, 7, "", "soon", "30 February, 2024", "13:99 on 8 May, 2023", "8 Smarch, 2023"])
def test_what_is_no_date_is_none(text: object) -> None:
    assert parse_time(text) is None


@given(st.text())
def test_no_text_makes_it_raise(text: str) -> None:
    parse_time(text)


def test_names_for_ids_hold_no_spaces_or_slashes() -> None:
    assert short_name(Path("/notes/My notes (2024)")) == "My-notes-2024"
    assert short_name(Path("/")) == "import"
