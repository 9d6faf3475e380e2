"""The frozen values that all parts of the program share.

Times are aware datetimes in UTC. Paths are POSIX strings relative to the workspace. Line numbers start at 1 and ranges
include both ends. Tokens are counted with the vocabulary of the workspace (o200k_base).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

GLOBAL = ""
"""The project of files and conversations that belong to no project. Every project sees them."""

PREFIXES = ("name:", "git:", "root:", "dir:")
"""The beginnings of raw keys of projects."""

_SCP = re.compile(r"^(?:[^@/\s]+@)?(?P<host>[^:/\s]+):(?!//)(?P<path>.+)$")
_URL = re.compile(
    r"^[a-z][a-z0-9+.-]*://(?:[^/\s]*@)?(?P<host>\[[^\]]+\]|[^:/]+)(?::\d+)?/+(?P<path>.+)$", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Project:
    """A project. Transcripts store its `key`; people and folders use its `slug`. `keys` are all raw keys that the map
    of projects gives this slug.

    The global project has the key GLOBAL, no slug and no keys.
    """

    key: str = GLOBAL
    slug: str | None = None
    keys: frozenset[str] = frozenset()


def origin_key(url: str) -> str | None:
    """Returns `git:host/path` of a remote: lower-case host, no scheme, user, port or `.git`. Returns None for a remote
    that is a folder.

    >>> origin_key("ssh://git@GitHub.com:22/Ada/Engine.git")
    'git:github.com/Ada/Engine'
    """
    is_windows_path = url[1:2] == ":" and url[2:3] in ("\\", "/")
    match = _URL.match(url.strip()) or (_SCP.match(url.strip()) if "://" not in url and not is_windows_path else None)
    if match is None or not match["host"] or url.lower().startswith("file:"):
        return None
    path = match["path"].strip("/").removesuffix(".git").strip("/")
    return f"git:{match['host'].lower()}/{path}" if path else None


def slug_of(key: str) -> str:
    """Returns a short lower-case ASCII name for a key: its last path component, without accents. Never empty."""
    tail = key.partition(":")[2].rstrip("/").rpartition("/")[2] if ":" in key else key
    return slugify(tail[:12] if key.startswith(("root:", "dir:")) else tail) or "project"


def shown_name(key: str) -> str:
    """Returns the name to show for a raw key: the key without its prefix, or the last part of a git remote. Returns
    GLOBAL if there is no key."""
    return slug_of(key) if key.startswith(PREFIXES) else key


def slugify(text: str, *, longest: int = 48) -> str:
    """Returns lower-case ASCII words joined by `-`, of at most `longest` characters; "" if no ASCII letter or digit is
    left."""
    folded = unicodedata.normalize("NFKD", text.replace("đ", "dj").replace("Đ", "dj").replace("ß", "ss"))
    words = re.findall(r"[a-z0-9]+", folded.encode("ascii", "ignore").decode().lower())
    slug = ""
    for word in words:
        if slug and len(slug) + 1 + len(word) > longest:
            break
        slug = f"{slug}-{word}" if slug else word[:longest]
    return slug


def unused(name: str, taken: Collection[str]) -> str:
    """Returns the name, or the first of NAME-2, NAME-3 … that is not taken."""
    number, fresh = 1, name
    while fresh in taken:
        number += 1
        fresh = f"{name}-{number}"
    return fresh


Role = Literal["user", "agent", "system"]
Kind = Literal["main", "shared", "subagent"]
Delivery = Literal["add", "replace"]
Category = Literal[
    "identity", "memory", "journal", "project", "person", "procedure", "reference", "topic", "conversation", "archive"
]

COMPACTION = "compaction"
"""The name of the system turn that marks where the client compacted its window. Earlier turns have left the window."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One tool call of a turn, as the transcript stores it: one line, no JSON."""

    name: str
    summary: str = ""
    result: str = ""
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of a transcript.

    `content` is the exact text after redaction. `number` counts from 1; a transcript that `continues` another one
    continues its numbers. `redacted` names the kinds of secrets that were removed. `source` is the interface that
    recorded the turn: tool, cli, import:NAME, …
    """

    number: int
    role: Role
    content: str
    at: datetime
    turn_id: str | None = None
    name: str | None = None
    source: str = "tool"
    important: bool = False
    context_tokens: int | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    attachments: tuple[str, ...] = ()
    redacted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class KnowledgeChange:
    """A memory operation: `## HH:MM — agent [memory]` in the transcript, `knowledge_changes` in its front matter."""

    path: str
    action: str
    summary: str
    at: datetime


@dataclass(frozen=True, slots=True)
class TranscriptHead:
    """A transcript's front matter. `session_id` is the client's original id, `project` the raw project key."""

    session_id: str
    started: datetime
    title: str
    slug: str
    project: str = GLOBAL
    kind: Kind = "main"
    delivery: Delivery = "add"
    timezone: str = "UTC"
    ended: datetime | None = None
    model: str | None = None
    channel: str | None = None
    topic: str | None = None
    tags: tuple[str, ...] = ()
    tokens_in: int = 0
    tokens_out: int = 0
    knowledge_changes: tuple[KnowledgeChange, ...] = ()
    continues: str | None = None
    extra: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True)
class Passage:
    """The unit of the index: a heading section of a file, a turn of a transcript, or a part of a long one.

    `unit` is the id of the ranked unit (`path#turn` or `path#line`); all parts of a long turn share it. `project` is a
    raw project key for transcripts, `slug:NAME` for files under `knowledge/projects/NAME/`, GLOBAL otherwise. `ordinal`
    is the unit's position in its file, for finding its neighbors. `at` is the turn's time, or the file's `updated`.
    `title` is the transcript's title or the heading path.
    """

    path: str
    unit: str
    part: int
    ordinal: int
    start: int
    end: int
    text: str
    title: str
    category: Category
    project: str = GLOBAL
    session: str = ""
    turn: int | None = None
    turn_id: str | None = None
    role: str = ""
    speaker: str = ""
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Exchange:
    """The similarity of a turn and its two neighbors to a message, as cosines: of the turn, of the mean of the three
    vectors, and of the most similar of the three."""

    turn: float
    mean: float
    best: float


@dataclass(frozen=True, slots=True)
class Hit:
    """One search result. `score` is the sum of `terms`. `passage.text` is the part that matched best; `whole` is True
    if that is the whole unit.

    For a derived line, `source` is the turn that the line comes from, if that was found. `exchange` belongs to the
    turn, or to the source of a derived line; None if it was not requested. `cosine` is the similarity to the query by
    the embedder, `about` by the recognizer's network; None without a vector.
    """

    passage: Passage
    score: float
    terms: Mapping[str, float]
    cosine: float | None = None
    imported: bool = False
    whole: bool = True
    exchange: Exchange | None = None
    source: Passage | None = None
    about: float | None = None


@dataclass(frozen=True, slots=True)
class GateSignal:
    """The gate's decision for a message and a scope: `value` against `threshold`. `signal` says what was measured."""

    open: bool
    signal: str
    value: float
    threshold: float


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of an action that opens or looks up a session.

    `folder` is the client's folder (CLAUDE_PROJECT_DIR, else the working directory); None over HTTP, where only the
    `project` argument counts. `session` is the session of a call that names none, if it is known.
    """

    source: str = "tool"
    client: str | None = None
    explicit_sessions: bool = True
    folder: str | None = None
    session: str | None = None


@dataclass(frozen=True, slots=True)
class Withheld:
    """Lines `start` to `end` of a file that were removed before the compilation (0 and 0: all lines), and why."""

    reason: str
    start: int = 0
    end: int = 0


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A workspace file: `text` without its front matter, from line `first_line` of the file on.

    `untouched`: it is a template that was not filled in, and counts as empty. `withheld` are the lines that were
    removed from `text`, for the receipt.
    """

    path: str
    text: str
    first_line: int = 1
    untouched: bool = False
    withheld: tuple[Withheld, ...] = ()
