"""Open items: what opens one, what closes it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.core.checkpoints.open_items import Items, after, found_in
from mcp_server.core.model import Role


@pytest.mark.parametrize(
    ("role", "text", "opened"),
    [
        ("agent", "TODO: call Ana", ["call Ana"]),
        ("agent", "- **TODO**: call Ana", ["call Ana"]),
        ("user", "Next: write the tests", ["write the tests"]),
        ("agent", "Next steps: write the tests", ["write the tests"]),
        ("agent", "- [ ] write **the** tests", ["write the tests"]),
        ("user", "Fine. I need to send him a plan. Thanks!", ["I need to send him a plan."]),
        (
            "user",
            "We should test it. We must not forget the oven",
            ["We should test it.", "We must not forget the oven"],
        ),
        ("user", "I have to buy flour", ["I have to buy flour"]),
        ("user", "Treba pozvati Anu", ["Treba pozvati Anu"]),
        ("user", "Yes, do that. TODO: ask Jure for a sample", ["ask Jure for a sample"]),
        ("user", "Should we test it? Do I need to?", []),
        ("user", "I have a dog", []),
        ("agent", "We should test it.", []),
        ("user", "```\nTODO: call Ana\n```", []),
        ("user", "<system-reminder>\nTODO: call Ana", []),
        ("user", "TODO: **", []),
    ],
)
def test_what_opens_an_item(role: Role, text: str, opened: list[str]) -> None:
    assert list(found_in(role, text).opened) == opened


@pytest.mark.parametrize(
    "text", [f"{mark} call Ana Marija" for mark in ("- [x]", "Done:", "- **Fixed**:", "Završeno:")]
)
def test_what_is_marked_done_closes_what_says_the_same(text: str) -> None:
    items = after(["I should call Ana Marija", "write the tests"], found_in("agent", text))
    assert items == ["write the tests"]


def test_an_item_is_taken_down_once() -> None:
    items = after(["Send Grigorije a plan"], Items(("- I need to send him a plan", "buy flour", "buy the flour")))
    assert items == ["Send Grigorije a plan", "buy flour", "buy the flour"], "two keywords are too few to tell"
    assert after([], Items(("call Ana",), ("call Ana",))) == [], "opened and closed in one message"


@given(st.sampled_from(["user", "agent", "system"]), st.text(alphabet="TODO:next - [x]\n.Ineed", max_size=80))
def test_any_text_may_be_said(role: Role, text: str) -> None:
    found = found_in(role, text)
    assert after(found.opened, Items((), found.opened)) == []
