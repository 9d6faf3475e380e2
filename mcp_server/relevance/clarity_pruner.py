"""The pruner: which items stay in the block, and why the others leave it (S0 "Integration with Clarity Strict Mode").

Rules, the stronger first (SPEC §5):

    1. anchored items stay; in strict mode essential ones too
    2. over `max_context_items` (50): the lowest go until `target_context_items` (30) are left
    3. over `max_items_per_category` (20): the lowest of the category go; in strict mode none at 25 points or more
    4. mentioned `min_mentions_preserve` (3) times or more: stays
    5. under `prune_threshold` (8 points): goes

A pruned item leaves the block; its counts stay with the tracker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from mcp_server.relevance.clarity_tracker import Item

FADING = 15
"""Points: half of what one mention gives just then (10 for being mentioned, 20 for just now)."""


@dataclass(frozen=True, slots=True)
class PruningRules:
    """S0 "Configuration", `pruning`: points and numbers of items."""

    prune_threshold: float = 8
    strict_mode_preserve_threshold: float = 25
    max_items_per_category: int = 20
    target_context_items: int = 30
    max_context_items: int = 50
    min_mentions_preserve: int = 3
    strict: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether an item stays in the block, and the rule that decided. `terms` are those of its score, if they are
    given; `essential` is its tier."""

    item: Item
    score: float
    keep: bool
    why: str
    essential: bool = False
    terms: Mapping[str, float] = field(default_factory=dict)

    @property
    def word(self) -> str:
        """`keep`, `fading` (stays, but by no more than half of what a fresh mention gives) or `gone`."""
        if not self.keep:
            return "gone"
        return "fading" if self.score < FADING and not self.item.anchored else "keep"


def prune(scored: Iterable[tuple[Item, float]], essential: frozenset[str], rules: PruningRules) -> list[Verdict]:
    """A verdict for every item, the highest score first. `essential` holds ids of the essential tier."""
    ordered = sorted(scored, key=lambda pair: (-pair[1], pair[0].id))
    verdicts = {item.id: _alone(item, score, essential, rules) for item, score in ordered}

    def kept() -> list[Verdict]:
        return [verdict for verdict in verdicts.values() if verdict.keep]

    def protected(verdict: Verdict) -> bool:
        return verdict.item.anchored or (rules.strict and verdict.item.id in essential)

    in_category = Counter(verdict.item.category for verdict in kept())
    for verdict in reversed(kept()):
        spared = rules.strict and verdict.score >= rules.strict_mode_preserve_threshold
        if in_category[verdict.item.category] > rules.max_items_per_category and not (protected(verdict) or spared):
            in_category[verdict.item.category] -= 1
            why = f"over {rules.max_items_per_category} of its kind"
            verdicts[verdict.item.id] = Verdict(verdict.item, verdict.score, False, why)

    over = len(kept()) - rules.target_context_items if len(kept()) > rules.max_context_items else 0
    for verdict in [one for one in reversed(kept()) if not protected(one)][:over]:
        why = f"over {rules.max_context_items} items: the lowest go until {rules.target_context_items} are left"
        verdicts[verdict.item.id] = Verdict(verdict.item, verdict.score, False, why)
    return list(verdicts.values())


def _alone(item: Item, score: float, essential: frozenset[str], rules: PruningRules) -> Verdict:
    """The verdict on an item by itself, before the caps."""
    if item.anchored:
        return Verdict(item, score, True, "anchored")
    if rules.strict and item.id in essential:
        return Verdict(item, score, True, "essential")
    if item.mentions >= rules.min_mentions_preserve:
        return Verdict(item, score, True, f"mentioned {item.mentions} times")
    if score < rules.prune_threshold:
        return Verdict(item, score, False, f"under {rules.prune_threshold:g} points")
    return Verdict(item, score, True, f"{rules.prune_threshold:g} points or more")
