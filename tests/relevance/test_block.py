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
    assert block(shown, words)[0] == (
        "[CLARITY CONTEXT]\nHigh-relevance context:\n  ● ⚓ claracore (125)\n  ● openclaw (78)\n"
        "  ◐ tool:web_search (45)\n  ○ soul.md (32)"
    )


def test_what_does_not_fit_is_left_out_from_the_lowest_on() -> None:
    shown = [BlockItem(f"thing{number}", 90 - number) for number in range(80)]
    text, inside = block(shown, words, most=20)
    assert inside == shown[: len(inside)]
    assert words(text) <= 20
    assert "thing0 " in text
    assert "thing79" not in text


def test_without_items_there_is_no_block() -> None:
    assert block([], words) == ("", [])
    assert block([BlockItem("x", 1)], words, most=3) == ("", [])


def test_anchored_items_come_first_and_all_of_them_by_their_names_alone_if_need_be() -> None:
    anchored = [BlockItem(f"the long name of thing number {number}", 10, anchored=True) for number in range(7)]
    others = [BlockItem(f"thing{number}", 90 - number) for number in range(9)]
    text, inside = block([*others, *anchored], words, most=70)
    assert inside == [*anchored, *others[: len(inside) - 7]]
    assert text.index("number 6") < text.index("thing0")
    text, inside = block([*others, *anchored], words, most=40)
    assert list(inside) == anchored
    assert words(text) <= 40
    assert text.count("the long") == 7
