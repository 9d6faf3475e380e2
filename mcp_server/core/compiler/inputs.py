"""CompileInputs: everything that a compiled context is a function of, as values.

The shape is stored (in checkpoints, in receipts as one SHA-256 a field), so it is versioned and open: a field that this
version does not know survives a round trip in `extra`, and one that an older version did not write takes its default.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, is_dataclass
from datetime import UTC, datetime
from functools import cached_property
from operator import attrgetter
from typing import Any, Literal

from mcp_server.core.clarity.block import BlockItem
from mcp_server.core.model import GLOBAL, Delivery, GateSignal, Hit, Kind, Passage, ToolCall, Turn
from mcp_server.core.topics import Priority
from mcp_server.core.watchers.activations import Correction, Payload

INPUTS_VERSION = 1
COMPILER_VERSION = 6
"""Goes up with every change after which the same inputs may give other bytes."""

LEAST_BUDGET = 128
"""Tokens below which a context is not worth compiling: tools refuse, resources cut and say so."""

Scope = Literal["project", "all"]


@dataclass(frozen=True, slots=True)
class CompilerSettings:
    """The knobs of `context_compiler` that shape a text: shares of the budget (0..1) and sizes in KB of 1,024 bytes."""

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
class Withheld:
    """Lines `start` to `end` of a file, 0 and 0 for all of it, that are not in the text which a compilation sees, and
    why, in words a person knows."""

    reason: str
    start: int = 0
    end: int = 0


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One workspace file as it stood: `text` without its front matter, from line `first_line` of the file on.

    `untouched` marks a template that nobody has filled in: it counts as empty. `withheld` was left out of `text`: the
    receipt names it.
    """

    path: str
    text: str
    first_line: int = 1
    untouched: bool = False
    withheld: tuple[Withheld, ...] = ()


@dataclass(frozen=True, slots=True)
class Candidate:
    """A hit of the search, in its order. `references` counts how often its file was of use. `out` says in words why it
    is not for this context whatever it scores: the receipt names it, and nothing else hears of it. `worthwhile`: it is
    expected to be worth its tokens (`core.injection`), so it may come in although the gate is closed."""

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
    """A turn of the session that the live context has in part or shorter, and the chunk ids of what is missing."""

    turn: int
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ActiveTopic:
    """A topic that is in the conversation: its file, why it is (`by`), the files that come with it, and what events
    sent. `missing` are subscriptions that name no file; `most_kb` caps all of its text, in KB of 1,024 bytes."""

    name: str
    source: SourceFile
    by: str = ""
    priority: Priority = "medium"
    score: float | None = None
    most_kb: float | None = None
    subscriptions: tuple[SourceFile, ...] = ()
    missing: tuple[str, ...] = ()
    payloads: tuple[Payload, ...] = ()


@dataclass(frozen=True, slots=True)
class Dropped:
    """What left the live context: the id that `recover` takes, the turn that it was, and a few words of it."""

    id: str
    turn: int
    line: str


@dataclass(frozen=True, slots=True)
class LeftOff:
    """Where the conversation stood when its window was emptied, as a checkpoint tells it. `id` and `path` are the
    checkpoint's, both empty where none was made; `at` is a UTC time for a person, `turn` the last one that it has seen.
    The newest decisions, items and files stand last."""

    id: str
    path: str
    at: str
    turn: int
    thread: str = ""
    decisions: tuple[str, ...] = ()
    open_items: tuple[str, ...] = ()
    last_tool_call: ToolCall | None = None
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CompileInputs:
    """What one compilation sees. Two of them that are equal give the same bytes, on every machine and channel.

    `now` is the time of the turn that the context is for; `local_date` the user's own calendar date then (YYYY-MM-DD).
    `as_of` hides later turns. `turns` are the session's newest turns (needed for `replace` only), `first_exchange` the
    number of exchanges that lie before them. `hits` come ordered; `gate` closed keeps all of them out. In `add` the
    client still has the session's own turns from number `in_window` on, of which it is told nothing; None: all of them.
    `turns` are as the live context has them; `live_set` names those that it has shortened, `drop_list` the newest of
    what it has lost, of which there are `dropped` in all. `checkpoint` says where the conversation stood before its
    window was emptied, as long as that is news to the model. `anchors` are the texts that the user anchored: an
    entry that one names is cut last. `page_order` names the lines of the project's page as
    `path:line`, in the order in which search ranks them for the message.
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

    def digests(self) -> dict[str, str]:
        """One SHA-256 (hex) per field, of its canonical JSON; unknown fields of a newer version each count as one.

        In it a dataclass is the list of its values, in the order of their names: half the time of a full object.
        """
        return {name: _sha256(value) for name, value in self._values().items()}

    def to_json(self) -> dict[str, Any]:
        """The inputs as JSON values, one key a field; `from_json` gives an equal value back."""
        return {name: json.loads(_canonical(value, _object)) for name, value in self._values().items()}

    def _values(self) -> dict[str, Any]:
        return {**self.extra, **{name: getattr(self, name) for name in _names(type(self)) if name != "extra"}}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> CompileInputs:
        """Inputs as any version stored them."""
        known = set(_names(cls)) - {"extra"}
        given = {name: _READERS.get(name, _frozen)(value) for name, value in document.items() if name in known}
        return cls(**given, extra={name: value for name, value in document.items() if name not in known})


class Digests(Mapping[str, str]):
    """`CompileInputs.digests`, counted when somebody looks: it takes milliseconds, and few receipts are read so far."""

    def __init__(self, inputs: CompileInputs) -> None:
        self._inputs = inputs

    @cached_property
    def _counted(self) -> dict[str, str]:
        return self._inputs.digests()

    def __getitem__(self, name: str) -> str:
        return self._counted[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._counted)

    def __len__(self) -> int:
        return len(self._counted)


def differing_fields(a: Mapping[str, str], b: Mapping[str, str]) -> tuple[str, ...]:
    """The fields in which two compilations differ, by name, from their digests (`CompileInputs.digests`, receipts)."""
    return tuple(sorted(name for name in {*a, *b} if a.get(name) != b.get(name)))


def _sha256(value: Any) -> str:
    return hashlib.sha256(_canonical(value, _row).encode()).hexdigest()


def _canonical(value: Any, default: Callable[[Any], Any]) -> str:
    """One JSON text a value, whatever the order of its keys. `default` says what JSON does not know."""
    return json.dumps(value, default=default, sort_keys=True, ensure_ascii=True, separators=(",", ":"))


def _object(value: Any) -> Any:
    """Dataclasses become objects, times ISO 8601 in UTC."""
    if is_dataclass(value):
        return {name: getattr(value, name) for name in _names(type(value))}
    return value.astimezone(UTC).isoformat() if isinstance(value, datetime) else dict(value)


def _row(value: Any) -> Any:
    """As `_object`, but a dataclass becomes the list of its values."""
    return _values_of[type(value)](value) if is_dataclass(value) else _object(value)


class _Readers(dict[type, Callable[[Any], Any]]):
    """What reads all fields of a dataclass at once, by name: inputs hold more than a thousand dataclasses."""

    def __missing__(self, kind: type) -> Callable[[Any], Any]:
        self[kind] = reader = attrgetter(*sorted(_names(kind)))
        return reader


_values_of = _Readers()


def _names(kind: Any) -> Iterable[str]:
    """The fields of a dataclass by name; `dataclasses.fields` would take a millisecond for a few hundred hits."""
    names: Mapping[str, object] = kind.__dataclass_fields__
    return names


def _frozen(value: Any) -> Any:
    return tuple(_frozen(inner) for inner in value) if isinstance(value, list) else value


def _time(value: str | None) -> datetime | None:
    return None if value is None else datetime.fromisoformat(value)


def _known(kind: type, value: Mapping[str, Any]) -> dict[str, Any]:
    """What this version's `kind` knows of a stored object; the rest was written by a newer one."""
    return {name: _frozen(inner) for name, inner in value.items() if name in _names(kind)}


def _turn(value: Mapping[str, Any]) -> Turn:
    calls = tuple(ToolCall(**_known(ToolCall, call)) for call in value.get("tool_calls", ()))
    return Turn(**{**_known(Turn, value), "at": _time(value["at"]), "tool_calls": calls})


def _last_session(value: Mapping[str, Any] | None) -> LastSession | None:
    if value is None:
        return None
    return LastSession(**{**_known(LastSession, value), "turns": tuple(_turn(turn) for turn in value.get("turns", ()))})


def _source(value: Mapping[str, Any]) -> SourceFile:
    withheld = tuple(Withheld(**_known(Withheld, one)) for one in value.get("withheld", ()))
    return SourceFile(**{**_known(SourceFile, value), "withheld": withheld})


def _topic(value: Mapping[str, Any]) -> ActiveTopic:
    return ActiveTopic(
        **{
            **_known(ActiveTopic, value),
            "source": _source(value["source"]),
            "subscriptions": tuple(_source(one) for one in value.get("subscriptions", ())),
            "payloads": tuple(Payload(**_known(Payload, one)) for one in value.get("payloads", ())),
        }
    )


def _left_off(value: Mapping[str, Any] | None) -> LeftOff | None:
    if value is None:
        return None
    call = value.get("last_tool_call")
    return LeftOff(**{**_known(LeftOff, value), "last_tool_call": ToolCall(**_known(ToolCall, call)) if call else None})


def _candidate(value: Mapping[str, Any]) -> Candidate:
    hit = value["hit"]
    passage = Passage(**{**_known(Passage, hit["passage"]), "at": _time(hit["passage"]["at"])})
    return Candidate(**{**_known(Candidate, value), "hit": Hit(**{**_known(Hit, hit), "passage": passage})})


_READERS: Mapping[str, Any] = {
    "now": _time,
    "files": lambda values: tuple(_source(value) for value in values),
    "hits": lambda values: tuple(_candidate(value) for value in values),
    "gate": lambda value: None if value is None else GateSignal(**_known(GateSignal, value)),
    "turns": lambda values: tuple(_turn(value) for value in values),
    "clarity": lambda values: tuple(BlockItem(**_known(BlockItem, value)) for value in values or ()),
    "topics": lambda values: tuple(_topic(value) for value in values),
    "corrections": lambda values: tuple(Correction(**_known(Correction, value)) for value in values),
    "live_set": lambda values: tuple(Shortened(**_known(Shortened, value)) for value in values),
    "drop_list": lambda values: tuple(Dropped(**_known(Dropped, value)) for value in values),
    "last_session": _last_session,
    "checkpoint": _left_off,
    "settings": lambda value: CompilerSettings(**_known(CompilerSettings, value)),
}
