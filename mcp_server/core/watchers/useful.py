"""Was it useful that a topic came in (S4 §5.5 `was_useful`)? A rule, since nobody is asked.

    yes      the user activated the topic, which had been kept out
    no       the user deactivated it
    yes      an answer within its life touched a file of the topic, or used `USED` of its own words that nobody had said
    no       its life ended without any of these
    unknown  it never came in and nobody asked for it, or the conversation ended first

Its own words are the `OWN` stems that weigh most in its profile. The rule errs: an agent may follow a playbook in other
words, or use its words without it. Many lines of the log together still show which topic is a nuisance.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

OWN = 40
USED = 3


@dataclass(frozen=True, slots=True)
class Pending:
    """A decision whose use is not known yet: of `topic`, for the message of this hash, in this exchange. `active`: it
    came in. `unsaid` are its own words that the message did not hold."""

    topic: str
    message: str
    exchange: int
    active: bool
    unsaid: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As it is stored; `pending` gives an equal value back."""
        return {
            "topic": self.topic,
            "message": self.message,
            "exchange": self.exchange,
            "active": self.active,
            "unsaid": list(self.unsaid),
        }


def pending(stored: Any) -> Pending | None:
    """What is stored; None where it cannot be read."""
    if not isinstance(stored, Mapping):
        return None
    try:
        unsaid = tuple(str(stem) for stem in stored["unsaid"])
        return Pending(
            str(stored["topic"]), str(stored["message"]), int(stored["exchange"]), stored["active"] is True, unsaid
        )
    except (KeyError, TypeError, ValueError):
        return None


def used(unsaid: Collection[str], answer: Collection[str], files: Iterable[str], touched: Iterable[str]) -> bool:
    """Did an answer use a topic? `answer` are its stems; `files` those of the topic, `touched` those of its calls."""
    calls = list(touched)
    if any(_same(file, path) for file in files for path in calls):
        return True
    return len(set(unsaid) & set(answer)) >= USED


def _same(file: str, path: str) -> bool:
    """A file of the workspace, however a client writes its path."""
    steps, other = file.split("/"), path.replace("\\", "/").split("/")
    return bool(file and path) and other[-len(steps) :] == steps
