"""The block `[CLARITY CONTEXT]`."""

from __future__ import annotations

from datetime import UTC, datetime

from mcp_server.core.clarity.block import block
from mcp_server.core.clarity.pruner import Verdict
from mcp_server.core.clarity.tracker import Item


def verdict(name: str, score: float, anchored: bool = False, keep: bool = True) -> Verdict:
    return Verdict(Item(name, "project", 1, 0, 1, datetime(2026, 3, 1, tzinfo=UTC), anchored), score, keep, "x")


def words(text: str) -> int:
    return len(text.split())


def test_the_block_is_the_seeds_example() -> None:
    shown = [
        verdict("claracore", 125, anchored=True),
        verdict("openclaw", 78),
        verdict("tool:web_search", 45),
        verdict("gone", 40, keep=False),
        verdict("soul.md", 32),
    ]
    assert block(shown, words) == (
        "[CLARITY CONTEXT]\nHigh-relevance context:\n  ● ⚓ claracore (125)\n  ● openclaw (78)\n"
        "  ◐ tool:web_search (45)\n  ○ soul.md (32)"
    )


def test_what_does_not_fit_is_left_out_from_the_lowest_on() -> None:
    shown = [verdict(f"thing{number}", 90 - number) for number in range(80)]
    text = block(shown, words, most=20)
    assert words(text) <= 20
    assert "thing0 " in text
    assert "thing79" not in text


def test_without_items_there_is_no_block() -> None:
    assert block([verdict("x", 1, keep=False)], words) == ""
