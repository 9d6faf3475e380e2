"""The gate: does the memory hold anything about a message at all? One decision for a message and a scope (SPEC §7).

    value = Σ weight · signal, between 0 and 1; the gate is open if value ≥ threshold

    nearest  = the most worth · cosine of any passage to the message
    matching = the most worth · (cosine + covered) / 2 of any passage; without an embedder worth · covered
    named    = share of the names in the message that stand anywhere in the scope; without names 1
    said     = 1 − the IDF mass of the subject's words that nobody said or wrote / `lack`, never below 0

    covered  = the IDF mass of the subject that a passage holds / (IDF mass of the subject + `doubt`)
    worth    = ⅕ + ⅘ · brief, 1 for the shortest passage; brief as in the ranking, by the length of the whole turn

The subject of a message are its content words, names among them, without those that only keep a talk going ("ok,
sounds good, continue") and those that only frame a question ("list in order the different aspects"). A message without
a subject has the value 0. `doubt` (nats) keeps one common word from proving much. "Said or wrote": by a user or in a
file; what only an agent said counts for `nearest` and `matching`, but not for `said`.

Normalised scores rank, but they never admit: whatever the message, some passage comes first. These signals are raw:
all that speak of passages can be low. No single one is enough: cosines know no names, and words are shared by chance.

A passage is worth less the longer its turn is, because long turns resemble everything of their kind: an assistant's
pages about one web application are near every question about another. `said` is an absolute mass, not a share, because
two rare words that nobody ever said speak against a message however many common ones it has beside them.

That the message names a speaker of the scope is no evidence here, on purpose: the threshold would have to rise for
all others, and people who ask about themselves ("when did I …") name nobody. Nor is it that many passages are near:
that would tell more of the development files' questions apart, and shut out what was said once among much else.

Where the weights come from: `bench injection` over LoCoMo and BEAM at once, one setting for both, together with two
guards made of the same files that the benchmark does not print: a short conversation in the midst of a long one about
other things, and a memory of one short conversation. Of some thousand weightings of these signals, one of those that
kept the most questions of other conversations silent while the evidence lost and both guards stayed within bounds,
rounded. BEAM has 90 questions, so its figures move by a point with every question. On conversations left out of the
fitting (one threshold for all), questions of others were kept silent in 87% (BEAM) and 95% (LoCoMo), for 1.2 and 0.8
points of evidence.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

from mcp_server.core.model import GateSignal
from mcp_server.core.scoring.query import idf
from mcp_server.core.scoring.ranking import DIGITS, Candidate, brief
from mcp_server.core.text.words import FRAME_WORDS, TALK_WORDS, words

TERMS = ("nearest", "matching", "named", "said")


@dataclass(frozen=True, slots=True)
class GateWeights:
    """How much each signal counts (they sum to 1), `doubt` and `lack` in nats, and the `threshold` that goes with an
    embedder.
    """

    nearest: float
    matching: float
    named: float
    said: float
    threshold: float
    doubt: float = 3.0
    lack: float = 30.0


WITH_EMBEDDER = GateWeights(nearest=0.35, matching=0.4, named=0.12, said=0.13, threshold=0.404)
"""For `wordllama`, 256 dimensions. Another embedder spreads its cosines otherwise and needs a threshold of its own."""

WITHOUT_EMBEDDER = GateWeights(nearest=0.0, matching=0.8, named=0.15, said=0.05, threshold=0.315)

LEAST_WORTH = 0.2
"""What the longest turn's passage is worth; the shortest's is 1."""

LONGEST_SECTION = 800
"""Sections of files count as no longer than this (characters, as long as a passage gets): a file is divided by
headings, a turn by nobody."""


@dataclass(frozen=True, slots=True)
class GateDecision:
    """Open or closed, and why: `terms` hold every weight times its signal, and sum to `value`."""

    open: bool
    value: float
    threshold: float
    terms: Mapping[str, float]

    def signal(self) -> GateSignal:
        """The decision as receipts and logs keep it."""
        said = " + ".join(f"{name} {term:.3f}" for name, term in self.terms.items())
        return GateSignal(self.open, said, self.value, self.threshold)


_WORD = re.compile(r"[^\W_]+")
_SENTENCE_ENDS = re.compile(r"[.!?:\n\"“”„]")


def names_said(message: str) -> frozenset[str]:
    """The words of a message that are written like names, folded: with a capital, though no sentence begins there.

    Where every word has a capital, none is a name.
    """
    found: list[str] = []
    end = 0
    small = False
    for match in _WORD.finditer(message):
        word = match.group()
        begins = not end or _SENTENCE_ENDS.search(message, end, match.start()) is not None
        end = match.end()
        small = small or word[0].islower()
        if word[0].isupper() and not begins:
            found += words(word)
    return frozenset(found) if small else frozenset()


def subject(lookup: Sequence[str]) -> tuple[int, ...]:
    """Which of a query's words (`Query.lookup`: content words and names) are its subject, by position."""
    return tuple(i for i, word in enumerate(lookup) if word not in TALK_WORDS and word not in FRAME_WORDS)


def worth(candidate: Candidate) -> float:
    """How much it means that a passage resembles a message: less in a long turn. Between `LEAST_WORTH` and 1."""
    length = candidate.length if candidate.role else min(candidate.length, LONGEST_SECTION)
    return LEAST_WORTH + (1 - LEAST_WORTH) * brief(length)


@dataclass(frozen=True, slots=True)
class Question:
    """A message as the gate sees it in a scope: what its words weigh, and what does not hang on single passages."""

    weights: GateWeights
    cosines: bool
    mass: Mapping[int, float]
    total: float
    terms: Mapping[str, float]

    def decide(self, candidates: Iterable[Candidate]) -> GateDecision:
        """Is the message about any of these passages of the scope? One alone says what it would open by itself."""
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
        """The share of the subject's IDF mass that stands in a passage, after doubt."""
        return math.fsum(weight for i, weight in self.mass.items() if matched >> i & 1) / (
            self.total + self.weights.doubt
        )


def question(
    lookup: Sequence[str],
    frequencies: Sequence[int],
    passages: int,
    candidates: Sequence[Candidate],
    weights: GateWeights | None = None,
    message: str = "",
) -> Question:
    """What the gate asks of a scope.

    Args:
        lookup: the content words of the message and the names in it, folded: `Query.lookup`.
        frequencies: in how many of the scope's passages each of them stands.
        passages: how many passages the scope has.
        candidates: passages of the scope, those nearest to the message and those that hold its words among them.
        weights: those of the embedder; by default `WITH_EMBEDDER` or, if no candidate has a cosine,
            `WITHOUT_EMBEDDER`.
        message: the message as it was written, for its capital letters. Without it no word counts as a name.
    """
    cosines = any(one.cosine is not None for one in candidates)
    if weights is None:
        weights = WITH_EMBEDDER if cosines else WITHOUT_EMBEDDER
    mass = {i: idf(frequencies[i], passages) for i in subject(lookup)} if passages > 0 else {}
    people = reduce(or_, (one.matched for one in candidates if one.role in ("user", "")), 0)
    lacking = math.fsum(weight for i, weight in mass.items() if not people >> i & 1)
    written = names_said(message)
    names = [frequencies[i] > 0 for i in mass if lookup[i] in written]
    terms = {
        "named": round(weights.named * (sum(names) / len(names) if names else 1.0), DIGITS),
        "said": round(weights.said * (1 - min(1.0, lacking / weights.lack)), DIGITS),
    }
    return Question(weights, cosines, mass, math.fsum(mass.values()), terms)
