"""The active topics of a conversation, since when, and why.

A topic stays active for some exchanges after it fired. One that the user activated stays until the user deactivates it,
and one that the user deactivated stays out. A correction stays until the agent's next turn. Losing all of this does no
harm: topics fire again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

MOST_PAYLOADS = 3
"""Payloads of webhooks that a topic keeps."""

MOST_CORRECTIONS = 10
MOST_AHEAD = 5


@dataclass(frozen=True, slots=True)
class Payload:
    """The content of an event: `sender` is its source (`webhook email/new_message`), `at` its time in ISO 8601."""

    sender: str
    at: str
    text: str


@dataclass(frozen=True, slots=True)
class Activation:
    """One topic of a conversation. `fired` is the last exchange in which it fired, `by` the reason in words.

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
        """Returns whether it is active at this exchange. `ttl`: exchanges that it stays after it fired."""
        return not self.off and (self.manual or exchange - self.fired <= ttl)


@dataclass(frozen=True, slots=True)
class Correction:
    """A hint for the agent after its turn number `turn`, which a trigger of `topic` matched."""

    topic: str
    hint: str
    turn: int


@dataclass(frozen=True, slots=True)
class Activations:
    """The stored activations of one conversation. `ahead` holds fingerprints of messages that were judged before they
    were recorded: a client's hook reports a prompt before its transcript does."""

    topics: Mapping[str, Activation] = field(default_factory=dict)
    corrections: tuple[Correction, ...] = ()
    ahead: tuple[str, ...] = ()

    def living(self, exchange: int, ttl: int) -> dict[str, Activation]:
        """Returns the topics that are active at this exchange, by name."""
        return {name: one for name, one in self.topics.items() if one.lives(exchange, ttl)}

    @property
    def off(self) -> frozenset[str]:
        """The topics that the user deactivated."""
        return frozenset(name for name, one in self.topics.items() if one.off)

    def fired(self, found: Iterable[Activation], exchange: int, ttl: int) -> Activations:
        """Returns a copy in which these topics fired, without topics that have expired."""
        topics = dict(self.topics)
        for one in found:
            known = topics.get(one.name)
            if known is not None and known.off:
                continue
            topics[one.name] = _again(known, one) if known and known.lives(exchange, ttl) else one
        kept = {name: one for name, one in topics.items() if one.off or one.lives(exchange, ttl)}
        return replace(self, topics=kept)

    def answered(self, turn: int, corrections: Sequence[Correction]) -> Activations:
        """Returns a copy after an agent's turn of this number, with the new corrections instead of earlier ones."""
        still = [one for one in self.corrections if one.turn >= turn and one not in corrections]
        return replace(self, corrections=tuple([*still, *corrections][-MOST_CORRECTIONS:]))

    def switched(self, name: str, *, on: bool, exchange: int, by: str) -> Activations:
        """Returns a copy in which the user activated or deactivated one topic."""
        known = self.topics.get(name, Activation(name))
        one = replace(known, fired=exchange, by=by, manual=on, off=not on, payloads=known.payloads if on else ())
        return replace(self, topics={**self.topics, name: one})

    def judged_ahead(self, text: str) -> Activations:
        """Returns a copy that marks this message as judged."""
        return replace(self, ahead=(*self.ahead, fingerprint(text))[-MOST_AHEAD:])

    def recorded(self, text: str) -> Activations:
        """Returns a copy without that mark, because the message is recorded now."""
        return replace(self, ahead=tuple(mark for mark in self.ahead if mark != fingerprint(text)))

    def to_json(self) -> dict[str, Any]:
        """Returns JSON values; `from_json` restores an equal value."""
        topics = {name: asdict(one) for name, one in self.topics.items()}
        for fields in topics.values():
            del fields["name"]
        return {"topics": topics, "corrections": [*map(asdict, self.corrections)], "ahead": list(self.ahead)}

    @classmethod
    def from_json(cls, stored: Any) -> Activations:
        """Returns the stored activations; empty if they cannot be read."""
        try:
            return cls(
                {str(name): _activation(str(name), one) for name, one in stored["topics"].items()},
                tuple(Correction(str(c["topic"]), str(c["hint"]), int(c["turn"])) for c in stored["corrections"]),
                tuple(map(str, stored["ahead"])),
            )
        except (AttributeError, KeyError, TypeError, ValueError):
            return cls()


PIECE = 1_000_000
"""Characters that are hashed at a time."""


def fingerprint(text: str) -> str:
    """Returns a short hash of a message that ignores differences in white space. Reads it in pieces, because splitting
    a message of many megabytes at once takes ten times its size."""
    digest = hashlib.sha256()
    begun = ""  # a word that continues in the next piece
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
    """Returns an active topic after it fired once more."""
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
        people=tuple(map(str, stored["people"])),
        payloads=tuple(Payload(str(p["sender"]), str(p["at"]), str(p["text"])) for p in stored["payloads"]),
    )
