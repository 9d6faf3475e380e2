"""Overlap: Jaccard of words, and of character 3-grams by MinHash (S4 §4.2). |A ∩ B| / |A ∪ B|, 0..1.

Both compare a message with each piece of a topic (its head, a paragraph, a list item) and count the best: against a
whole playbook no message of a line would ever reach a threshold.

3-grams forgive spelling: "depolyment" shares half of its own with "deployment". Their sets are compared by sketches of
`BINS` numbers, one permutation hashing: every gram is hashed once, falls into a bin by its hash, and the least of each
bin is kept; the share of bins that agree among those not empty in both estimates the index (Li, Owen and Zhang, "One
permutation hashing", 2012).
"""

from __future__ import annotations

import math
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from mcp_server.text.words import ENGLISH_STOP_WORDS, words
from mcp_server.topics.topic import Keywords, Mention, Pattern, Topic

Stem = Callable[[str], str]
"""Cuts one folded word to its stem."""

HEAD, TAIL = 3_000, 1_500
"""Characters of a message that are compared, at its beginning and its end: between them people paste what they have."""

LONGEST_TOPIC = 20_000
"""Characters of a topic's instructions that are compared."""

_PIECE = re.compile(r"\n[ \t]*\n|\n(?=[ \t]*(?:[-*+]|\d+[.)])[ \t])|\n(?=#{1,6} )")
_ESCAPE = re.compile(r"\\[A-Za-z]|\\u[0-9a-fA-F]{4}|\[[^\]]*\]|\{[\d,]*\}|\(\?[a-zA-Z:=!<]*")
_OPTIONAL_SIGN = re.compile(r"[-\s]\?")
_LETTERS = re.compile(r"[^\W\d_]{3,}")


@dataclass(frozen=True, slots=True)
class Profile:
    """One topic as stems: `pieces` with the head first, in order and with repetitions; `unlike` without what the
    profile says itself. `text` is what an embedder is given."""

    topic: str
    pieces: tuple[tuple[str, ...], ...]
    unlike: frozenset[str]
    text: str

    @property
    def stems(self) -> tuple[str, ...]:
        """All of them, with repetitions."""
        return tuple(stem for piece in self.pieces for stem in piece)


def profile(topic: Topic, stem: Stem) -> Profile:
    """The profile of a topic."""
    head = "\n".join((topic.name.replace("-", " "), topic.description, " ".join(topic.keywords), trigger_words(topic)))
    body = [piece.strip() for piece in _PIECE.split(topic.instructions[:LONGEST_TOPIC]) if piece.strip()]
    pieces = tuple(tuple(stems(piece, stem)) for piece in (head, *body))
    said = {one for piece in pieces for one in piece}
    unlike = frozenset(stems("\n".join(topic.not_for), stem)) - said
    return Profile(topic.name, tuple(piece for piece in pieces if piece), unlike, "\n".join((head, *body)))


def compared(message: str) -> str:
    """The part of a message that is compared: all of an ordinary one."""
    return message if len(message) <= HEAD + TAIL else f"{message[:HEAD]}\n{message[-TAIL:]}"


def stems(text: str, stem: Stem) -> list[str]:
    """The stems of a text's content words in order, with repetitions; single letters are none."""
    return [stem(word) for word in words(text) if len(word) > 1 and word not in ENGLISH_STOP_WORDS]


def trigger_words(topic: Topic) -> str:
    """The words that a topic's triggers on what people say are made of; of regular expressions the letters that stand
    in them as they are."""
    found: list[str] = []
    for one in topic.triggers:
        if isinstance(one, Keywords) and one.scope != "output":
            found += one.words
        elif isinstance(one, Mention) and one.scope != "output":
            found += one.names
        elif isinstance(one, Pattern) and one.scope != "output":
            literal = _OPTIONAL_SIGN.sub("", _ESCAPE.sub(" ", one.match)).replace("?", "")
            found += _LETTERS.findall(literal)
    return " ".join(found)


DIGITS = 6


@dataclass(frozen=True, slots=True)
class Likeness:
    """How much a message is about a topic: `score` (0..1) is made of the named `terms`."""

    score: float
    terms: Mapping[str, float]


NONE = Likeness(0.0, {})


class Weights:
    """What each word counts among a set of topics: rare ones more."""

    def __init__(self, profiles: Iterable[Profile]) -> None:
        self._said_by: Counter[str] = Counter()
        self._topics = 0
        for one in profiles:
            self._topics += 1
            self._said_by.update(set(one.stems))

    def idf(self, stem: str) -> float:
        """At least 1: every topic says it."""
        return math.log((1 + self._topics) / (1 + self._said_by[stem])) + 1

    def vector(self, stems: Iterable[str]) -> dict[str, float]:
        """The TF-IDF vector of a text, of length 1; empty without words."""
        weighed = {stem: (1 + math.log(count)) * self.idf(stem) for stem, count in Counter(stems).items()}
        length = math.sqrt(math.fsum(weight * weight for weight in weighed.values()))
        return {stem: weight / length for stem, weight in weighed.items()}


class TfIdf:
    """The vectors of topics."""

    def __init__(self, profiles: Iterable[Profile], weights: Weights) -> None:
        self._vectors = {one.topic: weights.vector(one.stems) for one in profiles}

    def likenesses(self, message: Mapping[str, float], names: Iterable[str]) -> dict[str, Likeness]:
        """How like topics of these names a message (its TF-IDF vector) is; those that share no word with it are left
        out."""
        found: dict[str, Likeness] = {}
        said = message.keys()
        for name in names:
            vector = self._vectors[name]
            shared = said & vector.keys()
            if shared:
                cosine = math.fsum(message[stem] * vector[stem] for stem in shared)
                found[name] = _likeness(cosine, _length(message, shared))
        return found


def _likeness(cosine: float, covered: float) -> Likeness:
    score = min(1.0, math.sqrt(cosine * covered))
    return Likeness(round(score, DIGITS), {"cosine": round(cosine, DIGITS), "covered": round(covered, DIGITS)})


def unlike(profile: Profile, message: Mapping[str, float]) -> float:
    """How much of a message (its TF-IDF vector) speaks against a topic, 0..1: words of its `not_for`."""
    return _length(message, message.keys() & profile.unlike) if profile.unlike else 0.0


def _length(message: Mapping[str, float], stems: Iterable[str]) -> float:
    """How long a vector of length 1 is without what lies outside these stems."""
    return min(1.0, math.sqrt(math.fsum(message[stem] * message[stem] for stem in stems)))


def lessened(likeness: Likeness, against: float) -> Likeness:
    """A likeness of any method, with what speaks against the topic taken into account."""
    if not against:
        return likeness
    return Likeness(round(likeness.score * (1 - against), DIGITS), {**likeness.terms, "unlike": round(against, DIGITS)})


BINS = 128
GRAM = 3

Sketch = dict[int, int]
"""The least hash of every bin that is not empty."""


class Jaccard:
    """The words of every piece of all topics, by word."""

    def __init__(self, profiles: Sequence[Profile]) -> None:
        self._topics: list[str] = []
        self._sizes: list[int] = []
        self._said: dict[str, list[int]] = {}
        for one in profiles:
            for piece in one.pieces:
                for stem in set(piece):
                    self._said.setdefault(stem, []).append(len(self._topics))
                self._topics.append(one.topic)
                self._sizes.append(len(set(piece)))

    def likenesses(self, message: Sequence[str]) -> dict[str, Likeness]:
        """How like each topic a message of these stems is; topics that share no word with it are left out."""
        said = set(message)
        shared: dict[int, int] = {}
        for stem in said:
            for place in self._said.get(stem, ()):
                shared[place] = shared.get(place, 0) + 1
        found = {place: both / (len(said) + self._sizes[place] - both) for place, both in shared.items()}
        return _best(self._topics, found, "jaccard")


class Grams:
    """The sketches of every piece of all topics, by bin and hash."""

    def __init__(self, profiles: Sequence[Profile]) -> None:
        self._topics: list[str] = []
        self._filled: list[int] = []
        self._least: dict[tuple[int, int], list[int]] = {}
        for one in profiles:
            for text in one.text.split("\n"):
                sketch = sketched(text)
                for bin_and_hash in sketch.items():
                    self._least.setdefault(bin_and_hash, []).append(len(self._topics))
                self._topics.append(one.topic)
                self._filled.append(_filled(sketch))

    def likenesses(self, message: str) -> dict[str, Likeness]:
        """How like each topic a message is; topics of which no bin agrees are left out."""
        sketch = sketched(message)
        agreeing: dict[int, int] = {}
        for bin_and_hash in sketch.items():
            for place in self._least.get(bin_and_hash, ()):
                agreeing[place] = agreeing.get(place, 0) + 1
        filled = _filled(sketch)
        found = {place: both / (filled | self._filled[place]).bit_count() for place, both in agreeing.items()}
        return _best(self._topics, found, "ngrams")


def _filled(sketch: Sketch) -> int:
    """Which bins are not empty: one bit each."""
    return sum(1 << place for place in sketch)


def sketched(text: str) -> Sketch:
    """The sketch of a text's character 3-grams, over its folded words with one blank between them."""
    joined = f" {' '.join(words(text))} "
    sketch: Sketch = {}
    for gram in {joined[start : start + GRAM] for start in range(len(joined) - GRAM + 1)}:
        hashed = zlib.crc32(gram.encode("utf-8", "replace"))
        place = hashed % BINS
        if hashed < sketch.get(place, 1 << 32):
            sketch[place] = hashed
    return sketch


def _best(topics: Sequence[str], found: dict[int, float], term: str) -> dict[str, Likeness]:
    best: dict[str, float] = {}
    for place, value in found.items():
        best[topics[place]] = max(best.get(topics[place], 0.0), value)
    return {topic: Likeness(round(value, DIGITS), {term: round(value, DIGITS)}) for topic, value in best.items()}
