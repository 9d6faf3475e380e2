"""The gate: decides whether the memory has anything about a message at all, within a scope.

    value = Σ weight · signal, between 0 and 1; the gate is open if value ≥ threshold

    nearest  = the maximum of worth · cosine over the passages
    matching = the maximum of worth · (cosine + covered) / 2; without an embedder of worth · covered
    named    = share of the message's names that occur in the scope; 1 without names
    said     = 1 − the IDF mass of the subject's words that no user or file has / `lack`, at least 0

    covered  = the IDF mass of the subject's words in a passage / (IDF mass of the subject + `doubt`)
    worth    = ⅕ + ⅘ · brief, 1 for the shortest passage; brief as in the ranking, by the length of the whole turn

The subject of a message is its content words, including names, without words that only continue a conversation ("ok,
sounds good") or frame a question ("list in order the different aspects"). A message without a subject has the value 0.
An agent's words count for `nearest` and `matching`, but not for `said`. docs/design/gate.md says why, what else was
tried, and how the weights were found.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import repeat
from operator import or_

from mcp_server.model import GateSignal
from mcp_server.search.query import query_idf
from mcp_server.search.ranking import DIGITS, Candidate, brief
from mcp_server.text.words import FRAME_WORDS, TALK_WORDS, words

TERMS = ("nearest", "matching", "named", "said")


@dataclass(frozen=True, slots=True)
class GateWeights:
    """The weight of each signal (their sum is 1), `doubt` and `lack` in nats, and an embedder's `threshold`."""

    nearest: float
    matching: float
    named: float
    said: float
    threshold: float
    doubt: float = 3.0
    lack: float = 30.0


WITH_EMBEDDER = GateWeights(nearest=0.35, matching=0.4, named=0.12, said=0.13, threshold=0.404)
"""For `wordllama`, 256 dimensions. Another embedder's cosines have another distribution and need another threshold."""

WITHOUT_EMBEDDER = GateWeights(nearest=0.0, matching=0.8, named=0.15, said=0.05, threshold=0.315)
LEAST_WORTH = 0.2  # the worth of the longest turn's passage; the shortest's is 1
LONGEST_SECTION = 800
"""Characters, the length of the longest passage. A file's section counts as at most this long, because headings divide
files. Turns are not limited, because nothing divides a turn."""


@dataclass(frozen=True, slots=True)
class GateDecision:
    """The decision. `terms` are the weights times the signals; their sum is `value`."""

    open: bool
    value: float
    threshold: float
    terms: Mapping[str, float]

    def signal(self) -> GateSignal:
        """Returns the decision for receipts and logs."""
        said = " + ".join(f"{name} {term:.3f}" for name, term in self.terms.items())
        return GateSignal(self.open, said, self.value, self.threshold)


_WORD = re.compile(r"[^\W_]+")
_SENTENCE_ENDS = re.compile(r"[.!?:\n\"“”„]")


def names_said(message: str) -> frozenset[str]:
    """Returns the message's words that look like names, folded: capitalized, and not at the start of a sentence. If
    every word is capitalized, none is a name."""
    found: list[str] = []
    end = 0
    small = False
    for match in _WORD.finditer(message):
        word = match.group()
        begins = not end or _SENTENCE_ENDS.search(message, end, match.start()) is not None
        end = match.end()
        small = small or word[0].islower()
        if word[0].isupper() and not begins:
            found.append(word)
    return frozenset(words(" ".join(found))) if small else frozenset()


def subject(lookup: Sequence[str]) -> tuple[int, ...]:
    """Returns the positions of a query's words (`Query.lookup`: content words and names) that are its subject."""
    return tuple(i for i, word in enumerate(lookup) if word not in TALK_WORDS and word not in FRAME_WORDS)


def worth(candidate: Candidate) -> float:
    """Returns the weight of a passage's similarity, between `LEAST_WORTH` and 1: less in a long turn."""
    length = candidate.length if candidate.role else min(candidate.length, LONGEST_SECTION)
    return LEAST_WORTH + (1 - LEAST_WORTH) * brief(length)


@dataclass(frozen=True, slots=True)
class Question:
    """The gate's input for a message in a scope: its words' weights, and the terms that do not depend on passages."""

    weights: GateWeights
    cosines: bool
    mass: Mapping[int, float]
    total: float
    terms: Mapping[str, float]

    def decide(self, candidates: Iterable[Candidate]) -> GateDecision:
        """Decides for these passages. With a single passage, the value is that of this passage alone."""
        weights = self.weights
        if not self.mass:
            return GateDecision(False, 0.0, weights.threshold, dict.fromkeys(TERMS, 0.0))
        nearest = matching = 0.0
        held: dict[int, float] = {}
        for one in candidates:
            if one.matched not in held:
                held[one.matched] = self._covered(one.matched)
            counts, cosine = worth(one), one.cosine or 0.0
            nearest = max(nearest, counts * cosine)
            match = (cosine + held[one.matched]) / 2 if self.cosines else held[one.matched]
            matching = max(matching, counts * match)
        terms = {
            "nearest": round(weights.nearest * min(1.0, nearest), DIGITS),
            "matching": round(weights.matching * min(1.0, matching), DIGITS),
            **self.terms,
        }
        value = round(math.fsum(terms.values()), DIGITS)
        return GateDecision(value >= weights.threshold, value, weights.threshold, terms)

    def _covered(self, matched: int) -> float:
        """Returns the share of the subject's IDF mass that a passage has, reduced by `doubt`."""
        return math.fsum(weight for i, weight in self.mass.items() if matched >> i & 1) / (
            self.total + self.weights.doubt
        )


def question(
    lookup: Sequence[str],
    frequencies: Sequence[int],
    passages: int,
    candidates: Sequence[Candidate],
    weights: GateWeights,
    message: str = "",
) -> Question:
    """Returns the gate's input for a message.

    Args:
        lookup: the content words and names of the message, folded: `Query.lookup`.
        frequencies: the number of the scope's passages that contain each of them.
        passages: the number of passages in the scope.
        candidates: passages of the scope, among them the nearest ones and those with the message's words.
        weights: those for the embedder in use.
        message: the original message, for its capital letters. Without it no word counts as a name.
    """
    cosines = any(one.cosine is not None for one in candidates)
    asked = subject(lookup) if passages > 0 else ()
    mass = dict(zip(asked, map(query_idf, [frequencies[i] for i in asked], repeat(passages)), strict=False))
    people = reduce(or_, (one.matched for one in candidates if one.role in ("user", "")), 0)
    lacking = math.fsum(weight for i, weight in mass.items() if not people >> i & 1)
    written = names_said(message)
    names = [frequencies[i] > 0 for i in mass if lookup[i] in written]
    terms = {
        "named": round(weights.named * (sum(names) / len(names) if names else 1.0), DIGITS),
        "said": round(weights.said * (1 - min(1.0, lacking / weights.lack)), DIGITS),
    }
    return Question(weights, cosines, mass, math.fsum(mass.values()), terms)
