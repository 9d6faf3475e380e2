"""Which option of a list a short answer chooses."""

from __future__ import annotations

import pytest

from mcp_server.understanding.features import Message
from mcp_server.understanding.sentences import sentences


def test_headings_with_letters_are_options_and_the_numbered_steps_below_them_are_not() -> None:
    message = (
        "### A. Same cluster\n- one backup\n\n### B. Own instance\n- $62 a month\n\nMoving:\n\n1. Create it\n2. Copy"
    )
    assert {one.text: one.option for one in sentences(message)} == {
        "A. Same cluster": 1,
        "one backup": 1,
        "B. Own instance": 2,
        "$62 a month": 2,
        "Moving:": 0,
        "Create it": 0,
        "Copy": 0,
    }


@pytest.mark.parametrize("answer", ["I would not miss it. 2.", "ok, phew. then 2. thanks!", "Hm. B!"])
def test_a_sentence_that_only_names_an_option_chooses_it(answer: str) -> None:
    assert Message("user", answer).picked == 2
