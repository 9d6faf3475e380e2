"""Topics: playbooks that appear by themselves when their triggers fire (S4 §2.2, §4.4).

A topic is one file under `topics/`; `store.topics` reads it. What watchers look at is `Heard`, what a tier-1 trigger
finds in it is a `Match`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from mcp_server.model import SourceFile
from mcp_server.topics.activations import Payload

Activation = Literal["auto", "gated", "manual"]
Priority = Literal["low", "medium", "high", "critical"]
Method = Literal["tfidf", "bm25", "jaccard", "ngrams", "sentiment", "embedder"]
Scope = Literal["input", "output", "both"]
Direction = Literal["input", "output"]

PRIORITIES: Mapping[Priority, int] = MappingProxyType({"critical": 3, "high": 2, "medium": 1, "low": 0})
"""Higher comes first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """A trigger stands on this line of its file; 0 where it was not read from one."""

    line: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Looking(_Written):
    """In which messages it looks; `correction` is told to the agent whose answer sets it off."""

    scope: Scope = "input"
    correction: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern(_Looking):
    """A regular expression. `flags` are letters of `imsx`."""

    match: str
    flags: str = "i"


@dataclass(frozen=True, slots=True, kw_only=True)
class Glob(_Looking):
    """Path patterns (`*.py`, `docs/**/*.md`) for the files of tool calls and loaded chunks."""

    paths: tuple[str, ...]
    scope: Scope = "both"


@dataclass(frozen=True, slots=True, kw_only=True)
class Keywords(_Looking):
    """Words and phrases, folded when compared; fires when `least` different ones are said as whole words."""

    words: tuple[str, ...]
    least: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Code(_Looking):
    """Code in fences or indented blocks; of `languages` (lower case), or of any where there are none."""

    languages: tuple[str, ...] = ()
    scope: Scope = "both"


@dataclass(frozen=True, slots=True, kw_only=True)
class Language(_Looking):
    """The natural language that a text is written in, as ISO 639-1 codes (`de`)."""

    languages: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mention(_Looking):
    """Names, as `@name` or written out as whole words; any `@name` at all where there are none."""

    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Url(_Looking):
    """Links. `sites` are hosts, or hosts with the beginning of a path (`github.com/*/*/pull/`); any link if empty."""

    sites: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SentimentShift(_Looking):
    """A raised voice: runs of `!`, words in capitals, words of alarm; fires from `least` such marks on."""

    least: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook(_Written):
    """What another program posts to `/webhook/{source}/{event}`. An empty `event` means every one of the source."""

    source: str
    event: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cron(_Written):
    """Times by a cron expression, in the user's time zone."""

    schedule: str


TextTrigger = Pattern | Glob | Keywords | Code | Language | Mention | Url | SentimentShift
"""Tier 1: what is looked for in messages."""

Trigger = TextTrigger | Webhook | Cron

KINDS: Mapping[type, str] = MappingProxyType(
    {
        Pattern: "pattern",
        Glob: "glob",
        Keywords: "keywords",
        Code: "code",
        Language: "language",
        Mention: "mention",
        Url: "url",
        SentimentShift: "sentiment_shift",
        Webhook: "webhook",
        Cron: "cron",
    }
)
"""What a trigger's `type:` says in the file."""


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic. `name` is its id in lower case: the file's stem, or what the file says of itself.

    `instructions` is the body without front matter, from line `first_line` of the file on. `description` is the file's
    own, else its first paragraph; `keywords` are those that the file names, none where the profiles must find them.
    `similarity_threshold` (0..1) None: the setting. `not_for` says in words what the topic is not meant for although
    it sounds alike: such words in a message speak against it. `digest` is the SHA-256 of the whole file, a stable key
    for what is computed once per topic.
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
    extra: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Heard:
    """One message as the watchers see it: what a person (`input`) or an agent (`output`) said, and the files touched.

    `paths` are the files of its tool calls and of what was loaded with it.
    """

    text: str
    direction: Direction = "input"
    paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Match:
    """A tier-1 trigger that fired: trigger `place` (0..) of `topic`, on `said`, at characters `start` to `end`.

    Where it is no part of the text (a path, a language), `start` and `end` are 0.
    """

    topic: str
    place: int
    trigger: TextTrigger
    said: str
    start: int = 0
    end: int = 0

    @property
    def kind(self) -> str:
        """`pattern`, `glob`, …"""
        return KINDS[type(self.trigger)]

    @property
    def correction(self) -> str:
        """What the agent is told, if it was the agent who said it; else empty."""
        return self.trigger.correction


@dataclass(frozen=True, slots=True)
class Trouble:
    """A trigger that could not be asked: `topic`, the `line` of its file, and what is wrong in one sentence. `fault` is
    False where it is not the trigger's own."""

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
