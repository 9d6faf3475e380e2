"""The pruner's rules and which of them is the stronger."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from mcp_server.relevance.clarity_scores import Item, PruningRules, prune
from mcp_server.text.named_things import CATEGORIES, ItemCategory

RULES = PruningRules()
STRICT = replace(RULES, strict=True)
NOTHING: frozenset[str] = frozenset()


def item(name: str, mentions: int = 1, category: ItemCategory = "project", anchored: bool = False) -> Item:
    return Item(name, category, mentions, 0, 1, datetime(2026, 3, 1, tzinfo=UTC), anchored)


def kept(
    scored: list[tuple[Item, float]], rules: PruningRules = RULES, essential: frozenset[str] = NOTHING
) -> set[str]:
    return {verdict.item.id for verdict in prune(scored, essential, rules) if verdict.keep}


def test_under_eight_points_an_item_goes_unless_it_was_mentioned_three_times_or_anchored() -> None:
    scored = [(item("low"), 7.9), (item("often", 3), 1), (item("fast", anchored=True), 0), (item("high"), 8)]
    assert kept(scored) == {"often", "fast", "high"}


def test_the_cap_of_a_category_is_stronger_than_three_mentions() -> None:
    scored = [(item(f"p{number:02}", 5), float(number)) for number in range(10, 35)]
    assert kept(scored) == {f"p{number:02}" for number in range(15, 35)}


def test_in_strict_mode_items_of_25_points_survive_the_cap_of_their_category() -> None:
    scored = [(item(f"p{number:02}"), float(number)) for number in range(10, 50)]
    assert kept(scored, STRICT) == {f"p{number:02}" for number in range(25, 50)}


def test_over_fifty_items_the_lowest_go_until_thirty_are_left() -> None:
    scored = [(item(f"i{n:02}", 3, CATEGORIES[n % 4]), float(n)) for n in range(60)]
    assert kept(scored) == {f"i{n:02}" for n in range(30, 60)}
    assert len(kept(scored[:50])) == 50


def test_in_strict_mode_items_of_25_points_survive_the_cap_of_all_items_too() -> None:
    scored = [(item(f"i{n:02}", 3, CATEGORIES[n % 4]), float(n)) for n in range(20, 80)]
    assert kept(scored, STRICT) >= {f"i{n:02}" for n in range(25, 80)}


def test_essential_items_stay_in_strict_mode_only() -> None:
    scored = [(item("soul.md"), 0.0)]
    assert kept(scored, STRICT, frozenset({"soul.md"})) == {"soul.md"}
    assert not kept(scored, RULES, frozenset({"soul.md"}))


@given(
    st.lists(
        st.tuples(st.integers(0, 200), st.integers(0, 5), st.sampled_from(CATEGORIES), st.booleans()), max_size=120
    ),
    st.booleans(),
)
def test_anchored_items_always_stay_and_every_verdict_says_why(
    drawn: list[tuple[int, int, ItemCategory, bool]], strict: bool
) -> None:
    scored = [(item(f"i{n}", m, c, a), float(s)) for n, (s, m, c, a) in enumerate(drawn)]
    verdicts = prune(scored, NOTHING, replace(RULES, strict=strict))
    assert len(verdicts) == len(scored)
    assert all(verdict.why and (verdict.keep or not verdict.item.anchored) for verdict in verdicts)
    free = sum(verdict.keep and not verdict.item.anchored for verdict in verdicts)
    assert free <= RULES.max_context_items
