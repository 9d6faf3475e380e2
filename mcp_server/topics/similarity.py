"""Tier 2: scores every topic by its own method, 0..1.

    tfidf      √(cosine of the TF-IDF vectors · share of the message that the topic covers), the default
    bm25       rank-bm25, as a share of the highest value that the message's words can reach
    jaccard    shared words
    ngrams     shared 3-grams of characters
    sentiment  VADER: how unhappy the message is
    embedder   cosine of the embeddings if the workspace has an embedder, else tfidf

Jaccard and 3-grams (intersection over union) compare a message with each piece of a topic (its head, a paragraph, a
list item) and use the best value, because a message of one line would never reach a threshold against a whole playbook.
3-grams tolerate misspellings.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from mcp_server.text.words import ENGLISH_STOP_WORDS, words
from mcp_server.topics.topic import Method, Topic

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from mcp_server.embed import Embedder
    from mcp_server.memory import Memory
    from mcp_server.storage.topics import TopicSet


Stem = Callable[[str], str]
"""Returns the stem of a folded word."""

HEAD, TAIL = 3_000, 1_500
"""Characters at the beginning and end of a message that are compared; between them is mostly pasted text."""

LONGEST_TOPIC = 20_000
"""Characters of a topic's instructions that are compared."""

_PIECE = re.compile(r"\n[ \t]*\n|\n(?=[ \t]*(?:[-*+]|\d+[.)])[ \t])|\n(?=#{1,6} )")
_ESCAPE = re.compile(r"\\[A-Za-z]|\\u[0-9a-fA-F]{4}|\[[^\]]*\]|\{[\d,]*\}|\(\?[a-zA-Z:=!<]*")
_OPTIONAL_SIGN = re.compile(r"[-\s]\?")
_LETTERS = re.compile(r"[^\W\d_]{3,}")


@dataclass(frozen=True, slots=True)
class Profile:
    """One topic as stems: `pieces` with the head first, in order and with repetitions; `unlike` are stems of `not_for`
    that the topic does not use itself. `text` is the embedder's input."""

    topic: str
    pieces: tuple[tuple[str, ...], ...]
    unlike: frozenset[str]
    text: str

    @property
    def stems(self) -> tuple[str, ...]:
        """All stems, with repetitions."""
        return tuple(stem for piece in self.pieces for stem in piece)


def profile(topic: Topic, stem: Stem) -> Profile:
    """Returns the profile of a topic."""
    head = "\n".join((topic.name.replace("-", " "), topic.description, " ".join(topic.keywords), trigger_words(topic)))
    body = [piece.strip() for piece in _PIECE.split(topic.instructions[:LONGEST_TOPIC]) if piece.strip()]
    pieces = tuple(tuple(stems(piece, stem)) for piece in (head, *body))
    said = {one for piece in pieces for one in piece}
    unlike = frozenset(stems("\n".join(topic.not_for), stem)) - said
    return Profile(topic.name, tuple(piece for piece in pieces if piece), unlike, "\n".join((head, *body)))


def compared_part(message: str) -> str:
    """Returns the part of a message that is compared: all of it unless it is very long."""
    return message if len(message) <= HEAD + TAIL else f"{message[:HEAD]}\n{message[-TAIL:]}"


def stems(text: str, stem: Stem) -> list[str]:
    """Returns the stems of a text's content words in order, with repetitions; single letters are left out."""
    return [stem(word) for word in words(text) if len(word) > 1 and word not in ENGLISH_STOP_WORDS]


def trigger_words(topic: Topic) -> str:
    """Returns the words of a topic's triggers on users' messages; of a regular expression only its literal letters."""
    found: list[str] = []
    for one in topic.triggers:
        if one.scope == "output":
            continue
        if one.kind in ("keywords", "mention"):
            found += one.match
        elif one.kind == "pattern":
            found += _LETTERS.findall(_OPTIONAL_SIGN.sub("", _ESCAPE.sub(" ", one.match[0])).replace("?", ""))
    return " ".join(found)


DIGITS = 6


@dataclass(frozen=True, slots=True)
class Likeness:
    """How similar a message is to a topic: `score` (0..1) is computed from the named `terms`."""

    score: float
    terms: Mapping[str, float]


NONE = Likeness(0.0, {})


def _likeness(term: str, value: float) -> Likeness:
    """Returns a similarity that is a single term."""
    score = round(value, DIGITS)
    return Likeness(score, {term: score})


class Weights:
    """The weight of each word among a set of topics: rare words weigh more."""

    def __init__(self, profiles: Iterable[Profile]) -> None:
        self._said_by: Counter[str] = Counter()
        self._topics = 0
        for one in profiles:
            self._topics += 1
            self._said_by.update(set(one.stems))

    def idf(self, stem: str) -> float:
        """Returns the inverse document frequency, 1 or more."""
        return math.log((1 + self._topics) / (1 + self._said_by[stem])) + 1

    def vector(self, stems: Iterable[str]) -> dict[str, float]:
        """Returns the TF-IDF vector of a text with length 1; empty without words."""
        weighed = {stem: (1 + math.log(count)) * self.idf(stem) for stem, count in Counter(stems).items()}
        length = math.sqrt(math.fsum(weight * weight for weight in weighed.values()))
        return {stem: weight / length for stem, weight in weighed.items()}


def tfidf(message: Mapping[str, float], topic: Mapping[str, float]) -> Likeness:
    """Returns the similarity of a message and a topic by their TF-IDF vectors."""
    shared = message.keys() & topic.keys()
    if not shared:
        return NONE
    cosine, covered = math.fsum(message[stem] * topic[stem] for stem in shared), _length(message, shared)
    score = min(1.0, math.sqrt(cosine * covered))
    return Likeness(round(score, DIGITS), {"cosine": round(cosine, DIGITS), "covered": round(covered, DIGITS)})


def unlike(profile: Profile, message: Mapping[str, float]) -> float:
    """Returns how much of a message (its TF-IDF vector) consists of words of the topic's `not_for`, 0..1."""
    return _length(message, message.keys() & profile.unlike) if profile.unlike else 0.0


def _length(message: Mapping[str, float], stems: Iterable[str]) -> float:
    """Returns the length of a vector's projection on these stems."""
    return min(1.0, math.sqrt(math.fsum(message[stem] * message[stem] for stem in stems)))


def reduced(likeness: Likeness, against: float) -> Likeness:
    """Returns a similarity reduced by the factor 1 − `against`."""
    if not against:
        return likeness
    return Likeness(round(likeness.score * (1 - against), DIGITS), {**likeness.terms, "unlike": round(against, DIGITS)})


GRAM = 3


def jaccard(message: Set[str], pieces: Iterable[Set[str]], term: str) -> Likeness:
    """Returns the similarity of a message to the best piece of a topic, as sets of words or 3-grams. `term` is the
    method's name."""
    sizes = ((len(message & piece), len(message) + len(piece)) for piece in pieces)
    shares = [both / (size - both) for both, size in sizes if both]
    return _likeness(term, max(shares)) if shares else NONE


def grams(text: str) -> Iterator[str]:
    """Yields the character 3-grams of a text's folded words, which are joined by single spaces."""
    joined = f" {' '.join(words(text))} "
    return (joined[start : start + GRAM] for start in range(len(joined) - GRAM + 1))


COMMON = 0.17
"""wordllama's cosine between a message and the nearest of some unrelated texts."""


def meant(cosine: float, unlike: Sequence[float], common: float | None = COMMON) -> float | None:
    """Returns the cosine of message and topic minus the greater of `common` and the best cosine with a text of its
    `not_for`.

    `common` is None for embedders for which it was not measured. Returns None if there is nothing to compare with.
    """
    others = [*unlike, *(() if common is None else (common,))]
    return cosine - max(others) if others else None


STEMS_KEPT = 50_000
MOST_PHRASES = 24
"""Texts of a topic's `not_for` that are embedded."""


def similarity(memory: Memory, topics: TopicSet) -> Similarity:
    """Returns the tier 2 of these topics, made on first use."""
    return topics.derived("similarity", lambda: Similarity(topics.topics, memory.embedder))


class Similarity:
    """Tier 2 of a set of topics. Blocks for about a millisecond per message; the first message fills the caches."""

    def __init__(self, topics: Mapping[str, Topic], embedder: Embedder | None) -> None:
        self._topics = topics
        self._embedder = embedder
        self._stem = _stemmer()
        self._meanings: dict[str, tuple[NDArray[np.float32], NDArray[np.float32]]] = {}

    def likenesses(self, message: str, names: Iterable[str]) -> dict[str, Likeness]:
        """Returns the similarity of a message to each of the named topics, by the topic's own method."""
        text = compared_part(message)
        said = self.stems(text)
        vector = self._weights.vector(said)
        by_method: dict[Method, list[str]] = {}
        for name in names:
            by_method.setdefault(self._method(name), []).append(name)
        found: dict[str, Likeness] = {}
        for method, wanted in by_method.items():
            scored = self._scored(method, text, said, vector, wanted)
            for name in wanted:
                found[name] = reduced(scored.get(name, NONE), unlike(self._profiles[name], vector))
        return found

    def meant(self, message: str, names: Sequence[str]) -> dict[str, float]:
        """Returns, for each named topic, the function `meant` of the embeddings; empty without an embedder."""
        if self._embedder is None or not names:
            return {}
        vector = self._embedder.embed([compared_part(message)])[0]
        common = COMMON if self._embedder.name == "wordllama" else None
        found: dict[str, float] = {}
        for name in names:
            its, others = self._meaning(self._embedder, name)
            gained = meant(float(its @ vector), [float(one) for one in others @ vector], common)
            if gained is not None:
                found[name] = gained
        return found

    def words(self, name: str, most: int) -> list[str]:
        """Returns the stems with the highest weight in a topic's profile."""
        weighed = self._vectors[name]
        return sorted(weighed, key=lambda stem: (-weighed[stem], stem))[:most]

    def typical_words(self, name: str, most: int) -> tuple[str, ...]:
        """Returns the words whose stems have the highest weight in a topic, in the spelling that it uses first."""
        written: dict[str, str] = {}
        for word in words(self._profiles[name].text):
            written.setdefault(self._stem(word), word)
        return tuple(written[stem] for stem in self.words(name, most) if stem in written)

    def stems(self, text: str) -> list[str]:
        """Returns the stems of a text, as profiles have them."""
        return stems(text, self._stem)

    def _method(self, name: str) -> Method:
        method = self._topics[name].similarity
        return "tfidf" if method == "embedder" and self._embedder is None else method

    def _scored(
        self, method: Method, text: str, said: Sequence[str], vector: Mapping[str, float], names: Sequence[str]
    ) -> Mapping[str, Likeness]:
        match method:
            case "tfidf":
                return {name: tfidf(vector, self._vectors[name]) for name in names}
            case "jaccard":
                return {name: jaccard({*said}, self._word_sets[name], "jaccard") for name in names}
            case "ngrams":
                parts = {*grams(text)}
                return {name: jaccard(parts, self._gram_sets[name], "ngrams") for name in names}
            case "bm25":
                return self._by_bm25(list(dict.fromkeys(said)))
            case "sentiment":
                unhappy = max(0.0, -float(self._sentiment.polarity_scores(text)["compound"]))
                return dict.fromkeys(names, _likeness("unhappy", unhappy))
            case "embedder":
                assert self._embedder is not None
                (said_vector,) = self._embedder.embed([text])
                near = {name: float(self._meaning(self._embedder, name)[0] @ said_vector) for name in names}
                return {name: _likeness("cosine", max(0.0, cosine)) for name, cosine in near.items()}

    @cached_property
    def _profiles(self) -> dict[str, Profile]:
        return {name: profile(topic, self._stem) for name, topic in self._topics.items()}

    @cached_property
    def _weights(self) -> Weights:
        return Weights(self._profiles.values())

    @cached_property
    def _vectors(self) -> dict[str, dict[str, float]]:
        return {name: self._weights.vector(one.stems) for name, one in self._profiles.items()}

    @cached_property
    def _word_sets(self) -> dict[str, list[frozenset[str]]]:
        return {name: [frozenset(piece) for piece in one.pieces] for name, one in self._profiles.items()}

    @cached_property
    def _gram_sets(self) -> dict[str, list[frozenset[str]]]:
        profiles = self._profiles.items()
        return {name: [frozenset(grams(line)) for line in one.text.split("\n")] for name, one in profiles}

    @cached_property
    def _bm25(self) -> tuple[list[Profile], Any]:
        from rank_bm25 import BM25Okapi

        profiles = [one for name, one in self._profiles.items() if self._method(name) == "bm25"]
        return profiles, BM25Okapi([list(one.stems) or [""] for one in profiles])

    def _by_bm25(self, said: Sequence[str]) -> dict[str, Likeness]:
        """Returns BM25 of the topics with this method, as a share of the highest value that the message can reach."""
        if not said:
            return {}
        profiles, scorer = self._bm25
        # The library's own IDF is negative for words that most topics use, and for all words if there is one topic.
        scorer.idf = {stem: self._weights.idf(stem) for stem in said}
        most = sum(scorer.idf.values()) * (scorer.k1 + 1)
        scores = zip(profiles, scorer.get_scores(said), strict=True)
        return {one.topic: _likeness("bm25", min(1.0, float(score) / most)) for one, score in scores if score > 0}

    @cached_property
    def _sentiment(self) -> Any:
        from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer

        return SentimentIntensityAnalyzer()

    def _meaning(self, embedder: Embedder, name: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Returns the vectors of a topic and of its `not_for`, computed on first use."""
        if name not in self._meanings:
            phrases = self._topics[name].not_for[:MOST_PHRASES]
            vectors = embedder.embed([self._profiles[name].text, *phrases])
            self._meanings[name] = vectors[0], vectors[1:]
        return self._meanings[name]


@lru_cache(maxsize=1)
def _stemmer() -> Callable[[str], str]:
    """Returns the Snowball (Porter2) stemmer for English; it leaves most words of other languages as they are."""
    import snowballstemmer

    cut: Callable[[str], str] = snowballstemmer.stemmer("english").stemWord
    return lru_cache(maxsize=STEMS_KEPT)(cut)
