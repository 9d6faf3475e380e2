"""Judge: decides which topics a message activates.

    tier 1 matched, or has no triggers → score (tier 2) → route (table) → gate (LLM, else arithmetic) → active or not

The route: manual topics, topics whose triggers did not match, and topics without triggers below their threshold are not
considered. After a match, `auto` activates, and `gated` follows `TABLE` by priority and score. A topic without triggers
whose score reaches its threshold always goes to the gate.

At the gate an LLM says yes or no, for at most `watchers.gate_calls` topics of a message, the most important first,
within `watchers.gate_timeout_seconds` in all. Without a usable answer the arithmetic gate decides, and the verdict says
so:

    value   = score + MEANING_WEIGHT · meant + MATCH_WEIGHT · (different things that triggers matched − 1, at most 2)
    meant   = see `similarity.meant`; 0 without an embedder
    open if   value ≥ threshold + margin

Weights and margin were fitted on one half of a labelled set (370 messages, 14 topics, half of the messages near
misses); `benchmarks topics` measures them on both halves. Call `judge` without a lock: an LLM may take seconds.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import anyio
from anyio.to_thread import run_sync

from mcp_server.errors import Unavailable
from mcp_server.llm import Llm, LlmUnavailable
from mcp_server.memory import Memory
from mcp_server.storage.topics import TopicSet
from mcp_server.text.fencing import neutralise
from mcp_server.topics import gate_log
from mcp_server.topics.patterns import Tier1
from mcp_server.topics.similarity import DIGITS, Likeness, similarity
from mcp_server.topics.topic import PRIORITIES, Match, Priority, Topic, WatchedMessage

Way = Literal["activate", "gate", "drop", "not asked"]
Decider = Literal["llm", "cache", "arithmetic", "none"]
"""Who decided; `none` if no gate was needed."""


TABLE: Mapping[Priority, tuple[float, Way, Way]] = {
    "critical": (0.0, "activate", "activate"),
    "high": (0.3, "activate", "gate"),
    "medium": (0.2, "gate", "drop"),
    "low": (0.3, "gate", "drop"),
}
"""For a `gated` topic with a match, by priority: a score, the way at or above this score, and the way below it."""

REASONS = {"activate": "sure enough without the gate", "gate": "the gate decides", "drop": "not sure enough"}

MATCH_WEIGHT = 0.1
MAX_EXTRA_MATCHES = 2
MEANING_WEIGHT = 0.7


@dataclass(frozen=True, slots=True)
class Routed:
    """The way of a candidate, and the reason in a few words."""

    way: Way
    why: str


def route(topic: Topic, matches: Iterable[Match], score: float, threshold: float) -> Routed:
    """Returns the way of a topic for a message.

    Args:
        matches: its triggers that matched the message.
        score: tier 2, 0..1.
        threshold: the least score with which a topic without triggers goes to the gate.
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
    least, above, below = TABLE[topic.priority]
    if not least:
        return Routed(above, f"{topic.priority}: a match is enough")
    way, sign = (above, "≥") if score >= least else (below, "<")
    return Routed(way, f"{topic.priority}, score {score:.3f} {sign} {least:g}: {REASONS[way]}")


@dataclass(frozen=True, slots=True)
class Deliberation:
    """The result of the arithmetic gate: open if `value` ≥ `needed`; `terms` sum to the value."""

    open: bool
    value: float
    needed: float
    terms: Mapping[str, float]


def deliberate(score: float, things: int, threshold: float, margin: float, meant: float | None = None) -> Deliberation:
    """Decides without an LLM. `things`: how many different things the topic's triggers matched; `meant` as in
    `similarity.meant`."""
    terms = {"score": round(score, DIGITS)}
    if meant is not None:
        terms["meant"] = round(MEANING_WEIGHT * meant, DIGITS)
    terms["told"] = round(MATCH_WEIGHT * min(MAX_EXTRA_MATCHES, max(0, things - 1)), DIGITS)
    value, needed = round(math.fsum(terms.values()), DIGITS), round(threshold + margin, DIGITS)
    return Deliberation(value >= needed, value, needed, terms)


def count_distinct(matches: Iterable[Match]) -> int:
    """Returns how many different things matched, ignoring case."""
    return len({one.said.casefold().strip() for one in matches})


_FIRST_WORD = re.compile(r"\W*(\w+)")
_ANSWERS = {"YES": True, "Y": True, "NO": False, "N": False}


def parse_answer(answer: str) -> bool | None:
    """Returns whether the first word of an LLM's answer is yes; None if it is neither yes nor no."""
    word = _FIRST_WORD.match(answer)
    return _ANSWERS.get(word[1].upper()) if word else None


MESSAGE_SHOWN, DESCRIPTION_SHOWN = 500, 200
"""Characters of a message and of a description that an LLM is shown."""

ANSWERS_KEPT = 2_000

_PLACE = re.compile(r"\{(message|topic|description|not_for)\}")


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision about one topic and one message, with all its inputs: `threshold` is the topic's own, else the
    setting's; `deliberation` is the result without an LLM. `note` says why an LLM gave no answer."""

    about: Topic
    matches: tuple[Match, ...]
    likeness: Likeness
    threshold: float
    margin: float
    routed: Routed
    deliberation: Deliberation
    by: Decider = "none"
    note: str = ""
    active: bool = False

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self.about.name

    @property
    def score(self) -> float:
        """Tier 2, 0..1."""
        return self.likeness.score

    @property
    def why(self) -> str:
        """The decider and its reason, in a few words."""
        match self.by:
            case "none":
                return self.routed.why
            case "arithmetic":
                said = self.deliberation
                shown = f"gate without LLM: {said.value:.3f} {'≥' if self.active else '<'} {said.needed:.3f}"
                return f"{shown} ({self.note})" if self.note else shown
            case _:
                return f"the LLM {'said' if self.by == 'llm' else 'had said'} {'yes' if self.active else 'no'}"


async def judge(
    memory: Memory,
    session: str,
    watched: WatchedMessage,
    topics: TopicSet,
    tier1: Tier1,
    *,
    leave_out: frozenset[str] = frozenset(),
    quiet: bool = False,
    exchange: int = 0,
    turn: int = 0,
) -> tuple[Verdict, ...]:
    """Judges the topics that tier 1 matched and, for a user's message, topics without triggers that reach their
    threshold. Returns active ones first, by priority, score and name.

    `leave_out` are names of topics that are not considered. `quiet`: calls no LLM and logs nothing. `exchange` and
    `turn` are the message's place in the session, for the log.
    """
    if not _candidates(watched, topics, tier1):
        return ()
    weighed = await run_sync(weigh, memory, watched, topics, tier1)
    asked = [one for one in weighed if one.topic not in leave_out and one.routed.way != "not asked"]
    verdicts = await decided(memory, watched, topics, asked, cached_only=quiet)
    if verdicts and not quiet:
        await gate_log.decided(memory, session, watched, topics, verdicts, exchange, turn)
    return verdicts


async def decided(
    memory: Memory, watched: WatchedMessage, topics: TopicSet, weighed: Sequence[Verdict], *, cached_only: bool = False
) -> tuple[Verdict, ...]:
    """Returns the weighed topics with the gate's answers, in the order of `judge`. `cached_only`: calls no LLM, and
    uses only its cached answers."""
    waiting = [one for one in weighed if one.routed.way == "gate"]
    most = 0 if cached_only else memory.settings.watchers.gate_calls
    answered = (
        await _ask_gate(memory, memory.llm, watched.text, topics, waiting, most) if memory.llm and waiting else {}
    )
    verdicts = [one if one.routed.way != "gate" else answered.get(one.topic) or _by_arithmetic(one) for one in weighed]
    return tuple(sorted(verdicts, key=_order))


def weigh(memory: Memory, watched: WatchedMessage, topics: TopicSet, tier1: Tier1) -> list[Verdict]:
    """Returns score, route and the arithmetic gate's value of every candidate."""
    knobs = memory.settings.watchers
    names = _candidates(watched, topics, tier1)
    if not names:
        return []
    tier2 = similarity(memory, topics)
    likenesses = tier2.likenesses(watched.text, names)
    routes: list[tuple[Topic, tuple[Match, ...], float, Routed]] = []
    for name in names:
        topic, matches = topics.topics[name], tuple(tier1.matches.get(name, ()))
        own = topic.similarity_threshold
        threshold = knobs.similarity_threshold if own is None else own
        routes.append((topic, matches, threshold, route(topic, matches, likenesses[name].score, threshold)))
    meant = tier2.meant(watched.text, [topic.name for topic, _, _, routed in routes if routed.way == "gate"])
    verdicts: list[Verdict] = []
    for topic, matches, threshold, routed in routes:
        likeness, margin = likenesses[topic.name], knobs.gate_margin
        result = deliberate(likeness.score, count_distinct(matches), threshold, margin, meant.get(topic.name))
        active = routed.way == "activate"
        verdicts.append(Verdict(topic, matches, likeness, threshold, margin, routed, result, active=active))
    return verdicts


def _candidates(watched: WatchedMessage, topics: TopicSet, tier1: Tier1) -> list[str]:
    """Returns the names of topics that tier 1 matched and, for a user's message, of those without triggers."""
    if watched.direction != "input":  # an agent's answer resembles every topic that was just in its context
        return list(tier1.matches)
    untriggered = topics.derived(
        "without triggers", lambda: [one.name for one in topics.topics.values() if not one.triggers]
    )
    return [*tier1.matches, *untriggered]


async def _ask_gate(
    memory: Memory, llm: Llm, message: str, topics: TopicSet, waiting: Sequence[Verdict], most: int
) -> Mapping[str, Verdict]:
    """Returns the gate's answers by topic, with at most `most` calls of the LLM."""
    knobs = memory.settings.watchers
    known: dict[str, bool] = topics.derived("gate answers", dict)
    answered: dict[str, Verdict] = {}

    async def ask(one: Verdict, key: str) -> None:
        try:
            prompt = _prompt(memory.templates("gate_topic"), message, one.about)
            answer = await llm.complete(prompt, purpose="gate", max_tokens=knobs.gate_max_tokens)
            said = parse_answer(answer)
            if said is None:
                raise LlmUnavailable(f"neither YES nor NO, but {answer.strip()[:40]!r}")
        except Unavailable as error:
            answered[one.topic] = _by_arithmetic(one, f"no answer from the LLM: {error}")
        else:
            known[key] = said
            if len(known) > ANSWERS_KEPT:
                del known[next(iter(known))]
            answered[one.topic] = replace(one, active=said, by="llm")

    calls = 0
    with anyio.move_on_after(knobs.gate_timeout_seconds):
        async with anyio.create_task_group() as tasks:
            for one in sorted(waiting, key=_order):
                said = f"{message[:MESSAGE_SHOWN]}\0{one.about.digest}"
                key = hashlib.sha256(said.encode("utf-8", "replace")).hexdigest()
                before = known.get(key)
                if before is not None:
                    answered[one.topic] = replace(one, active=before, by="cache")
                elif calls < most:
                    calls += 1
                    tasks.start_soon(ask, one, key)
                else:
                    answered[one.topic] = _by_arithmetic(
                        one, f"the LLM is asked at most {most} times a message" if most else ""
                    )
    late = f"no answer from the LLM within {knobs.gate_timeout_seconds:g} s"
    return {one.topic: answered.get(one.topic) or _by_arithmetic(one, late) for one in waiting}


def _order(one: Verdict) -> tuple[bool, int, float, str]:
    return not one.active, -PRIORITIES[one.about.priority], -one.score, one.topic


def _by_arithmetic(one: Verdict, note: str = "") -> Verdict:
    return replace(one, active=one.deliberation.open, by="arithmetic", note=note)


def _prompt(template: str, message: str, topic: Topic) -> str:
    """Fills in the template in one pass, so that no text can fill another placeholder or end the quotation."""
    shown = {
        "message": message[:MESSAGE_SHOWN],
        "topic": topic.name,
        "description": topic.description[:DESCRIPTION_SHOWN],
        "not_for": "; ".join(topic.not_for)[:DESCRIPTION_SHOWN] or "-",
    }
    return _PLACE.sub(lambda place: neutralise(shown[place[1]]), template)
