"""The gate: does the memory hold anything about a message at all? One decision for a message and a scope (SPEC §7).

    value = Σ weight · signal, between 0 and 1; the gate is open if value ≥ threshold

    nearest = the highest raw cosine of any passage of the scope to the message, never below 0
    covered = the most IDF mass of the subject that one passage holds / (IDF mass of the subject + doubt)
    known   = share of the subject's IDF mass whose words stand anywhere in the scope
    named   = share of the names in the message that stand anywhere in the scope; without names 1
    brief   = 1 for an empty subject, falling with its IDF mass, 0 from that of `length` words that stand nowhere

The subject of a message are its content words, names among them, without those that only keep a talk going ("ok,
sounds good, continue") and those that only frame a question ("list in order the different aspects"). A message without
a subject has the value 0. `doubt` (nats) keeps one common word from proving much. `brief` makes up for length: long
messages resemble something by chance, so they must show more.

Normalised scores rank, but they never admit: whatever the message, some passage comes first. These signals are raw:
all that speak of passages can be low. No single one is enough: cosines know no names, shares of words are high for
short messages.

That the message names a speaker of the scope is no evidence here, on purpose: the threshold would have to rise for
all others, and people who ask about themselves ("when did I …") name nobody.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

from mcp_server.core.model import GateSignal
from mcp_server.core.scoring.ranking import DIGITS, idf
from mcp_server.core.text.words import TALK_WORDS, words

FRAME_WORDS = frozenset(
    word
    for line in (
        "list listed order brought bring mention items number numbers total overall main key current currently far",
        "aspect aspects different various several specific related regarding including include across throughout",
        "one two three four five six seven eight nine ten",
        "redosled redosledom spisak stavki broj ukupno razliciti razlicite razlicitih jedan dva tri cetiri pet",
        "reihenfolge liste punkte anzahl insgesamt verschiedene verschiedenen eins zwei drei vier funf",
    )
    for word in line.split()
)
"""Words that say how to answer, not about what: rare in a memory, they would count for much. Folded."""


@dataclass(frozen=True, slots=True)
class GateWeights:
    """How much each signal counts (they sum to 1), `length` in words, `doubt` in nats, and the `threshold` that goes
    with an embedder.
    """

    nearest: float
    covered: float
    known: float
    named: float
    brief: float
    length: float
    threshold: float
    doubt: float = 3.0


WITH_EMBEDDER = GateWeights(nearest=0.48, covered=0.14, known=0.1, named=0.1, brief=0.18, length=5, threshold=0.445)
"""For `wordllama`, 256 dimensions. Another embedder spreads its cosines otherwise and needs a threshold of its own."""

WITHOUT_EMBEDDER = GateWeights(nearest=0.0, covered=0.2, known=0.3, named=0.2, brief=0.3, length=7, threshold=0.522)


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


@dataclass(frozen=True, slots=True)
class Question:
    """A message as the gate sees it: what its words weigh in a scope. Made by `question`, asked by `decide`."""

    weights: GateWeights
    mass: Mapping[int, float]
    bits: int
    total: float
    terms: Mapping[str, float]

    def decide(self, matched: Iterable[int], nearest: float | None = None) -> GateDecision:
        """Is the message about any of these passages?

        Args:
            matched: which of the words stand in each of them: `Candidate.matched`.
            nearest: the highest raw cosine of any of them; None without an embedder.
        """
        weights = self.weights
        if not self.mass:
            nothing = dict.fromkeys(("nearest", "covered", "known", "named", "brief"), 0.0)
            return GateDecision(False, 0.0, weights.threshold, nothing)
        held = max(
            (
                math.fsum(weight for i, weight in self.mass.items() if found >> i & 1)
                for found in {m & self.bits for m in matched}
            ),
            default=0.0,
        )
        terms = {
            "nearest": round(weights.nearest * min(1.0, max(0.0, nearest or 0.0)), DIGITS),
            "covered": round(weights.covered * held / (self.total + weights.doubt), DIGITS),
            **self.terms,
        }
        value = round(math.fsum(terms.values()), DIGITS)
        return GateDecision(value >= weights.threshold, value, weights.threshold, terms)


def question(
    lookup: Sequence[str], frequencies: Sequence[int], passages: int, weights: GateWeights, message: str = ""
) -> Question:
    """What of a message does not depend on single passages; the arguments are those of the function `decide`."""
    mass = {i: idf(frequencies[i], passages) for i in subject(lookup)} if passages > 0 else {}
    if not mass:
        return Question(weights, {}, 0, 0.0, {})
    total = math.fsum(mass.values())
    known = math.fsum(weight for i, weight in mass.items() if frequencies[i] > 0)
    written = names_said(message)
    names = [frequencies[i] > 0 for i in mass if lookup[i] in written]
    terms = {
        "known": round(weights.known * known / total, DIGITS),
        "named": round(weights.named * (sum(names) / len(names) if names else 1.0), DIGITS),
        "brief": round(weights.brief * (1 - min(1.0, total / (weights.length * idf(0, passages)))), DIGITS),
    }
    return Question(weights, mass, reduce(or_, (1 << i for i in mass)), total, terms)


def decide(
    lookup: Sequence[str],
    frequencies: Sequence[int],
    passages: int,
    matched: Iterable[int],
    nearest: float | None = None,
    weights: GateWeights | None = None,
    message: str = "",
) -> GateDecision:
    """Decides for a message.

    Args:
        lookup: the content words of the message and the names in it, folded: `Query.lookup`.
        frequencies: in how many of the scope's passages each of them stands.
        passages: how many passages the scope has.
        matched: for passages of the scope (the candidates are enough), which of the words stand in them:
            `Candidate.matched`.
        nearest: the highest raw cosine of any passage; None without an embedder.
        weights: those of the embedder; by default `WITH_EMBEDDER` or, without a cosine, `WITHOUT_EMBEDDER`.
        message: the message as it was written, for its capital letters. Without it no word counts as a name.
    """
    if weights is None:
        weights = WITHOUT_EMBEDDER if nearest is None else WITH_EMBEDDER
    return question(lookup, frequencies, passages, weights, message).decide(matched, nearest)
