"""Whether a topic was of use: words that only it could have lent, or its files."""

from __future__ import annotations

from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.topics.gate_log import Pending, pending, used

OWN = ("canari", "smoke", "rollback", "pipelin")


def test_an_answer_with_three_of_its_own_words_used_a_topic() -> None:
    assert used(OWN, {"smoke", "canari", "rollback", "yes"}, (), ())
    assert not used(OWN, {"smoke", "canari", "yes"}, (), ())


@pytest.mark.parametrize(
    ("touched", "is_its"),
    [
        ("knowledge/procedures/deploy.md", True),
        ("/home/ada/.context-manager/knowledge/procedures/deploy.md", True),
        ("C:\\memory\\knowledge\\procedures\\deploy.md", True),
        ("knowledge/procedures/redeploy.md", False),
        ("deploy.md", False),
        ("", False),
    ],
)
def test_an_answer_that_touched_its_file_used_a_topic(touched: str, is_its: bool) -> None:
    assert used((), set(), ("knowledge/procedures/deploy.md",), (touched,)) is is_its


@given(st.text(), st.text(), st.integers(), st.booleans(), st.lists(st.text()))
def test_what_waits_survives_the_disk(topic: str, message: str, exchange: int, active: bool, said: list[str]) -> None:
    one = Pending(topic, message, exchange, active, tuple(said))
    assert pending(asdict(one)) == one


@pytest.mark.parametrize("stored", [None, 3, [], {}, {"topic": "a"}, {"topic": "a", "exchange": "x", "unsaid": []}])
def test_what_cannot_be_read_waits_for_nothing(stored: object) -> None:
    assert pending(stored) is None
