"""The gate: does a topic that tier 1 or 2 brought up come in (S4 §5)?

    not asked      manual topics; topics with triggers of which none matched; without triggers, a score under threshold
    after a match  `auto` comes in; `gated` goes the way of `TABLE`, by priority and score
    without any    a topic that has no triggers of texts and whose score reaches its threshold always meets the gate

Where the way leads to the gate an LLM says yes or no. Without one the gate is arithmetic:

    value   = score + MEANT · meant + TOLD · (different things that triggers matched − 1, at most 2)
    meant   = cosine of the embeddings of message and topic − the greater of COMMON and the best with its `not_for`
              (COMMON is wordllama's; with another embedder only the latter counts)
    open if   value ≥ threshold + margin

Words alone cannot tell what a topic is for from what only sounds like it; what it means, compared with what the topic
says it is not for, tells some of the rest apart. Without an embedder `meant` is 0. The margin is how far above its
threshold a value must lie where nobody looks at it. Weights and margin were fitted on one half of a labelled set (370
messages, 14 topics, half of the messages near misses); `benchmarks topics` shows what they are worth on both halves.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from mcp_server.topics.text_similarity import DIGITS, Likeness
from mcp_server.topics.topic import Match, Priority, Topic

Way = Literal["activate", "gate", "drop", "not asked"]
Decider = Literal["llm", "cache", "arithmetic", "none"]
"""Who decided: `none` where no gate was needed."""


@dataclass(frozen=True, slots=True)
class Row:
    """A line of S4 §5.4: a topic of this `priority`, matched by tier 1, with a score from `least` to below `below`."""

    priority: Priority
    least: float
    below: float
    way: Way


ANY = 2.0
"""Above every score."""

TABLE: tuple[Row, ...] = (
    Row("critical", 0.0, ANY, "activate"),
    Row("high", 0.3, ANY, "activate"),
    Row("high", 0.0, 0.3, "gate"),
    Row("medium", 0.2, ANY, "gate"),
    Row("medium", 0.0, 0.2, "drop"),
    Row("low", 0.3, ANY, "gate"),
    Row("low", 0.0, 0.3, "drop"),
)
"""S4 §5.4, all its rows."""

TOLD = 0.1
MOST_TOLD = 2
MEANT = 0.7
COMMON = 0.17
"""The cosine that a message has with the nearest of some texts that it has nothing to do with, for `wordllama`."""


@dataclass(frozen=True, slots=True)
class Routed:
    """Where a candidate goes, and why in a few words."""

    way: Way
    why: str


def route(topic: Topic, matches: Iterable[Match], score: float, threshold: float) -> Routed:
    """Which way a topic takes for a message.

    Args:
        topic: the topic.
        matches: its triggers that matched the message.
        score: tier 2, 0..1.
        threshold: from which score on a topic without triggers is asked.
    """
    matched = tuple(matches)
    if topic.activation == "manual":
        return Routed("not asked", "manual: only you activate it")
    if not matched:
        if topic.triggers:
            return Routed("not asked", "no trigger matched")
        if score < threshold:
            return Routed("not asked", f"score {score:.3f} < threshold {threshold:.3f}")
        return Routed("gate", f"score {score:.3f} ≥ threshold {threshold:.3f}, no trigger of its own")
    if any(one.correction for one in matched):
        return Routed("activate", "a correction needs no gate")
    if topic.activation == "auto":
        return Routed("activate", "auto: a match is enough")
    row = next(row for row in TABLE if row.priority == topic.priority and row.least <= score < row.below)
    return Routed(row.way, _said(row, score))


def _said(row: Row, score: float) -> str:
    if row.least == 0 and row.below == ANY:
        return f"{row.priority}: a match is enough"
    side, limit = ("≥", row.least) if row.below == ANY else ("<", row.below)
    what = {"activate": "sure enough without the gate", "gate": "the gate decides", "drop": "not sure enough"}[row.way]
    return f"{row.priority}, score {score:.3f} {side} {limit:g}: {what}"


@dataclass(frozen=True, slots=True)
class Deliberation:
    """What the arithmetic gate says: open if `value` ≥ `needed`; `terms` sum to the value."""

    open: bool
    value: float
    needed: float
    terms: Mapping[str, float]


def deliberate(score: float, told: int, threshold: float, margin: float, meant: float | None = None) -> Deliberation:
    """The gate without an LLM. `told`: how many different things the topic's triggers matched; `meant` as above."""
    terms = {"score": round(score, DIGITS)}
    if meant is not None:
        terms["meant"] = round(MEANT * meant, DIGITS)
    terms["told"] = round(TOLD * min(MOST_TOLD, max(0, told - 1)), DIGITS)
    value, needed = round(math.fsum(terms.values()), DIGITS), round(threshold + margin, DIGITS)
    return Deliberation(value >= needed, value, needed, terms)


def meant(cosine: float, unlike: Sequence[float], common: float | None = COMMON) -> float | None:
    """What the embeddings say for a topic: its own cosine with the message against those of its `not_for`.

    `common` is None for an embedder of which it is not known; then a topic without `not_for` has nothing to compare.
    """
    others = [*unlike, *(() if common is None else (common,))]
    return cosine - max(others) if others else None


@dataclass(frozen=True, slots=True)
class Decision:
    """What arithmetic makes of a topic and a message: its way, and what the gate without an LLM says, asked or not.

    `threshold` is the topic's own, else the setting's; `told` as in `deliberate`."""

    likeness: Likeness
    threshold: float
    margin: float
    told: int
    routed: Routed
    deliberation: Deliberation

    def with_meant(self, meant: float | None) -> Decision:
        """The same with what the embeddings say."""
        said = deliberate(self.likeness.score, self.told, self.threshold, self.margin, meant)
        return replace(self, deliberation=said)


def decide(topic: Topic, matches: Sequence[Match], likeness: Likeness, threshold: float, margin: float) -> Decision:
    """The way of a topic for a message; the arguments as in `route` and `deliberate`."""
    things = told(matches)
    return Decision(
        likeness,
        threshold,
        margin,
        things,
        route(topic, matches, likeness.score, threshold),
        deliberate(likeness.score, things, threshold, margin),
    )


def told(matches: Iterable[Match]) -> int:
    """How many different things matched: a word said twice counts once, and so does what two triggers found."""
    return len({one.said.casefold().strip() for one in matches})


_FIRST_WORD = re.compile(r"\W*(\w+)")
_ANSWERS = {"YES": True, "Y": True, "NO": False, "N": False}


def understood(answer: str) -> bool | None:
    """What an LLM's answer means, by its first word; None if that is neither yes nor no."""
    word = _FIRST_WORD.match(answer)
    return _ANSWERS.get(word[1].upper()) if word else None
