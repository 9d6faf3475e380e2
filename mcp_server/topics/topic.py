"""Topics: playbooks that are activated when their triggers fire, and the activations of a conversation.

A topic is one file under `topics/`. Triggers look at a `WatchedMessage`; a tier-1 trigger that fires gives a `Match`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from mcp_server.model import SourceFile

if TYPE_CHECKING:
    from pydantic import TypeAdapter

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
class TopicActivation:
    """The state of a topic in a conversation. `fired` is the last exchange that activated it, `by` the reason in words.

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
        """Returns whether the topic is active at this exchange. `ttl`: for how many exchanges it stays active after it
        fired."""
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

    topics: Mapping[str, TopicActivation] = field(default_factory=dict)
    corrections: tuple[Correction, ...] = ()
    ahead: tuple[str, ...] = ()

    def living(self, exchange: int, ttl: int) -> dict[str, TopicActivation]:
        """Returns the topics that are active at this exchange, by name."""
        return {name: one for name, one in self.topics.items() if one.lives(exchange, ttl)}

    @property
    def off(self) -> frozenset[str]:
        """The topics that the user deactivated."""
        return frozenset(name for name, one in self.topics.items() if one.off)

    def fired(self, found: Iterable[TopicActivation], exchange: int, ttl: int) -> Activations:
        """Returns a copy in which these topics fired, without topics that have expired."""
        topics = dict(self.topics)
        for one in found:
            known = topics.get(one.name)
            if known is not None and known.off:
                continue
            topics[one.name] = _fired_again(known, one) if known and known.lives(exchange, ttl) else one
        kept = {name: one for name, one in topics.items() if one.off or one.lives(exchange, ttl)}
        return replace(self, topics=kept)

    def answered(self, turn: int, corrections: Sequence[Correction]) -> Activations:
        """Returns a copy after an agent's turn of this number, with the new corrections instead of earlier ones."""
        still = [one for one in self.corrections if one.turn >= turn and one not in corrections]
        return replace(self, corrections=tuple([*still, *corrections][-MOST_CORRECTIONS:]))

    def switched(self, name: str, *, on: bool, exchange: int, by: str) -> Activations:
        """Returns a copy in which the user activated or deactivated one topic."""
        known = self.topics.get(name, TopicActivation(name))
        one = replace(known, fired=exchange, by=by, manual=on, off=not on, payloads=known.payloads if on else ())
        return replace(self, topics={**self.topics, name: one})

    def judged_ahead(self, text: str) -> Activations:
        """Returns a copy that marks this message as judged."""
        return replace(self, ahead=(*self.ahead, fingerprint(text))[-MOST_AHEAD:])

    def recorded(self, text: str) -> Activations:
        """Returns a copy without the mark of `judged_ahead`, because the message is recorded now."""
        return replace(self, ahead=tuple(mark for mark in self.ahead if mark != fingerprint(text)))

    @classmethod
    def from_json(cls, stored: Any) -> Activations:
        """Returns the activations that were stored with `asdict`; empty if they cannot be read."""
        try:
            topics = {name: {**one, "name": name} for name, one in stored["topics"].items()}
        except (AttributeError, KeyError, TypeError):
            return cls()
        return validated(cls, {**stored, "topics": topics}) or cls()


def validated(kind: Any, stored: object) -> Any:
    """Returns a stored JSON value as an instance of this kind, or None if it does not fit."""
    try:
        return _validator(kind).validate_python(stored)
    except ValueError:
        return None


@cache
def _validator(kind: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


_BLANKS = re.compile(r"[^\S ]\s*| \s+")
"""White space except single spaces. (Splitting a message of many megabytes into words would take ten times its size in
memory.)"""


def fingerprint(text: str) -> str:
    """Returns a short hash of a message that ignores differences in white space."""
    return hashlib.sha256(_BLANKS.sub(" ", text).strip().encode("utf-8", "replace")).hexdigest()[:16]


def _fired_again(known: TopicActivation, new: TopicActivation) -> TopicActivation:
    """Returns an active topic after it fired once more."""
    return replace(
        new,
        fired=max(known.fired, new.fired),
        manual=known.manual,
        people=tuple(dict.fromkeys((*known.people, *new.people))),
        payloads=(*known.payloads, *new.payloads)[-MOST_PAYLOADS:],
    )


Activation = Literal["auto", "gated", "manual"]
Priority = Literal["low", "medium", "high", "critical"]
Method = Literal["tfidf", "bm25", "jaccard", "ngrams", "sentiment", "embedder"]
Scope = Literal["input", "output", "both"]
Direction = Literal["input", "output"]

PRIORITIES: Mapping[Priority, int] = MappingProxyType({"critical": 3, "high": 2, "medium": 1, "low": 0})
"""Topics with higher numbers come first."""


Kind = Literal[
    "pattern", "glob", "keywords", "code", "language", "mention", "url", "sentiment_shift", "webhook", "cron"
]
"""The value of a trigger's `type:` in the file. The first eight look at messages: they are tier 1.

pattern           `match` is a regular expression with `flags` (letters of `imsx`)
glob              path patterns (`*.py`, `docs/**/*.md`) for the files of tool calls and loaded chunks
keywords          words and phrases, compared after folding; fires if `least` different ones occur as whole words
code              code in fences that name one of these languages
language          the natural language of a text, as ISO 639-1 codes (`de`)
mention           names, as `@name` or as whole words; without names, any `@name`
url               links to these hosts, or hosts with the beginning of a path (`github.com/*/*/pull/`)
sentiment_shift   a raised voice: runs of `!`, words in capitals, words of alarm; fires from `least` such marks on
webhook           a POST of another program to `/webhook/{match}/{event}`; without `event`, every event of the source
cron              times by a cron expression, in the user's time zone
"""


@dataclass(frozen=True, slots=True)
class Trigger:
    """A trigger of a topic.

    `match` has the values that the trigger looks for; a trigger without values fires for any code, name or link.
    `scope` says in which messages the trigger looks. `correction` is the text that an agent gets if its own answer
    fires the trigger. `line` is the number of the trigger's line in the topic's file, 0 if it comes from no file.
    """

    kind: Kind
    match: tuple[str, ...] = ()
    flags: str = "i"
    least: int = 1
    event: str = ""
    scope: Scope = "input"
    correction: str = ""
    line: int = 0


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic. `name` is its id in lower case, from the file or from its name.

    `instructions` is the body without front matter, from line `first_line` of the file on. `description` is the file's
    own, else its first paragraph. `keywords` are those of the front matter; without any, typical words of the topic are
    used. If `similarity_threshold` (0..1) is None, the setting is used. `not_for` are examples of similar messages that
    the topic is not for: their words in a message count against the topic. `digest` is the SHA-256 of the file, the key
    for values computed once per topic.
    """

    name: str
    path: str
    instructions: str
    description: str = ""
    keywords: tuple[str, ...] = ()
    triggers: tuple[Trigger, ...] = ()
    subscriptions: tuple[str, ...] = ()
    activation: Activation = "gated"
    priority: Priority = "medium"
    max_context_kb: float | None = None
    similarity: Method = "tfidf"
    similarity_threshold: float | None = None
    not_for: tuple[str, ...] = ()
    first_line: int = 1
    digest: str = ""


@dataclass(frozen=True, slots=True)
class WatchedMessage:
    """A message in which triggers look: the text of a person (`input`) or an agent (`output`), and its files.

    `paths` are the files of its tool calls and of chunks that were loaded with it.
    """

    text: str
    direction: Direction = "input"
    paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Match:
    """A tier-1 trigger that fired: trigger number `place` (from 0) of `topic` matched `said`, at characters `start` to
    `end`.

    `start` and `end` are 0 if `said` is not part of the text, such as a path or a language.
    """

    topic: str
    place: int
    trigger: Trigger
    said: str
    start: int = 0
    end: int = 0

    @property
    def kind(self) -> str:
        """`pattern`, `glob`, …"""
        return self.trigger.kind

    @property
    def correction(self) -> str:
        """The trigger's hint for the agent; empty if it has none."""
        return self.trigger.correction


@dataclass(frozen=True, slots=True)
class Trouble:
    """A trigger that could not be evaluated: `topic`, its `line`, and the problem in one sentence. `fault` is False if
    the trigger did not cause it."""

    topic: str
    line: int
    what: str
    fault: bool = True


@dataclass(frozen=True, slots=True)
class ActiveTopic:
    """An active topic: its file, its trigger (`by`), the files that it subscribes to, and events' payloads.

    `missing` are subscriptions without a file; `most_kb` caps all of its text, in KB of 1,024 bytes.
    """

    name: str
    source: SourceFile
    by: str = ""
    priority: Priority = "medium"
    score: float | None = None
    most_kb: float | None = None
    subscriptions: tuple[SourceFile, ...] = ()
    missing: tuple[str, ...] = ()
    payloads: tuple[Payload, ...] = ()
