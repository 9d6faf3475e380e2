"""The tracker: running counts of what a conversation is about. Nothing is ever counted again from the history.

A user's message mentions; an agent's only refers to items that are known. A keyword becomes an item with its second
mention in the session; before that it is a candidate. Each mention costs the same however long the session is: items
and candidates are bounded, and the one that was silent for longest goes first.

The counts are a function of the turns alone, so that a tracker replayed from the transcript equals the one that heard
them live. Anchors are no counts: they are laid over them for a view (`with_anchors`).

The stored form is S0's (`currentTurn`, `items` with `mentionCount` …), with `category`, `candidates` and the number of
the last turn added, so that a tracker read back goes on exactly as it was.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from mcp_server.model import Role, Turn
from mcp_server.text.named_things import CATEGORIES, ItemCategory, extract, known_in


@dataclass(frozen=True, slots=True)
class ClarityWeights:
    """S0 "Configuration", `scoring`: points, and exchanges for `half_life` and `recency_window`."""

    half_life: float = 5
    recency_window: int = 3
    recency_bonus: float = 20
    reference_weight: float = 15
    frequency_scale: float = 10
    anchor_bonus: float = 100


@dataclass(frozen=True, slots=True)
class ClarityScore:
    """A score that is its own explanation: `total` is the sum of the terms; `staleness` is never positive."""

    base: float
    recency: float
    utility: float
    staleness: float
    anchor: float

    @property
    def total(self) -> float:
        return self.base + self.recency + self.utility + self.staleness + self.anchor

    def terms(self) -> Mapping[str, float]:
        """The terms by name, as every view shows them."""
        return {
            "base": self.base,
            "recency": self.recency,
            "utility": self.utility,
            "staleness": self.staleness,
            "anchor": self.anchor,
        }


def score(mentions: int, references: int, silent: int, anchored: bool, weights: ClarityWeights) -> ClarityScore:
    """Scores an item that was mentioned `mentions` times, the last time `silent` exchanges ago (all 0 or more)."""
    base = weights.frequency_scale * math.log2(mentions + 1)
    stale = max(0, silent - weights.recency_window)
    return ClarityScore(
        base=base,
        recency=weights.recency_bonus * max(0.0, 1 - silent / (weights.recency_window + 1)),
        utility=weights.reference_weight * references,
        staleness=0.0 - base * (1 - 0.5 ** (stale / weights.half_life)),  # never -0.0
        anchor=weights.anchor_bonus if anchored else 0.0,
    )


MOST_ITEMS = 300
MOST_CANDIDATES = 600
LONGEST_READ = 100_000
"""Characters of a message that are looked at: what comes later in a pasted log is not what it is about."""

_MILLISECOND = timedelta(milliseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Item:
    """What is known of one item. Counts are 0 or more; `last_mention` is the exchange, counted from 1, 0 for never."""

    id: str
    category: ItemCategory
    mentions: int
    references: int
    last_mention: int
    created: datetime
    anchored: bool = False


@dataclass(slots=True)
class Tracker:
    """The counts of one session, changed in place by `hear`; `exchange` is the number of the current exchange, `turn`
    that of the last turn that was counted."""

    exchange: int = 0
    turn: int = 0
    items: dict[str, Item] = field(default_factory=dict)
    """By id, the one that was silent for longest first."""
    candidates: dict[str, int] = field(default_factory=dict)
    """Keywords said once, and the exchange in which they were; oldest first."""

    def take(self, turn: Turn) -> None:
        """Counts one turn of the session, once: what was counted before is passed over."""
        if turn.number > self.turn:
            self.turn = turn.number
            files = "\n".join(file for call in turn.tool_calls for file in call.files)
            text = f"{turn.content}\n{files}" if files else turn.content
            self.hear(turn.role, text, turn.at, [call.name for call in turn.tool_calls])

    def hear(self, role: Role, text: str, at: datetime, tools: Iterable[str] = ()) -> None:
        """Counts one message: of a user as mentions, of an agent as references; what a system says is not counted."""
        text = text[:LONGEST_READ]
        if role == "user":
            self.exchange += 1
            for item, category in extract(text, tools).items():
                self._mention(item, category, at)
        elif role == "agent":
            for item in known_in(text, tools, self.items):
                known = self.items[item]
                self.items[item] = replace(known, references=known.references + 1)

    def with_anchors(self, anchored: Mapping[str, datetime]) -> Tracker:
        """The same counts with the user's anchors on them (id → since when): what a view shows. An item that was never
        mentioned comes in with 0 mentions."""
        items = {
            name: item if item.anchored == (name in anchored) else replace(item, anchored=name in anchored)
            for name, item in self.items.items()
        }
        for item, at in anchored.items():
            if item not in items:
                items[item] = Item(item, category_of(item), 0, 0, 0, at, anchored=True)
        return Tracker(self.exchange, self.turn, items, dict(self.candidates))

    def scores(self, weights: ClarityWeights) -> list[tuple[Item, ClarityScore]]:
        """Every item with its score now, the highest first; ties go by id."""
        scored = [(item, self.score(item, weights)) for item in self.items.values()]
        return sorted(scored, key=lambda pair: (-pair[1].total, pair[0].id))

    def score(self, item: Item, weights: ClarityWeights) -> ClarityScore:
        """The score of one item as of the current exchange."""
        silent = self.exchange - item.last_mention if item.mentions else weights.recency_window + 1
        return score(item.mentions, item.references, silent, item.anchored, weights)

    def as_dict(self, now: datetime, anchored: Container[str] = ()) -> dict[str, Any]:
        """S0's shape, for JSON. Times are milliseconds since 1970, UTC; `anchored` are ids to be marked so as well."""
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
                    "anchored": item.anchored or item.id in anchored,
                    "createdAt": _milliseconds(item.created),
                }
                for item in self.items.values()
            ],
            "candidates": list(self.candidates.items()),
            "lastTurnNumber": self.turn,
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Tracker:
        """Reads the counts back from S0's shape, without anchors: those have a file of their own. Raises KeyError,
        TypeError or ValueError if it is none."""
        items = [
            Item(
                id=str(one["id"]),
                category=_category(one.get("category"), str(one["id"])),
                mentions=int(one["mentionCount"]),
                references=int(one["referenceCount"]),
                last_mention=int(one["lastMentionTurn"]),
                created=_EPOCH + int(one["createdAt"]) * _MILLISECOND,
            )
            for one in stored["items"]
        ]
        candidates = {str(word): int(exchange) for word, exchange in stored.get("candidates", ())}
        last = int(stored.get("lastTurnNumber", 0))
        return cls(int(stored["currentTurn"]), last, {item.id: item for item in items}, candidates)

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
        self.items[item] = known  # at the end again: the order is that of silence
        if len(self.items) > MOST_ITEMS:
            del self.items[next(iter(self.items))]


def category_of(item: str) -> ItemCategory:
    """What an id looks like, for items that were anchored before anybody named them."""
    return next((category for name, category in extract(item).items() if name == item), "keyword")


def _category(stored: object, item: str) -> ItemCategory:
    return next((category for category in CATEGORIES if category == stored), None) or category_of(item)


def _milliseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // _MILLISECOND
