"""Times as data files write them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.clients.importers.imported import short_name
from mcp_server.text.markdown import read_moment


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2024-03-15T09:30:00+02:00", datetime(2024, 3, 15, 7, 30, tzinfo=UTC)),
        ("2024-03-15 09:30", datetime(2024, 3, 15, 9, 30, tzinfo=UTC)),
    ],
)
def test_iso_times_are_read_and_without_a_zone_taken_as_utc(text: str, moment: datetime) -> None:
    assert read_moment(text) == moment


@pytest.mark.parametrize("text", [None, 7, "", "soon", "2024-02-30", "8 May, 2023"])
def test_what_is_no_date_is_none(text: object) -> None:
    assert read_moment(text) is None


@given(st.text())
def test_no_text_makes_it_raise(text: str) -> None:
    read_moment(text)


def test_names_for_ids_hold_no_spaces_or_slashes() -> None:
    assert short_name(Path("/notes/My notes (2024)")) == "My-notes-2024"
    assert short_name(Path("/")) == "import"
