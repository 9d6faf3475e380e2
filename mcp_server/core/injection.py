"""Injection: what of the memory is pushed to a client that did not ask? Little, right, and nothing twice.

A prompt gets something only if it is about something (`asks_nothing`), if the gate is open, and if a passage is
relevant in its own right. What is pushed stays in the client's window and costs attention at every later turn, so
precision goes before completeness: a passage goes in only if all of this holds.

    own        ≥ the gate's threshold + 0.05   what the gate would measure if this passage were all there is
    score      ≥ 0.42                          its relevance score: what it says and how it stands in its conversation
    stands out ≥ 0.15                          its score above the background: the mean of the hits 9 to 12
    stands out ≥ 0.9 of what the best does     the tail of a ranking is never pushed
    it is new                                  not every line of it was sent to this window before
    it tells                                   it does not end with a question, and says more than the message does
    at most 3 passages, within the token budget

The gate decides for the message, `own` for one passage: it keeps out what only stands beside a good match. Scores are
normalised, so by itself none admits anything; but a passage that answers stands out from the twelve that were found,
and where all are alike none does. (Of all signals that were tried, this one separates best: AUC .82 and .80 on the two
sets below, the score .78 and .74, its share of the best score .80 and .74, `own` .66 and .63.)

Two passages belong to one before them. The turn after one that only asks (or only repeats the message) takes over that
one's evidence, if it passes the gate itself: an answer rarely repeats its question. And what an agent answered to a
passage that goes in comes with it, if it is short and its `own` is at most 0.1 under the threshold: a problem without
its solution is half a memory, while of a long answer some part always resembles the message.

Measured on public conversations (LoCoMo and BEAM development halves, wordllama), where only the labelled evidence
counts as right: something is pushed for 59% and 32% of the questions that the conversation answers, 1.1 passages each,
of which .59 and .79 are labelled evidence (of the others two in three bear on the question all the same, by our own
reading of a sample); for small talk, other projects and near misses nothing at all; for questions of another
conversation of the same kind in 0.6% and 1.7%. Keywords alone: .61 and .75.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from mcp_server.core.model import GateSignal, Hit, Passage
from mcp_server.core.scoring.ranking import ends_with_question
from mcp_server.core.text.passages import own_text
from mcp_server.core.text.window_text import NO_SUBJECT as NO_SUBJECT  # callers of the policy use both
from mcp_server.core.text.window_text import asks_nothing as asks_nothing
from mcp_server.core.text.window_text import fingerprints as fingerprints
from mcp_server.core.text.window_text import is_the_clients as is_the_clients
from mcp_server.core.text.window_text import subject_words as subject_words
from mcp_server.core.text.window_text import was_sent as was_sent
from mcp_server.core.text.words import TALK_WORDS, content_words

OWN_MARGIN = 0.05
LEAST_SCORE = 0.42
LEAST_ABOVE = 0.15
LEAST_SHARE = 0.9
ANSWER_SLACK = 0.1
MOST_PASSAGES = 3
ECHO = 0.7
"""A passage with so large a share of its content words in the message tells nothing that the message does not."""

BEST = 8
LOOKED_AT = 12
"""Hits that are judged; those after the first 8 are the background, which a smaller memory has less of."""

LONGEST = 9_500
"""Characters of one injection: over 10,000 the client makes a file of it."""

SENT_BEFORE = "sent before: this window has it"


@dataclass(frozen=True, slots=True)
class Judged:
    """A passage that was considered. `own` is its evidence (`taken over` from the turn before, if that asks);
    `included` with the `reason`, in words a person knows."""

    hit: Hit
    own: float
    included: bool
    reason: str

    @property
    def id(self) -> str:
        """`path:start-end`, as receipts name it."""
        passage = self.hit.passage
        return f"{passage.path}:{passage.start}-{passage.end}"


def choose(
    message: str,
    hits: Sequence[Hit],
    alone: Sequence[float],
    gate: GateSignal,
    sent: Collection[str],
    out: Sequence[str] = (),
) -> tuple[Judged, ...]:
    """Which of the ranked `hits` go in. `alone` is what the gate measures for each of them by itself; `sent` are the
    fingerprints of what the window holds; `out` says why each is out whatever it scores, "" for one that may go in.
    """
    subject = subject_words(message)
    by_unit = {hit.passage.unit: hit.passage for hit in hits}
    evidence = {hit.passage.unit: own for hit, own in zip(hits, alone, strict=True)}
    left_out = {hit.passage.unit: why for hit, why in zip(hits, out or [""] * len(hits), strict=True)}

    @cache  # most hits are too weak, whatever they tell
    def silent(unit: str) -> str | None:
        return (left_out[unit] or _tells_nothing(by_unit[unit], subject)) if unit in by_unit else None

    background = math.fsum(hit.score for hit in hits[BEST:LOOKED_AT]) / (LOOKED_AT - BEST)
    best = next((hit.score for hit in hits if silent(hit.passage.unit) is None), 0.0)
    judged: list[Judged] = []
    room = MOST_PASSAGES
    for hit in hits:
        unit, before = hit.passage.unit, _unit_before(hit.passage)
        own = evidence[unit]
        if own >= gate.threshold and silent(before) is not None:
            own = max(own, evidence[before])
        before_all = SENT_BEFORE if gate.open and sent and was_sent(own_text(hit.passage), sent) else None
        reason = left_out[unit] or before_all or _too_weak(hit, own, best, background, gate) or silent(unit)
        if reason is None and room == 0:
            reason = f"{MOST_PASSAGES} better ones go in"
        room -= reason is None
        judged.append(Judged(hit, own, reason is None, reason or "relevant"))
    return tuple(_with_answers(judged, silent, gate, sent, room))


def _with_answers(
    judged: Sequence[Judged], silent: Callable[[str], str | None], gate: GateSignal, sent: Collection[str], room: int
) -> Iterator[Judged]:
    """The same, with what an agent answered to a passage that goes in."""
    asked = {one.hit.passage.unit for one in judged if one.included and one.hit.passage.role == "user"}
    for one in judged:
        passage = one.hit.passage
        answers = passage.role == "agent" and _unit_before(passage) in asked and not one.included
        tells = one.hit.whole and one.own >= gate.threshold - ANSWER_SLACK
        if answers and tells and room and not silent(passage.unit) and not was_sent(own_text(passage), sent):
            room -= 1
            one = Judged(one.hit, one.own, True, "the answer to what goes in")
        yield one


def _too_weak(hit: Hit, own: float, best: float, background: float, gate: GateSignal) -> str | None:
    above, most = hit.score - background, best - background
    if not gate.open:
        return "gate closed: nothing here is about the message"
    if own < gate.threshold + OWN_MARGIN:
        return f"too little evidence of its own ({own:.2f} < {gate.threshold + OWN_MARGIN:.2f})"
    if hit.score < LEAST_SCORE:
        return f"not relevant enough ({hit.score:.2f} < {LEAST_SCORE:.2f})"
    if above < LEAST_ABOVE:
        return f"does not stand out ({above:.2f} above the rest < {LEAST_ABOVE:.2f})"
    if above < LEAST_SHARE * most:
        return f"clearly behind the best ({above:.2f} of {most:.2f} above the rest)"
    return None


def _tells_nothing(passage: Passage, subject: frozenset[str]) -> str | None:
    """Why a passage has nothing to tell here, or None."""
    if passage.role == "system":
        return "a note of the system"
    if passage.category == "identity":
        return "identity: part of the brief"
    if passage.category == "topic":
        return "a topic: what brings it in are its triggers"
    if ends_with_question(own_text(passage)):
        return "only a question"
    said = frozenset(content_words(own_text(passage))) - TALK_WORDS
    if len(said & subject) >= ECHO * len(said):
        return "says no more than the message"
    return None


def _unit_before(passage: Passage) -> str:
    return f"{passage.path}#{passage.turn - 1}" if passage.turn else ""


def visible_line(passages: int, tokens: int, what: str = "", topics: Sequence[str] = ()) -> str:
    """What the user sees of an injection: `memory: 2 passages, topic email-triage, 310 tokens`."""
    counted = [what] if what else []
    if not what and (passages or not topics):
        counted.append(f"{passages} passage{'' if passages == 1 else 's'}")
    if topics:
        counted.append(f"topic{'' if len(topics) == 1 else 's'} {', '.join(topics)}")
    return f"memory: {', '.join(counted)}, {tokens:,} tokens"
