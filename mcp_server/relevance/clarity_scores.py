"""Clarity's items: the tracker counts them, the score ranks them, the pruner selects them, the block shows them.

An item is a project, tool, file or keyword that a conversation names. A user's message mentions items; an agent's
message only refers to known ones. A keyword becomes an item with its second mention in the session; before that it is a
candidate. The numbers of items and candidates are limited: the one whose last mention is oldest is removed first. The
counts depend only on the turns; a view adds the anchors (`with_anchors`).

The pruner's rules, the stronger first:

    1. anchored items stay; in strict mode essential ones, and those with 25 points or more, too
    2. over `max_context_items` (50): the lowest go until `target_context_items` (30) are left
    3. over `max_items_per_category` (20): the lowest of the category go
    4. mentioned `min_mentions_preserve` (3) times or more: stays
    5. under `prune_threshold` (8 points): goes
    6. pruned earlier and not mentioned since: goes
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from mcp_server.knowledge.anchors import Anchor
from mcp_server.model import Role, Turn
from mcp_server.settings import Clarity, ClarityScoring
from mcp_server.text.fencing import neutralise
from mcp_server.text.markdown import read_moment
from mcp_server.text.prose import CATEGORIES, ItemCategory, extract, known_in


@dataclass(frozen=True, slots=True)
class ClarityScore:
    """A score with its terms: `total` is their sum; `staleness` is never positive."""

    base: float
    recency: float
    utility: float
    staleness: float
    anchor: float

    @property
    def total(self) -> float:
        return self.base + self.recency + self.utility + self.staleness + self.anchor

    def terms(self) -> Mapping[str, float]:
        """Returns the terms by name."""
        return asdict(self)


def score(mentions: int, references: int, silent: int, anchored: bool, weights: ClarityScoring) -> ClarityScore:
    """Returns the score of an item with this many mentions and references that was last mentioned `silent` exchanges
    ago."""
    base = weights.frequency_scale * math.log2(mentions + 1)
    stale = max(0, silent - weights.recency_window)
    return ClarityScore(
        base=base,
        recency=weights.recency_bonus * max(0.0, 1 - silent / (weights.recency_window + 1)),
        utility=weights.reference_weight * references,
        staleness=0.0 - base * (1 - 0.5 ** (stale / weights.half_life)),  # never -0.0
        anchor=weights.anchor_bonus if anchored else 0.0,
    )


REFERENCE_WINDOW, MOST_REFERENCES = 20, 10
"""Only references of the last 20 exchanges count, ten at most. Otherwise the words of a subject that was left long ago
would stay on top."""
COMMON_SHARE, LEAST_EXCHANGES = 1 / 3, 10
"""From ten exchanges on, a keyword that is in more than a third of the user's messages is not an item."""
MOST_ITEMS = 300
MOST_CANDIDATES = 600
LONGEST_READ = 100_000
"""Characters at the beginning of a message in which items are counted; the rest is mostly a pasted log."""

_MILLISECOND = timedelta(milliseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Item:
    """One item. Counts are 0 or more; `last_mention` is the exchange, counted from 1, or 0 for never. `referred` are
    the exchanges of its last references, ten at most."""

    id: str
    category: ItemCategory
    mentions: int
    references: int
    last_mention: int
    created: datetime
    anchored: bool = False
    referred: tuple[int, ...] = ()


@dataclass(slots=True)
class Tracker:
    """The counts of one session, changed in place by `hear`. `exchange` is the number of the current exchange, `turn`
    that of the last counted turn."""

    exchange: int = 0
    turn: int = 0
    items: dict[str, Item] = field(default_factory=dict)
    """By id; the item whose last mention is oldest comes first."""
    candidates: dict[str, int] = field(default_factory=dict)
    """Keywords that were mentioned once, with the exchange; oldest first."""

    def take(self, turn: Turn) -> None:
        """Counts one turn of the session, unless it was counted before."""
        if turn.number > self.turn:
            self.turn = turn.number
            files = "\n".join(file for call in turn.tool_calls for file in call.files)
            text = f"{turn.content}\n{files}" if files else turn.content
            self.hear(turn.role, text, turn.at, [call.name for call in turn.tool_calls])

    def hear(self, role: Role, text: str, at: datetime, tools: Iterable[str] = ()) -> None:
        """Counts one message: a user's as mentions, an agent's as references; a system message is not counted."""
        text = text[:LONGEST_READ]
        if role == "user":
            self.exchange += 1
            for item, category in extract(text, tools).items():
                self._mention(item, category, at)
        elif role == "agent":
            for item in known_in(text, tools, self.items):
                known = self.items[item]
                referred = (*known.referred, self.exchange)[-MOST_REFERENCES:]
                self.items[item] = replace(known, references=known.references + 1, referred=referred)

    def with_anchors(self, anchored: Mapping[str, datetime]) -> Tracker:
        """Returns the counts with the user's anchors (id → since when). An anchored item that was never mentioned has 0
        mentions."""
        items = {name: replace(item, anchored=False) if item.anchored else item for name, item in self.items.items()}
        for name, at in anchored.items():
            known = items.get(name) or Item(name, category_of(name), 0, 0, 0, at)
            items[name] = replace(known, anchored=True)
        return Tracker(self.exchange, self.turn, items, dict(self.candidates))

    def scores(self, weights: ClarityScoring) -> list[tuple[Item, ClarityScore]]:
        """Returns every item with its current score, highest first; ties by id. Leaves out words of more than a third
        of all messages, because they say nothing about the subject."""
        scored = []
        for item in self.items.values():
            common = item.category == "keyword" and item.mentions > self.exchange * COMMON_SHARE
            if item.anchored or not common or self.exchange < LEAST_EXCHANGES:
                scored.append((item, self.score(item, weights)))
        return sorted(scored, key=lambda pair: (-pair[1].total, pair[0].id))

    def score(self, item: Item, weights: ClarityScoring) -> ClarityScore:
        """Returns the score of one item as of the current exchange."""
        silent = self.exchange - item.last_mention if item.mentions else weights.recency_window + 1
        referred = sum(self.exchange - exchange < REFERENCE_WINDOW for exchange in item.referred)
        return score(item.mentions, referred, silent, item.anchored, weights)

    def as_dict(self, now: datetime) -> dict[str, Any]:
        """Returns JSON values. Times are milliseconds since 1970, UTC."""
        return {
            "currentTurn": self.exchange,
            "lastPersistAt": _milliseconds(now),
            "items": [
                {
                    "id": item.id,
                    "category": item.category,
                    "mentionCount": item.mentions,
                    "referenceCount": item.references,
                    "lastMentionTurn": item.last_mention,
                    "recentReferences": list(item.referred),
                    "anchored": item.anchored,
                    "createdAt": _milliseconds(item.created),
                }
                for item in self.items.values()
            ],
            "candidates": list(self.candidates.items()),
            "lastTurnNumber": self.turn,
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Tracker:
        """Returns the counts in JSON values, without anchors. Raises KeyError, TypeError or ValueError if they are
        invalid."""
        items = {
            str(one["id"]): Item(
                id=str(one["id"]),
                category=one["category"] if one.get("category") in CATEGORIES else category_of(str(one["id"])),
                mentions=int(one["mentionCount"]),
                references=int(one["referenceCount"]),
                last_mention=int(one["lastMentionTurn"]),
                created=_EPOCH + int(one["createdAt"]) * _MILLISECOND,
                referred=tuple(map(int, one.get("recentReferences", ()))),
            )
            for one in stored["items"]
        }
        candidates = {str(word): int(exchange) for word, exchange in stored.get("candidates", ())}
        return cls(int(stored["currentTurn"]), int(stored.get("lastTurnNumber", 0)), items, candidates)

    def _mention(self, item: str, category: ItemCategory, at: datetime) -> None:
        known = self.items.pop(item, None)
        if known is None and category == "keyword" and self.candidates.pop(item, None) is None:
            self.candidates[item] = self.exchange
            if len(self.candidates) > MOST_CANDIDATES:
                del self.candidates[next(iter(self.candidates))]
            return
        if known is None:
            at = at.replace(microsecond=at.microsecond // 1000 * 1000)  # as transcripts and the stored form have it
            known = Item(item, category, 2 if category == "keyword" else 1, 0, self.exchange, at)
        else:
            known = replace(known, mentions=known.mentions + 1, last_mention=self.exchange)
        self.items[item] = known  # moved to the end: the order is that of the last mentions
        if len(self.items) > MOST_ITEMS:
            del self.items[next(iter(self.items))]


def category_of(item: str) -> ItemCategory:
    """Returns the category of an id by its form, for items that were anchored before they were mentioned."""
    return next((category for name, category in extract(item).items() if name == item), "keyword")


def _milliseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // _MILLISECOND


FADING = 15  # points: half of what a new mention gives (10 for the mention, 20 for being recent)


@dataclass(frozen=True, slots=True)
class ItemVerdict:
    """Whether an item stays in the block, and the rule that decided. `terms` are those of its score, if they are given;
    `essential` says whether it is in the essential tier."""

    item: Item
    score: float
    keep: bool
    why: str
    essential: bool = False
    terms: Mapping[str, float] = field(default_factory=dict)

    @property
    def word(self) -> Literal["keep", "fading", "gone"]:
        """Returns `keep`, `fading` (it stays with at most half the points of a new mention) or `gone`."""
        if not self.keep:
            return "gone"
        return "fading" if self.score < FADING and not self.item.anchored else "keep"


def prune(
    scored: Iterable[tuple[Item, float]], essential: frozenset[str], knobs: Clarity, pruned: Mapping[str, int]
) -> list[ItemVerdict]:
    """Returns a verdict for every item, highest score first. `essential` has the ids of the essential tier; `pruned`
    has the exchange in which each pruned item left the block."""
    rules = knobs.pruning
    verdicts = {
        item.id: _verdict_without_limits(item, score, item.id in essential, knobs)
        for item, score in sorted(scored, key=lambda pair: (-pair[1], pair[0].id))
    }

    def kept() -> list[ItemVerdict]:
        return [verdict for verdict in verdicts.values() if verdict.keep]

    def protected(verdict: ItemVerdict) -> bool:
        strong = verdict.score >= rules.strict_mode_preserve_threshold
        return verdict.item.anchored or (knobs.strict_mode and (verdict.essential or strong))

    def remove(verdict: ItemVerdict, why: str) -> None:
        verdicts[verdict.item.id] = replace(verdict, keep=False, why=why)

    in_category = Counter(verdict.item.category for verdict in kept())
    for verdict in reversed(kept()):
        if in_category[verdict.item.category] > rules.max_items_per_category and not protected(verdict):
            in_category[verdict.item.category] -= 1
            remove(verdict, f"over {rules.max_items_per_category} of its kind")

    over = len(kept()) - rules.target_context_items if len(kept()) > rules.max_context_items else 0
    for verdict in [one for one in reversed(kept()) if not protected(one)][:over]:
        why = f"over {rules.max_context_items} items: the lowest go until {rules.target_context_items} are left"
        remove(verdict, why)

    for verdict in kept():
        if verdict.item.last_mention <= pruned.get(verdict.item.id, -1) and not protected(verdict):
            remove(verdict, "pruned, and not mentioned since")
    return list(verdicts.values())


def _verdict_without_limits(item: Item, score: float, essential: bool, knobs: Clarity) -> ItemVerdict:
    """Returns the verdict on an item without the limits on numbers."""
    keep, threshold = True, f"{knobs.pruning.prune_threshold:g} points"
    if item.anchored:
        why = "anchored"
    elif knobs.strict_mode and essential:
        why = "essential"
    elif item.mentions >= knobs.pruning.min_mentions_preserve:
        why = f"mentioned {item.mentions} times"
    elif score < knobs.pruning.prune_threshold:
        keep, why = False, f"under {threshold}"
    else:
        why = f"{threshold} or more"
    return ItemVerdict(item, score, keep, why, essential)


COMMANDS = ("status", "scores", "stats", "config", "state", "anchor", "unanchor", "prune")
"""The commands; `status` is the default."""

MOST_TOKENS = 150
HIGH, MIDDLE = 50, 40  # points from which an item is marked ● and ◐; below them ○
LONGEST_SHOWN = 100
HEAD = "[CLARITY CONTEXT]\nHigh-relevance context:"


@dataclass(frozen=True, slots=True)
class BlockItem:
    """An item for the block: its id, its points with their terms, and why it stays."""

    id: str
    score: float
    anchored: bool = False
    why: str = ""
    terms: Mapping[str, float] = field(default_factory=dict)


def lines(items: Sequence[BlockItem]) -> list[str]:
    """Returns the line of each item: mark, anchor, id, points."""
    marks = ["●" if item.score >= HIGH else "◐" if item.score >= MIDDLE else "○" for item in items]
    return [
        f"  {mark} {'⚓ ' if item.anchored else ''}{name[:LONGEST_SHOWN]} ({item.score:.0f})"
        for mark, name, item in zip(marks, _names(items), items, strict=True)
    ]


def block(
    items: Sequence[BlockItem], count: Callable[[str], int], most: int = MOST_TOKENS
) -> tuple[str, Sequence[BlockItem]]:
    """Returns the block `[CLARITY CONTEXT]` in at most `most` tokens, and the items in it: the anchored ones, by their
    names alone if their lines do not fit, then as many others as fit. Empty without items."""
    shown = [item for item in items if item.anchored]
    others = [item for item in items if not item.anchored]
    text = "\n".join([HEAD, *lines(shown)])
    if shown and count(text) > most:
        names = _names(shown)
        rows = ("\n  ⚓ " + ", ".join(name[:longest] for name in names) for longest in (100, 40, 20, 10))
        text = next((HEAD + row for row in rows if count(HEAD + row) <= most), "")
        if not text:
            return "", []
    for item, line in zip(others, lines(others), strict=True):
        longer = f"{text}\n{line}"
        if count(longer) > most:
            break
        text = longer
        shown.append(item)
    return (text, shown) if shown else ("", [])


def _names(items: Sequence[BlockItem]) -> list[str]:
    """Returns the items' ids on one line each, neutralized, because people also write anchors by hand."""
    return [" ".join(neutralise(item.id).split()) for item in items]


def anchored_since(anchors: Iterable[Anchor], otherwise: datetime) -> dict[str, datetime]:
    """Returns the anchored items' lower-case ids, each with its date, or with `otherwise` if the file has no date."""
    return {anchor.item.lower(): read_moment(anchor.at) or otherwise for anchor in anchors if anchor.kind == "item"}
