"""Decides which candidates are pushed with a prompt: those whose expected worth is more than their tokens cost.

    estimate = 1 / (1 + exp(−Σ weight × feature))     the probability that a candidate holds what the prompt needs
    none is pushed unless the best estimate ≥ LEAST_BEST
    then each with estimate ≥ PRICE × (tokens + FRAME) is pushed, best first, while the allowance of tokens lasts

Candidates are lines of the project's page (rules, decisions in force, facts, open items) and passages of conversations
and other files. Many prompts need nothing of the memory: "rename this variable", or a question about another project.
Search finds some slightly likely lines for each of them, but no likely one: hence the limit for the best candidate. The
recognizer estimates from the words of a prompt whether it is one of these; that is one of the features. If the best
candidate is likely, further ones cost little: a missing fact is a wrong answer, and sixty tokens are 0.03% of a window.

Excluded whatever their estimate are lines that the window holds, notes of the system, identity and topics (which have
slots of their own), and passages that say no more than the prompt.

`benchmarks/fit_push.py` fits WEIGHTS on 37 labeled working conversations, the development half of LoCoMo and five
chats of BEAM, most of whose prompts need nothing that the memory holds. AUC on conversations left out of the fitting,
in five folds: .93 (working conversations), .91 (LoCoMo), .94 (BEAM).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import median
from types import MappingProxyType

from mcp_server.context.window_text import NothingAsked, asks_nothing, only_repeats, subject_words, was_sent
from mcp_server.knowledge.pages import is_changed
from mcp_server.model import GateSignal, Hit
from mcp_server.search.ranking import RankingWeights, ends_with_question
from mcp_server.text.destinations import CLOSED, ENDED, OPEN, RULES
from mcp_server.text.entries import Source, is_derived, sources_of
from mcp_server.text.passages import own_text
from mcp_server.text.words import bounded, content_words, stop_words, words
from mcp_server.understanding.cues import content_stems, subject_stems, word_list
from mcp_server.understanding.model import Model, PromptNeeds

LEAST_BEST = 0.06
"""Nothing is pushed with a prompt if the best estimate is lower."""

PRICE, FRAME = 0.00027, 40
"""The price of a token, as a probability, and the tokens that are added to the cost of each candidate. A passage of 90
tokens is pushed if its estimate is at least .035."""

BUDGET_LEAST_BEST, BUDGET_PRICE = 0.01, 0.00003
"""LEAST_BEST and PRICE for a compiled context. Its budget was chosen by the caller, so a token costs a quarter."""

MAX_LINES, MAX_PASSAGES = 60, 20
"""Number of candidates of each kind that are judged."""

MAX_PASSAGE_TOKENS = 80
"""Of a longer passage the relevant part is shown. Derived lines, which have 480 characters at most, are shown whole."""

HEADING = 15
"""Tokens above the pushed passages: the line that says that they are data."""

HEADER = 5
"""Tokens of a turn's day and speaker."""

DAY = len("- 2026-11-02: ")
"""Characters of the day of a page's line, which is shown above the lines of a day."""

LONGEST_READ = 1_000
"""Characters of a candidate whose words are compared with the prompt."""

WEIGHTS_OF_SEARCH = RankingWeights()

CHARACTERS_PER_TOKEN = 4.2

TOLD = 0.8
"""A candidate with this share of its content words in another one says no more than that."""

TOLD_BY_QUOTE = 0.6
"""A turn says no more than a line that quotes it if the line has this share of the turn's content words."""

LEAST_STEMS = 5
"""Least content words of a turn that is pushed; a turn with fewer ("They close at 4.") says too little alone. Of 130
such turns among the likelier candidates of labeled prompts and of LoCoMo, five held what was needed."""

ASKS_FOR_OPEN = 0.6
"""A prompt asks for open items if the probability is at least this. In 32 conversations that nothing was fitted on, 48
of 66 prompts that need some reach it, and 3 of 1,113 others, all of which need something else."""

LEAST_OPEN = 0.05
"""If a prompt asks for open items, a candidate that states one with a lower probability and shares no word with the
prompt is not pushed. Of 149 lines that were pushed without this limit in 18 conversations, 67 reach it, among them 12
of the 16 needed ones."""

UNREAD = 0.11
"""The nearness of a passage that the network has not read yet, or cannot read: about the usual one (.04 for lines, .14
for turns; .29 for lines that are needed)."""

LONGEST = 9_500
"""Most characters of one push: the client writes a text of more than 10,000 to a file."""

SENT_BEFORE = "sent before: this window has it"
SAID_BY_OTHER = "says no more than another pushed one"
TOO_SHORT = "too short to be understood alone"
NO_OPEN_ITEM = "the prompt asks for open items, and this is not one"

WEIGHTS: Mapping[str, float] = {
    "around": 0.44,
    "asks": -0.79,
    "best cosine": -2.57,
    "best coverage": -1.52,
    "best meaning": 1.12,
    "bias": -1.62,
    "closed item": -1.11,
    "exchange": -1.62,
    "exchange best": 2.85,
    "exchange mean": -0.01,
    "exchange turn": -0.60,
    "gate": 4.67,
    "line": -2.63,
    "line above usual": 1.81,
    "line cosine": 0.93,
    "line coverage": 3.21,
    "line meaning": 10.04,
    "line meaning if needed": -0.12,
    "line meaning rank": -0.32,
    "line rank": -0.21,
    "line score": -1.90,
    "needs memory": 0.05,
    "open item": -0.48,
    "open item asked for": 4.40,
    "passage": -3.96,
    "passage above usual": 2.72,
    "passage cosine": -2.69,
    "passage coverage": 0.47,
    "passage meaning": 3.26,
    "passage meaning if needed": -0.02,
    "passage meaning rank": 0.11,
    "passage rank": -0.63,
    "passage score": 8.33,
    "repeats": -0.03,
    "rule": 0.40,
    "shared words": -0.05,
    "shares a word": -0.45,
    "unknown words": -0.15,
}
"""Weights of the features that `candidates` names. Two are set by hand. In 14 conversations of `train/` 38 rules
instead of 15 were needed; the brief holds nearly all rules of the fitted conversations. Open items that are asked for
share no words with the prompt ("what is left before I leave?"); candidates that are not open items of the page count by
the probability that they state one."""

_STATEMENT = re.compile(r"(?:\S+\s+){3}[^?]*?[.!](?:\s|$)")
"""A sentence of four words or more that is not a question."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A decision: the candidate's estimate, 0 to 1, and why it is in or out, in words.

    `id` is `path:start-end`, as in receipts.
    """

    id: str
    hit: Hit
    worth: float
    included: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Candidate:
    """A hit with its features, its text without marks of sources, the text's content words, and their stems.

    `asks`: the text ends with a question. `open_item` is the probability that it states an open item, None if the
    message does not ask for these.
    """

    hit: Hit
    features: Mapping[str, float]
    text: str
    said: frozenset[str]
    stems: frozenset[str]
    asks: bool
    open_item: float | None

    @property
    def place(self) -> str:
        """Returns `path:line`, by which reasons and better lines are given."""
        return f"{self.hit.passage.path}:{self.hit.passage.start}"

    @property
    def worth(self) -> float:
        """Returns the probability that the hit holds what the prompt needs."""
        total = sum(WEIGHTS.get(name, 0.0) * value for name, value in self.features.items())
        return 1 / (1 + math.exp(-max(-30.0, min(30.0, total))))

    @property
    def tokens(self) -> int:
        """Returns an estimate of the tokens of the passage as it is shown, including the header of a turn."""
        header = HEADER if self.hit.passage.category == "conversation" else 0
        shown = len(self.text) - (DAY if self.hit.passage.category == "project" else 0)
        tokens = round(shown / CHARACTERS_PER_TOKEN) + 2
        return tokens if is_derived(self.hit.passage.text) else min(MAX_PASSAGE_TOKENS, tokens) + header

    def is_told_by(self, other: Candidate) -> bool:
        """Returns whether another candidate has nearly all content words of this one. The last source of a line that
        was perhaps changed is the turn that changes it, which the line does not quote."""
        turn = Source(self.hit.passage.path, self.hit.passage.turn or 0)
        quotes = not is_changed(other.text) and turn in sources_of(other.hit.passage.text)
        return len(self.stems & other.stems) >= (TOLD_BY_QUOTE if quotes else TOLD) * len(self.stems)

    @property
    def is_unrelated(self) -> bool:
        """Returns whether the message asks for open items, and this is none and shares no word with it."""
        is_none = self.open_item is not None and self.open_item < LEAST_OPEN
        return is_none and not self.features["shares a word"]

    def says_nothing(self, subject: frozenset[str]) -> str | None:
        """Returns why the passage tells nothing new, or None. `subject` are the words of the message's subject.

        A closed item is excluded only if the message asks for open items: "the surveyor will be Bakker, I must find a
        day with him" still says who the surveyor is.
        """
        passage = self.hit.passage
        section = passage.title.rsplit(" › ", 1)[-1]
        if passage.role == "system":
            return "a note of the system"
        if passage.category in ("identity", "topic"):
            return f"{passage.category}: pushed by rules of its own"
        if section == CLOSED and self.open_item is not None:
            return "done"
        if section in ENDED and section != CLOSED:
            return "no longer so"
        if passage.category == "memory" and section == "Projects":
            return "a copy of lines of a project's page"
        if passage.category == "conversation" and len(self.stems) < LEAST_STEMS:
            return TOO_SHORT
        if self.asks and not _STATEMENT.search(self.text):
            return "only a question"
        return "says no more than the message" if only_repeats(self.said, subject) else None


def why_nothing(prompt: str, needs: Callable[[], PromptNeeds]) -> NothingAsked | None:
    """Returns why a prompt gets nothing from the memory; None if it may get something. `needs` returns what it needs.

    A prompt without a subject may ask for open items: "what must I still do?"
    """
    asks = asks_nothing(prompt)
    return None if asks is NothingAsked.NO_SUBJECT and needs().open_items >= ASKS_FOR_OPEN else asks


def reasons_out(
    message: str,
    some: Sequence[Candidate],
    sent: Collection[str],
    out: Mapping[str, str],
    telling: Collection[str] = (),
) -> list[str]:
    """Returns for each candidate why it is excluded whatever its worth, or ""; `sent` and `out` are as in `choose`.
    Those in `telling`, by `path:line`, tell how a line was changed, and may be short."""
    subject = subject_words(message)
    reasons = [out.get(one.place) or one.says_nothing(subject) for one in some]
    return [
        ("" if reason == TOO_SHORT and one.place in telling else reason)
        or (SENT_BEFORE if sent and was_sent(one.text, sent) else "")
        for one, reason in zip(some, reasons, strict=True)
    ]


def choose(
    message: str,
    model: Model,
    lines: Sequence[Hit],
    passages: Sequence[Hit],
    gate: GateSignal,
    sent: Collection[str],
    out: Mapping[str, str],
    allowance: int,
    newer: Mapping[str, str] = MappingProxyType({}),
) -> tuple[Judged, ...]:
    """Returns the candidates, best first, with the decision on each.

    Args:
        model: tells what the message needs.
        lines: hits among the lines of the project's page, best first.
        passages: hits among everything, best first; lines of the page among them are skipped.
        sent: fingerprints of the lines that the window holds.
        out: by `path:line`, why a candidate is excluded whatever its worth.
        allowance: tokens that may be spent.
        newer: by `path:line` of a turn that is out, or of a line that was perhaps changed, the line or turn that tells
            how: it is as likely, at least, and not too short.
    """
    some = candidates(message, model, lines, passages, gate)
    excluded = reasons_out(message, some, sent, out, frozenset(newer.values()))
    reasons = [why or (NO_OPEN_ITEM if one.is_unrelated else "") for one, why in zip(some, excluded, strict=True)]
    worths = {one.place: one.worth for one in some}
    for old, line in newer.items():
        worths[line] = max(worths.get(line, 0.0), worths.get(old, 0.0))
    found = [(worths[one.place], one, reason) for one, reason in zip(some, reasons, strict=True)]
    opened = any(worth >= LEAST_BEST and not reason for worth, _, reason in found)
    judged: list[Judged] = []
    inside: dict[int, Candidate] = {}  # by the place in `judged`
    left = allowance
    for worth, one, reason in sorted(found, key=lambda each: -each[0]):
        tokens = one.tokens
        price = PRICE * (tokens + FRAME)
        if not reason and not opened:
            reason = f"nothing seems to be needed (estimate {worth:.3f}, at least {LEAST_BEST})"
        if not reason and worth < price:
            reason = f"hardly needed for its {tokens} tokens (estimate {worth:.3f}, at least {price:.3f})"
        if not reason and any(one.is_told_by(other) for other in inside.values()):
            reason = SAID_BY_OTHER
        told = [place for place, other in inside.items() if other.is_told_by(one)]
        room = left + sum(inside[place].tokens for place in told)
        if not reason and tokens > room:
            reason = "no room left"
        if not reason:
            left = room - tokens
            for place in told:
                judged[place] = replace(judged[place], included=False, reason=SAID_BY_OTHER)
                del inside[place]
            inside[len(judged)] = one
        name = f"{one.place}-{one.hit.passage.end}"
        judged.append(Judged(name, one.hit, worth, not reason, reason or f"worth its tokens ({worth:.2f})"))
    return tuple(judged)


def worthwhile(message: str, model: Model, hits: Sequence[Hit], gate: GateSignal) -> frozenset[int]:
    """Returns the positions of the hits that are expected to be worth their tokens in a compiled context.

    `hits` are ordered, best first.
    """
    if why_nothing(message, lambda: model.needs(message)) is not None:
        return frozenset()
    places = {id(hit): place for place, hit in enumerate(hits)}
    lines = [hit for hit in hits if is_derived(hit.passage.text)]
    others = [hit for hit in hits if not is_derived(hit.passage.text)]
    some = candidates(message, model, lines, others, gate)
    reasons = reasons_out(message, some, (), {})
    found = [(one.worth, one) for one, reason in zip(some, reasons, strict=True) if not reason]
    if all(worth < BUDGET_LEAST_BEST for worth, _ in found):
        return frozenset()
    return frozenset(places[id(one.hit)] for worth, one in found if worth >= BUDGET_PRICE * (one.tokens + FRAME))


def candidates(
    message: str, model: Model, lines: Sequence[Hit], passages: Sequence[Hit], gate: GateSignal
) -> list[Candidate]:
    """Returns the hits that are judged, with their features.

    Copies of the page's lines among the passages are left out, also the shortened ones of the journal.

    The features of a hit are its rank and scores in the search and the words that it shares with the message; those of
    the message say how much of it the memory knows, whether such a message needs a memory at all, and whether it asks
    for open items.
    """
    needs = model.needs(message)
    pages = {hit.passage.path for hit in lines}
    others = [
        hit
        for hit in passages
        if not (hit.passage.path in pages or (pages and hit.passage.category == "journal"))
        or not is_derived(hit.passage.text)
    ]
    hits = [*lines[:MAX_LINES], *others[:MAX_PASSAGES]]
    of_page = min(MAX_LINES, len(lines))
    texts = list(map(own_text, [hit.passage for hit in hits]))
    said, stems, asks = zip(*map(_words_of, texts), strict=True) if texts else ((), (), ())
    derived = [is_derived(hit.passage.text) for hit in hits]
    read = bounded(message)
    no_subject = stop_words(words(read))
    asked = subject_stems(read) - content_stems(no_subject)
    known = asked & frozenset().union(*stems)
    usual = median([hit.cosine or 0.0 for hit in others[:MAX_PASSAGES]] or [0.0])
    wanted = math.log(needs.memory / (1 - needs.memory))
    meanings = [*_meanings(wanted, hits[:of_page]), *_meanings(wanted, hits[of_page:])]
    asks_for_open = needs.open_items >= ASKS_FOR_OPEN
    prompt = {
        "bias": 1.0,
        "gate": gate.value,
        "needs memory": wanted,
        "unknown words": float(min(5, len(asked) - len(known))),
        "best cosine": max((hit.cosine or 0.0 for hit in hits), default=0.0),
        "best coverage": max(map(_coverage, hits), default=0.0),
        "best meaning": max((one.get("meaning", 0.0) for one in meanings), default=0.0),
    }
    found = []
    for place, hit in enumerate(hits):
        cosine = hit.cosine or 0.0
        section = hit.passage.title.rsplit(" › ", 1)[-1]
        rank = place if place < of_page else place - of_page
        written = hit.passage.category not in ("conversation", "journal") and not derived[place]
        kind = "line" if place < of_page or written else "passage"  # a person's own line counts as a line of the page
        shared = len(asked & stems[place])
        open_item = None
        if asks_for_open:
            open_item = 1.0 if section == OPEN else model.states("open", texts[place])
        features = {
            kind: 1.0,
            f"{kind} rank": math.log(rank + 1),
            f"{kind} score": hit.score,
            f"{kind} cosine": cosine,
            f"{kind} above usual": cosine - usual,
            f"{kind} coverage": _coverage(hit),
            **{f"{kind} {name}": value for name, value in meanings[place].items()},
            **_exchange(hit),
            "around": hit.terms.get("around", 0.0) / WEIGHTS_OF_SEARCH.around,
            "shares a word": float(shared > 0),
            "shared words": float(min(shared, 3)),
            "repeats": float(kind == "passage" and derived[place]),
            "asks": float(asks[place]),
            "open item asked for": open_item or 0.0,
            "rule": float(section == RULES),
            "open item": float(section == OPEN),
            "closed item": float(section == CLOSED),
        }
        own = said[place], stems[place], asks[place]
        found.append(Candidate(hit, prompt | features, texts[place], *own, open_item))
    return found


@lru_cache(maxsize=2048)  # the same lines of a page are candidates for many prompts
def _words_of(text: str) -> tuple[frozenset[str], frozenset[str], bool]:
    """Returns a candidate's content words, their stems, and whether it ends with a question."""
    stems = content_stems(word_list(text[:LONGEST_READ]))
    return frozenset(content_words(text)), stems, ends_with_question(text)


def _meanings(wanted: float, hits: Sequence[Hit]) -> list[dict[str, float]]:
    """Returns for each hit how near its meaning is to the message, alone and times `wanted`, the logit that such a
    message needs a memory, and how many hits are nearer."""
    near = [UNREAD if hit.about is None else hit.about for hit in hits]
    ordered = sorted(near, reverse=True)
    return [
        {"meaning": one, "meaning if needed": one * wanted, "meaning rank": math.log(ordered.index(one) + 1)}
        for one in near
    ]


def _exchange(hit: Hit) -> dict[str, float]:
    near = hit.exchange
    if near is None:
        return {}
    return {"exchange": 1.0, "exchange turn": near.turn, "exchange mean": near.mean, "exchange best": near.best}


def _coverage(hit: Hit) -> float:
    """Returns the share of the message's words that a hit contains, weighted by their rarity."""
    return hit.terms.get("coverage", 0.0) / WEIGHTS_OF_SEARCH.coverage


def visible_line(passages: int, tokens: int, what: str = "", topics: Sequence[str] = ()) -> str:
    """Returns what the user sees of an injection: `memory: 2 passages, topic email-triage, 310 tokens`."""
    counted = [what] if what else []
    if not what and (passages or not topics):
        counted.append(f"{passages} passage{'' if passages == 1 else 's'}")
    if topics:
        counted.append(f"topic{'' if len(topics) == 1 else 's'} {', '.join(topics)}")
    return f"memory: {', '.join(counted)}, {tokens:,} tokens"
