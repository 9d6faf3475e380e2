"""Clarity: scores by values calculated by hand, the pruner, and the block `[CLARITY CONTEXT]`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.relevance.chunks import AGAIN_PER, Gauges, grows_fast, step_of
from mcp_server.relevance.clarity_scores import BlockItem, Item, block, prune, score
from mcp_server.settings import Clarity, ClarityScoring, Context
from mcp_server.text.prose import CATEGORIES, ItemCategory

W = ClarityScoring()


@pytest.mark.parametrize(
    ("mentions", "references", "silent", "anchored", "total"),
    [
        (1, 0, 0, False, 10 + 20),  # said once, just now
        (3, 0, 0, False, 20 + 20),  # log2(4) = 2
        (3, 0, 1, False, 20 + 15),  # a quarter of the bonus is gone
        (3, 0, 3, False, 20 + 5),  # the last exchange of the window
        (3, 0, 4, False, 20 * 0.5 ** (1 / 5)),  # one exchange beyond it
        (3, 0, 8, False, 10),  # five beyond: half of the base
        (3, 2, 8, False, 10 + 30),  # what answers referred to does not fade
        (7, 0, 13, False, 30 / 4),  # log2(8) = 3, two half-lives
        (0, 0, 0, True, 20 + 100),  # anchored before anybody named it
        (3, 0, 8, True, 110),
    ],
)
def test_the_formula_gives_what_a_hand_calculates(
    mentions: int, references: int, silent: int, anchored: bool, total: float
) -> None:
    assert score(mentions, references, silent, anchored, W).total == pytest.approx(total)


stats = (st.integers(0, 10_000), st.integers(0, 100), st.integers(0, 500))


@given(*stats, st.booleans())
def test_the_terms_add_up_to_the_score(mentions: int, references: int, silent: int, anchored: bool) -> None:
    scored = score(mentions, references, silent, anchored, W)
    assert sum(scored.terms().values()) == pytest.approx(scored.total)
    assert scored.total >= 0


@given(*stats)
def test_silence_never_raises_a_score_and_an_anchor_never_lowers_one(
    mentions: int, references: int, silent: int
) -> None:
    now = score(mentions, references, silent, False, W).total
    assert score(mentions, references, silent + 1, False, W).total <= now
    assert score(mentions, references, silent, True, W).total > now


NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_advice_goes_by_what_the_client_says_and_else_by_our_mirror() -> None:
    assert Gauges(50, 100, 90).advised == 0.9
    assert Gauges(50, 100).advised == 0.5


@pytest.mark.parametrize(
    ("live", "step"), [(0.0, 0), (0.399, 0), (0.40, 1), (0.449, 1), (0.45, 2), (0.50, 3), (0.90, 11)]
)
def test_curation_comes_at_forty_percent_and_with_every_further_five(live: float, step: int) -> None:
    assert step_of(live, Context().curation_trigger_pct, AGAIN_PER) == step


def test_growth_of_more_than_a_fifth_in_five_minutes_is_fast() -> None:
    seen = [(NOW - timedelta(minutes=9), 10), (NOW - timedelta(minutes=4), 1000), (NOW - timedelta(minutes=1), 1150)]
    assert grows_fast(seen, NOW, 1201)
    assert not grows_fast(seen, NOW, 1200)
    assert not grows_fast([], NOW, 99)


RULES = Clarity()
STRICT = Clarity(strict_mode=True)
NOTHING: frozenset[str] = frozenset()
Scored = list[tuple[Item, float]]


def item(name: str, mentions: int = 1, category: ItemCategory = "project", anchored: bool = False) -> Item:
    return Item(name, category, mentions, 0, 1, datetime(2026, 3, 1, tzinfo=UTC), anchored)


def kept(scored: Scored, rules: Clarity = RULES, essential: frozenset[str] = NOTHING) -> set[str]:
    return {verdict.item.id for verdict in prune(scored, essential, rules, {}) if verdict.keep}


def ranked(points: range, mentions: int, of_kinds: int = 1) -> Scored:
    """Items i00, i01 … of one kind or several, each with its number of points."""
    return [(item(f"i{n:02}", mentions, CATEGORIES[n % of_kinds]), float(n)) for n in points]


def named(points: range) -> set[str]:
    return {f"i{n:02}" for n in points}


def test_under_eight_points_an_item_goes_unless_it_was_mentioned_three_times_or_anchored() -> None:
    scored = [(item("low"), 7.9), (item("often", 3), 1), (item("fast", anchored=True), 0), (item("high"), 8)]
    assert kept(scored) == {"often", "fast", "high"}


def test_caps_remove_the_lowest_items_and_strict_mode_keeps_items_with_25_points() -> None:
    assert kept(ranked(range(10, 35), 5)) == named(range(15, 35)), "stronger than three mentions"
    assert kept(ranked(range(10, 50), 1), STRICT) == named(range(25, 50))
    assert kept(ranked(range(60), 3, 4)) == named(range(30, 60))
    assert kept(ranked(range(50), 3, 4)) == named(range(50))
    assert kept(ranked(range(20, 80), 3, 4), STRICT) >= named(range(25, 80))


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
    verdicts = prune(scored, NOTHING, Clarity(strict_mode=strict), {})
    assert len(verdicts) == len(scored)
    assert all(verdict.why and (verdict.keep or not verdict.item.anchored) for verdict in verdicts)
    free = sum(verdict.keep and not verdict.item.anchored for verdict in verdicts)
    assert free <= RULES.pruning.max_context_items


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
    assert block(shown, words, most=3) == block([], words) == ("", [])


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
