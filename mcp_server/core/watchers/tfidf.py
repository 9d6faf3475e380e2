"""TF-IDF: how much of a message a topic is about, and how much of the topic a message is about (S4 §4.2).

    score   = √(cosine · covered) · (1 − unlike)
    cosine  = of the TF-IDF vectors of message and profile
    covered = √(share of the message's squared weight whose words stand in the profile)
    unlike  = √(share of the message's squared weight whose words stand in the topic's `not_for`)

    weight  = (1 + ln count) · (1 + ln((1 + topics) / (1 + topics that say it)))

A playbook has a hundred words and a message ten, so the cosine alone stays small however well they fit, and smaller
the more the playbook explains; `covered` is the cosine of the message with what of it the topic knows, and cannot tell
a topic that is all about it from one that mentions it. Their geometric mean separates what a topic is for from what
only shares a word with it better than either, and lies where S4's table expects it: most of what fits over 0.2, most
of the rest under it. Words that no topic says count too: "who invented e-mail" is about e-mail by half.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mcp_server.core.watchers.profiles import Profile

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
