"""Topics: playbooks that are activated when their triggers fire.

A topic is one file under `topics/`. Triggers look at a `WatchedMessage`; a tier-1 trigger that fires gives a `Match`.
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
"""Higher numbers come first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trigger:
    """`line` is the trigger's line in its file; 0 if it was not read from one."""

    line: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _TextTrigger(_Trigger):
    """`scope` are the messages in which the trigger looks; `correction` is told to the agent whose answer fires it."""

    scope: Scope = "input"
    correction: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern(_TextTrigger):
    """A regular expression. `flags` are letters of `imsx`."""

    match: str
    flags: str = "i"


@dataclass(frozen=True, slots=True, kw_only=True)
class Glob(_TextTrigger):
    """Path patterns (`*.py`, `docs/**/*.md`) for the files of tool calls and loaded chunks."""

    paths: tuple[str, ...]
    scope: Scope = "both"


@dataclass(frozen=True, slots=True, kw_only=True)
class Keywords(_TextTrigger):
    """Words and phrases, compared after folding; fires if `least` different ones occur as whole words."""

    words: tuple[str, ...]
    least: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Code(_TextTrigger):
    """Code in fences or indented blocks in one of `languages` (lower case), or in any language if there are none."""

    languages: tuple[str, ...] = ()
    scope: Scope = "both"


@dataclass(frozen=True, slots=True, kw_only=True)
class Language(_TextTrigger):
    """The natural language of a text, as ISO 639-1 codes (`de`)."""

    languages: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mention(_TextTrigger):
    """Names, as `@name` or as whole words; without names, any `@name`."""

    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Url(_TextTrigger):
    """Links. `sites` are hosts, or hosts with the beginning of a path (`github.com/*/*/pull/`); any link if empty."""

    sites: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SentimentShift(_TextTrigger):
    """A raised voice: runs of `!`, words in capitals, words of alarm; fires from `least` such marks on."""

    least: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook(_Trigger):
    """A POST of another program to `/webhook/{source}/{event}`. An empty `event` means every event of the source."""

    source: str
    event: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cron(_Trigger):
    """Times by a cron expression, in the user's time zone."""

    schedule: str


TextTrigger = Pattern | Glob | Keywords | Code | Language | Mention | Url | SentimentShift
"""The triggers of tier 1."""

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
"""The value of a trigger's `type:` in the file."""


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic. `name` is its id in lower case, from the file or from its name.

    `instructions` is the body without front matter, from line `first_line` of the file on. `description` is the file's
    own, else its first paragraph. `keywords` are the file's; if it has none, profiles find them. If
    `similarity_threshold` (0..1) is None, the setting is used. `not_for` are texts that sound similar but are not
    meant: their words in a message count against the topic. `digest` is the SHA-256 of the file, the key for values
    computed once per topic.
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
class WatchedMessage:
    """A message in which triggers look: the text of a person (`input`) or an agent (`output`), and its files.

    `paths` are the files of its tool calls and of chunks that were loaded with it.
    """

    text: str
    direction: Direction = "input"
    paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Match:
    """A tier-1 trigger that fired: trigger `place` (0..) of `topic`, on `said`, at characters `start` to `end`.

    `start` and `end` are 0 if it is no part of the text, such as a path or a language.
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
        """The hint for the agent if the agent said it; else empty."""
        return self.trigger.correction


@dataclass(frozen=True, slots=True)
class Trouble:
    """A trigger that could not be evaluated: `topic`, its `line`, and the problem in one sentence. `fault` is False if
    the trigger is not to blame."""

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
