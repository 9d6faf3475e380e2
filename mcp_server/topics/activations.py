"""Activations: which topics are in a conversation now, since when, and what brought them.

A topic stays for some exchanges after it last fired; one that the user activated stays until they deactivate it, and
one that they deactivated stays out. A correction stays until the agent speaks again. All of it can be lost without
harm: topics fire again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

MOST_PAYLOADS = 3
"""Of a topic: what webhooks sent last."""

MOST_CORRECTIONS = 10
MOST_AHEAD = 5


@dataclass(frozen=True, slots=True)
class Payload:
    """What came with an event: `sender` says from where (`webhook email/new_message`), `at` when, in ISO 8601."""

    sender: str
    at: str
    text: str


@dataclass(frozen=True, slots=True)
class Activation:
    """One topic of a conversation. `fired` is the exchange in which it last did; `by` says what set it off, in words.

    `manual`: the user activated it; `off`: the user deactivated it. `people` are names that were mentioned.
    """

    name: str
    fired: int = 0
    by: str = ""
    score: float | None = None
    manual: bool = False
    off: bool = False
    people: tuple[str, ...] = ()
    payloads: tuple[Payload, ...] = ()

    def lives(self, exchange: int, ttl: int) -> bool:
        """Is it in the conversation at this exchange, `ttl` being the exchanges that it stays after it fired?"""
        return not self.off and (self.manual or exchange - self.fired <= ttl)


@dataclass(frozen=True, slots=True)
class Correction:
    """What an agent is told after its turn number `turn`, which a trigger of `topic` matched."""

    topic: str
    hint: str
    turn: int


@dataclass(frozen=True, slots=True)
class Activations:
    """What is stored of one conversation. `ahead` holds fingerprints of messages that were judged before they were
    recorded (a client's hook says a prompt before its transcript does)."""

    topics: Mapping[str, Activation] = field(default_factory=dict)
    corrections: tuple[Correction, ...] = ()
    ahead: tuple[str, ...] = ()

    def living(self, exchange: int, ttl: int) -> dict[str, Activation]:
        """The topics that are in the conversation at this exchange, by name."""
        return {name: one for name, one in self.topics.items() if one.lives(exchange, ttl)}

    @property
    def off(self) -> frozenset[str]:
        """The topics that the user deactivated."""
        return frozenset(name for name, one in self.topics.items() if one.off)

    def fired(self, found: Iterable[Activation], exchange: int, ttl: int) -> Activations:
        """With these topics fired anew, and without those whose time is over."""
        topics = dict(self.topics)
        for one in found:
            known = topics.get(one.name)
            if known is not None and known.off:
                continue
            topics[one.name] = _again(known, one) if known and known.lives(exchange, ttl) else one
        kept = {name: one for name, one in topics.items() if one.off or one.lives(exchange, ttl)}
        return replace(self, topics=kept)

    def answered(self, turn: int, corrections: Sequence[Correction]) -> Activations:
        """After an agent's turn of this number: earlier corrections are done with, these are new."""
        still = [one for one in self.corrections if one.turn >= turn and one not in corrections]
        return replace(self, corrections=tuple([*still, *corrections][-MOST_CORRECTIONS:]))

    def switched(self, name: str, *, on: bool, exchange: int, by: str) -> Activations:
        """With one topic activated or deactivated by the user."""
        known = self.topics.get(name, Activation(name))
        one = replace(known, fired=exchange, by=by, manual=on, off=not on, payloads=known.payloads if on else ())
        return replace(self, topics={**self.topics, name: one})

    def judged_ahead(self, text: str) -> Activations:
        """With this message noted as judged."""
        return replace(self, ahead=(*self.ahead, fingerprint(text))[-MOST_AHEAD:])

    def recorded(self, text: str) -> Activations:
        """Without that note: the message is recorded now."""
        return replace(self, ahead=tuple(mark for mark in self.ahead if mark != fingerprint(text)))

    def to_json(self) -> dict[str, Any]:
        """As it is stored; `from_json` gives an equal value back."""
        return {
            "topics": {
                one.name: {
                    "fired": one.fired,
                    "by": one.by,
                    "score": one.score,
                    "manual": one.manual,
                    "off": one.off,
                    "people": list(one.people),
                    "payloads": [{"sender": p.sender, "at": p.at, "text": p.text} for p in one.payloads],
                }
                for one in self.topics.values()
            },
            "corrections": [{"topic": one.topic, "hint": one.hint, "turn": one.turn} for one in self.corrections],
            "ahead": list(self.ahead),
        }

    @classmethod
    def from_json(cls, stored: Any) -> Activations:
        """What is stored; nothing where it cannot be read."""
        try:
            return cls(
                {str(name): _activation(str(name), one) for name, one in stored["topics"].items()},
                tuple(Correction(str(c["topic"]), str(c["hint"]), int(c["turn"])) for c in stored["corrections"]),
                tuple(str(mark) for mark in stored["ahead"]),
            )
        except (AttributeError, KeyError, TypeError, ValueError):
            return cls()


PIECE = 1_000_000
"""Characters."""


def fingerprint(text: str) -> str:
    """A short hash of a message, whatever its blanks. It is read piece by piece: the words of a message of many
    megabytes, all at once, take ten times its size."""
    digest = hashlib.sha256()
    begun = ""  # a word that goes on in the next piece
    between = ""
    for start in range(0, len(text), PIECE):
        piece = begun + text[start : start + PIECE]
        words = piece.split()
        begun = words.pop() if words and start + PIECE < len(text) and not piece[-1].isspace() else ""
        if words:
            digest.update((between + " ".join(words)).encode("utf-8", "replace"))
            between = " "
    return digest.hexdigest()[:16]


def _again(known: Activation, new: Activation) -> Activation:
    """A topic that is in the conversation and fires once more."""
    return replace(
        new,
        fired=max(known.fired, new.fired),
        manual=known.manual,
        people=tuple(dict.fromkeys((*known.people, *new.people))),
        payloads=(*known.payloads, *new.payloads)[-MOST_PAYLOADS:],
    )


def _activation(name: str, stored: Any) -> Activation:
    return Activation(
        name=name,
        fired=int(stored["fired"]),
        by=str(stored["by"]),
        score=None if stored["score"] is None else float(stored["score"]),
        manual=stored["manual"] is True,
        off=stored["off"] is True,
        people=tuple(str(person) for person in stored["people"]),
        payloads=tuple(Payload(str(p["sender"]), str(p["at"]), str(p["text"])) for p in stored["payloads"]),
    )
