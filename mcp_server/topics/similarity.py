"""Tier 2: every topic scored by the method that it chose (S4 §4.2), all scores in 0..1.

    tfidf      core.watchers.tfidf       (default)
    bm25       rank-bm25; the share of what the message's words could reach at most
    jaccard    core.watchers.overlap     shared words
    ngrams     core.watchers.overlap     shared 3-grams of characters
    sentiment  VADER; how unhappy the message is
    embedder   cosine of the embeddings, where the workspace has an embedder; else tfidf

Profiles are computed once per change of the topics, and what a method needs when the first topic chose it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from mcp_server.text.words import words
from mcp_server.topics import gate
from mcp_server.topics.text_similarity import (
    DIGITS,
    NONE,
    Grams,
    Jaccard,
    Likeness,
    Profile,
    TfIdf,
    Weights,
    compared,
    lessened,
    profile,
    stems,
    unlike,
)
from mcp_server.topics.topic import Method, Topic

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from mcp_server.embed import Embedder
    from mcp_server.memory import Memory
    from mcp_server.storage.topic_files import TopicSet

STEMS_KEPT = 50_000
MOST_PHRASES = 24
"""Of a topic's `not_for` that are embedded."""


def similarity(memory: Memory, topics: TopicSet) -> Similarity:
    """Tier 2 of these topics, made with the first question."""
    return topics.derived("similarity", lambda: Similarity(topics.topics, memory.embedder))


class Similarity:
    """Tier 2 of a set of topics. Blocks for a millisecond a message; the first one computes what is kept."""

    def __init__(self, topics: Mapping[str, Topic], embedder: Embedder | None) -> None:
        self._topics = topics
        self._embedder = embedder
        self._stem = _stemmer()

    def likenesses(self, message: str, names: Iterable[str]) -> dict[str, Likeness]:
        """How like the topics of these names a message is, each by its own method. All of them are in the answer."""
        text = compared(message)
        said = stems(text, self._stem)
        vector = self._weights.vector(said)
        by_method: dict[Method, list[str]] = {}
        for name in names:
            by_method.setdefault(self._method(self._topics[name]), []).append(name)
        found: dict[str, Likeness] = {}
        for method, wanted in by_method.items():
            scored = self._scored(method, text, said, vector, wanted)
            for name in wanted:
                against = unlike(self._profiles[name], vector)
                found[name] = lessened(scored.get(name, NONE), against)
        return found

    def meant(self, message: str, names: Iterable[str]) -> dict[str, float]:
        """What the embeddings say for topics (`core.watchers.gate`); empty without an embedder."""
        if self._embedder is None:
            return {}
        vector = self._embedder.embed([compared(message)])[0]
        common = gate.COMMON if self._embedder.name == "wordllama" else None
        found: dict[str, float] = {}
        for name in names:
            its, others = self._meaning(name)
            meant = gate.meant(float(its @ vector), [float(one) for one in others @ vector], common)
            if meant is not None:
                found[name] = meant
        return found

    def words(self, name: str, most: int) -> list[str]:
        """The stems that are most a topic's own, by their weight in its profile."""
        weighed = self._weights.vector(self._profiles[name].stems)
        return sorted(weighed, key=lambda stem: (-weighed[stem], stem))[:most]

    def keywords(self, name: str, most: int) -> tuple[str, ...]:
        """The keywords that a topic names, else the words that are most its own, as it writes them first."""
        named = self._topics[name].keywords
        if named:
            return named[:most]
        written: dict[str, str] = {}
        for word in words(self._profiles[name].text):
            written.setdefault(self._stem(word), word)
        return tuple(written[stem] for stem in self.words(name, most) if stem in written)

    def stems(self, text: str) -> list[str]:
        """A text as the profiles are written."""
        return stems(text, self._stem)

    def _method(self, topic: Topic) -> Method:
        return "tfidf" if topic.similarity == "embedder" and self._embedder is None else topic.similarity

    def _scored(
        self, method: Method, text: str, said: Sequence[str], vector: Mapping[str, float], names: Sequence[str]
    ) -> Mapping[str, Likeness]:
        match method:
            case "tfidf":
                return self._tfidf.likenesses(vector, names)
            case "jaccard":
                return self._jaccard.likenesses(said)
            case "ngrams":
                return self._grams.likenesses(text)
            case "bm25":
                return self._bm25.likenesses(said)
            case "sentiment":
                return dict.fromkeys(names, self._unhappy(text))
            case "embedder":
                return self._embedded(text, names)

    @cached_property
    def _profiles(self) -> dict[str, Profile]:
        return {name: profile(topic, self._stem) for name, topic in self._topics.items()}

    @cached_property
    def _weights(self) -> Weights:
        return Weights(self._profiles.values())

    def _of(self, method: Method) -> list[Profile]:
        return [self._profiles[name] for name, topic in self._topics.items() if self._method(topic) == method]

    @cached_property
    def _tfidf(self) -> TfIdf:
        return TfIdf(self._of("tfidf"), self._weights)

    @cached_property
    def _jaccard(self) -> Jaccard:
        return Jaccard(self._of("jaccard"))

    @cached_property
    def _grams(self) -> Grams:
        return Grams(self._of("ngrams"))

    @cached_property
    def _bm25(self) -> Bm25:
        return Bm25(self._of("bm25"), self._weights)

    @cached_property
    def _sentiment(self) -> Any:
        from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer

        return SentimentIntensityAnalyzer()

    def _unhappy(self, text: str) -> Likeness:
        score = round(max(0.0, -float(self._sentiment.polarity_scores(text)["compound"])), DIGITS)
        return Likeness(score, {"unhappy": score})

    @cached_property
    def _meanings(self) -> dict[str, tuple[NDArray[np.float32], NDArray[np.float32]]]:
        return {}

    def _meaning(self, name: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The vectors of a topic and of what it is not for, computed when it is first asked about."""
        if name not in self._meanings:
            assert self._embedder is not None
            phrases = self._topics[name].not_for[:MOST_PHRASES]
            vectors = self._embedder.embed([self._profiles[name].text, *phrases])
            self._meanings[name] = vectors[0], vectors[1:]
        return self._meanings[name]

    def _embedded(self, text: str, names: Sequence[str]) -> dict[str, Likeness]:
        assert self._embedder is not None
        vector = self._embedder.embed([text])[0]
        found: dict[str, Likeness] = {}
        for name in names:
            cosine = round(max(0.0, float(self._meaning(name)[0] @ vector)), DIGITS)
            found[name] = Likeness(cosine, {"cosine": cosine})
        return found


class Bm25:
    """BM25 of the topics' profiles, as a share of what the message's words would give in a profile full of them."""

    def __init__(self, profiles: Sequence[Profile], weights: Weights) -> None:
        from rank_bm25 import BM25Okapi

        self._topics = [one.topic for one in profiles]
        self._weights = weights
        self._scorer = BM25Okapi([list(one.stems) or [""] for one in profiles]) if profiles else None

    def likenesses(self, message: Sequence[str]) -> dict[str, Likeness]:
        """How like each topic a message of these stems is."""
        said = list(dict.fromkeys(message))
        if self._scorer is None or not said:
            return {}
        # Its own IDF is negative for what most topics say, and with one topic for everything.
        self._scorer.idf = {stem: self._weights.idf(stem) for stem in said}
        most = sum(self._scorer.idf.values()) * (self._scorer.k1 + 1)
        found: dict[str, Likeness] = {}
        for topic, score in zip(self._topics, self._scorer.get_scores(said), strict=True):
            if score > 0:
                share = round(min(1.0, float(score) / most), DIGITS)
                found[topic] = Likeness(share, {"bm25": share})
        return found


@lru_cache(maxsize=1)
def _stemmer() -> Callable[[str], str]:
    """Porter's stemmer for English; other languages keep most of their words as they are."""
    import snowballstemmer

    cut: Callable[[str], str] = snowballstemmer.stemmer("english").stemWord
    return lru_cache(maxsize=STEMS_KEPT)(cut)
