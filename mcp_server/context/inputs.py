"""CompileInputs: all inputs of a compilation, as values.

The inputs are stored (in checkpoints, and in receipts as one SHA-256 for each field). Unknown fields of a newer version
survive a round trip in `extra`; fields that an older version did not write take their defaults.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, is_dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from operator import attrgetter
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from mcp_server.model import GLOBAL, Delivery, GateSignal, Hit, Kind, SourceFile, ToolCall, Turn
from mcp_server.relevance.clarity_scores import BlockItem
from mcp_server.topics.topic import ActiveTopic, Correction

INPUTS_VERSION = 1
COMPILER_VERSION = 13  # increase it with every change after which the same inputs may give other bytes
LEAST_BUDGET = 128
"""Tokens below which a context is not worth compiling: tools refuse, resources cut and say so."""

Scope = Literal["project", "all"]


@dataclass(frozen=True, slots=True)
class CompilerSettings:
    """Settings that shape a text: shares of the budget (0..1) and sizes in KB of 1,024 bytes."""

    identity_share: float = 0.15
    memory_share: float = 0.20
    knowledge_floor_add: float = 0.35
    knowledge_floor: float = 0.25
    history_floor: float = 0.25
    identity_kb: float = 17.0
    memory_kb: float = 3.0
    journal_kb: float = 4.0
    active_projects_kb: float = 1.0
    topic_kb: float = 6.0
    topic_share: float = 0.20
    holding_share: float = 0.5
    passage_tokens: int = 240
    """A found passage longer than this, and than an eighth of the room, is shown by its relevant part."""
    short_headers: bool = False
    """Head what was found in conversations by its day alone, without title and path: for a push of 300 tokens."""
    clarity_tokens: int = 150


@dataclass(frozen=True, slots=True)
class Candidate:
    """A hit of the search, in its order. `references` counts how often its file was of use. `out` is the reason, for
    the receipt, if it is excluded from this context. `worthwhile`: it is expected to be worth its tokens
    (`push_policy`) and may be shown although the gate is closed."""

    hit: Hit
    references: int = 0
    out: str = ""
    worthwhile: bool = False


@dataclass(frozen=True, slots=True)
class LastSession:
    """The conversation before this one: `day` (YYYY-MM-DD) of its last entry, and its newest turns, oldest first."""

    path: str
    title: str
    day: str
    turns: tuple[Turn, ...] = ()


@dataclass(frozen=True, slots=True)
class Shortened:
    """A turn of the session of which the live context has only a part, and the ids of the missing chunks."""

    turn: int
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Dropped:
    """A chunk that left the live context: the id for `recover`, its turn, and a few words of it."""

    id: str
    turn: int
    line: str


@dataclass(frozen=True, slots=True)
class Recognized:
    """A text of the recognizer: an item, or a sentence that may state one. `probability` is 0 to 1, `core` the sentence
    that states the item most likely, `short` the text without explanations; both may be ""."""

    text: str
    probability: float = 1.0
    core: str = ""
    short: str = ""


@dataclass(frozen=True, slots=True)
class LeftOff:
    """The state of a conversation when its window was compacted, from a checkpoint. `id` and `path` are the
    checkpoint's, empty if there is none; `at` is a UTC time for a person, `turn` the checkpoint's last turn. Decisions,
    rules, items and files are listed newest last. `possible` are sentences that may state further ones.
    `recognized` has probability and core of these texts."""

    id: str
    path: str
    at: str
    turn: int
    thread: str = ""
    decisions: tuple[str, ...] = ()
    open_items: tuple[str, ...] = ()
    last_tool_call: ToolCall | None = None
    files: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    next_step: str = ""
    recognized: tuple[Recognized, ...] = ()
    possible: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CompileInputs:
    """The inputs of one compilation. Equal inputs give the same bytes, on every machine and channel.

    - `now` is the time of the turn that the context is for, `local_date` the user's date then (YYYY-MM-DD).
    - `as_of` hides later turns.
    - `turns` are the session's newest turns as the live context has them (only for `replace`), `first_exchange` is the
      number of exchanges before them. `live_set` lists the turns that are shortened, `drop_list` the newest of the
      `dropped` chunks.
    - `hits` are ordered; a closed `gate` excludes those that are not `worthwhile`.
    - For `add` the client's window holds the session's turns from number `in_window` on (None: all turns); they are not
      repeated.
    - `checkpoint` is the state before the window was compacted, if the model was not told it yet.
    - `anchors` are the texts that the user anchored: the entries that they name are cut last.
    - `page_order` lists the lines of the project's page as `path:line`, in the order in which search ranks them.
    """

    message: str
    budget: int
    now: datetime
    local_date: str
    delivery: Delivery = "add"
    kind: Kind = "main"
    session: str = ""
    project: str = GLOBAL
    scope: Scope = "project"
    as_of: int | None = None
    files: tuple[SourceFile, ...] = ()
    hits: tuple[Candidate, ...] = ()
    gate: GateSignal | None = None
    turns: tuple[Turn, ...] = ()
    first_exchange: int = 0
    live_set: tuple[Shortened, ...] = ()
    anchors: tuple[str, ...] = ()
    topics: tuple[ActiveTopic, ...] = ()
    corrections: tuple[Correction, ...] = ()
    clarity: tuple[BlockItem, ...] = ()
    checkpoint: LeftOff | None = None
    drop_list: tuple[Dropped, ...] = ()
    settings: CompilerSettings = CompilerSettings()
    settings_hash: str = ""
    embedder: str = ""
    vocabulary: str = "o200k_base"
    compiler_version: int = COMPILER_VERSION
    version: int = INPUTS_VERSION
    extra: Mapping[str, Any] = field(default_factory=dict)
    in_window: int | None = None
    last_session: LastSession | None = None
    dropped: int = 0
    page_order: tuple[str, ...] = ()

    @property
    def is_push(self) -> bool:
        """Whether the context is pushed with a prompt, and has no topics: its first line is its only heading."""
        return self.settings.short_headers and not (self.topics or self.corrections)

    def digests(self) -> dict[str, str]:
        """Returns a SHA-256 (hex) of each field's canonical JSON, also of unknown fields of a newer version. In that
        JSON a dataclass is the list of its values, ordered by name, which takes half the time of an object."""
        texts = {name: _canonical(value, _row) for name, value in self._values().items()}
        return {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}

    def to_json(self) -> dict[str, Any]:
        """Returns the inputs as JSON values, one key for each field. `from_json` is the inverse."""
        return {name: json.loads(_canonical(value, _object)) for name, value in self._values().items()}

    def _values(self) -> dict[str, Any]:
        return {**self.extra, **{name: getattr(self, name) for name in _names(type(self)) if name != "extra"}}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> CompileInputs:
        """Returns the inputs that any version stored."""
        known = set(_names(cls)) - {"extra"}
        inputs: CompileInputs = _read(cls, document)
        return replace(inputs, extra={name: value for name, value in document.items() if name not in known})


def differing_fields(a: Mapping[str, str], b: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the names of the fields in which two compilations' digests differ."""
    return tuple(sorted(name for name in {*a, *b} if a.get(name) != b.get(name)))


def _canonical(value: Any, default: Callable[[Any], Any]) -> str:
    """Returns a value's JSON with sorted keys. `default` converts values that JSON does not know."""
    return json.dumps(value, default=default, sort_keys=True, ensure_ascii=True, separators=(",", ":"))


def _object(value: Any) -> Any:
    """Converts dataclasses to objects, times to ISO 8601 in UTC."""
    if is_dataclass(value):
        return {name: getattr(value, name) for name in _names(type(value))}
    return value.astimezone(UTC).isoformat() if isinstance(value, datetime) else dict(value)


def _row(value: Any) -> Any:
    """Converts as `_object` does, but a dataclass to the list of its values."""
    kind: Any = type(value)
    return _reader(kind)(value) if is_dataclass(value) else _object(value)


@lru_cache  # inputs contain more than a thousand dataclasses
def _reader(kind: Any) -> Callable[[Any], Any]:
    """Returns a function that reads all fields of a dataclass, ordered by name."""
    return attrgetter(*sorted(_names(kind)))


def _names(kind: Any) -> Iterable[str]:
    """Returns a dataclass's field names. `dataclasses.fields` would take a millisecond for a few hundred hits."""
    names: Mapping[str, object] = kind.__dataclass_fields__
    return names


_types_of = lru_cache(get_type_hints)


def _read(kind: Any, value: Any) -> Any:
    """Returns the value of this type that was stored as JSON. A newer version may have written more fields."""
    if hasattr(kind, "__dataclass_fields__"):
        types = _types_of(kind)
        return kind(**{name: _read(types[name], inner) for name, inner in value.items() if name in types})
    if get_origin(kind) is UnionType:  # with None
        return None if value is None else _read(get_args(kind)[0], value)
    if get_origin(kind) is tuple:
        kinds = get_args(kind)
        if len(kinds) == 2 and kinds[1] is ...:
            return tuple(_read(kinds[0], inner) for inner in value or ())
        return tuple(map(_read, kinds, value))
    return datetime.fromisoformat(value) if kind is datetime else value
