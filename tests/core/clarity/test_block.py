"""The block `[CLARITY CONTEXT]`."""

from __future__ import annotations

from mcp_server.relevance.clarity_scores import BlockItem, block


def words(text: str) -> int:
    return len(text.split())


def test_the_block_is_the_seeds_example() -> None:
    shown = [
        BlockItem("claracore", 125, anchored=True),
        BlockItem("openclaw", 78),
        BlockItem("tool:web_search", 45),
        BlockItem("soul.md", 32),
    ]
    assert block(shown, words) == (
        "[CLARITY CONTEXT]\nHigh-relevance context:\n  ● ⚓ claracore (125)\n  ● openclaw (78)\n"
        "  ◐ tool:web_search (45)\n  ○ soul.md (32)"
    )


def test_what_does_not_fit_is_left_out_from_the_lowest_on() -> None:
    shown = [BlockItem(f"thing{number}", 90 - number) for number in range(80)]
    text = block(shown, words, most=20)
    assert words(text) <= 20
    assert "thing0 " in text
    assert "thing79" not in text


def test_without_items_there_is_no_block() -> None:
    assert block([], words) == ""
    assert block([BlockItem("x", 1)], words, most=3) == ""
