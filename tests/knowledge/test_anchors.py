"""What an anchor names, by its shape, and which texts name it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from mcp_server.knowledge.anchors import kind_of, names_one_of, read_anchors
from mcp_server.relevance.clarity_scores import anchored_since


@pytest.mark.parametrize(
    ("item", "kind"),
    [
        ("ClaraCore", "item"),
        ("SOUL.md", "item"),
        ("c0123456789a", "chunk"),
        ("knowledge/people/ana.md", "file"),
        ("raw/conversations/2026/02/16/1845-s-x.md#7", "passage"),
        ("ses_a1b2#7", "item"),  # which session that is, the action finds out
    ],
)
def test_what_is_anchored_is_known_by_its_shape(item: str, kind: str) -> None:
    assert kind_of(item) == kind


def test_entries_by_hand_may_be_words_and_broken_ones_are_named() -> None:
    held, wrong = read_anchors({"anchors": ["oven", {"item": "boat", "kind": "nonsense", "at": "2026-01-02"}, {}, 3]})
    assert [(one.item, one.kind, one.place) for one in held] == [("oven", "item", 0), ("boat", "item", 1)]
    assert ["entry 3" in sentence or "entry 4" in sentence for sentence in wrong] == [True, True]
    assert "must be a list" in read_anchors({"anchors": "oven"})[1][0]
    now = datetime(2026, 3, 1, tzinfo=UTC)
    assert anchored_since(held, now) == {"oven": now, "boat": datetime(2026, 1, 2, tzinfo=UTC)}


@pytest.mark.parametrize(
    ("text", "item", "named"),
    [
        ("the Oven is hot", "oven", True),
        ("ovens are hot", "oven", False),
        ("see focus-core", "core", False),
        ("run web_search", "tool:web_search", True),
        ("our Winter Berth, please", "winter berth", True),
        ("winter and berth", "winter berth", False),
        ("čamac je tu", "camac", True),
        ("", "oven", False),
    ],
)
def test_a_text_names_an_item_as_a_whole(text: str, item: str, named: bool) -> None:
    assert names_one_of(text, {item}) is named
