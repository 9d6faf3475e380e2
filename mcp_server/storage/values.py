"""The values that storage and its callers exchange."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from mcp_server.errors import Unavailable
from mcp_server.model import Exchange
from mcp_server.relevance.chunks import ChunkKind, Form, LiveChunk
from mcp_server.text.entries import Source

if TYPE_CHECKING:
    from pathlib import Path

    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

    from mcp_server.conversations.source_keys import TurnKey
    from mcp_server.model import Delivery, Kind
    from mcp_server.search import query
    from mcp_server.storage.index.scoring import Found


CHUNK_COLUMNS = tuple(field.name for field in fields(LiveChunk))
KINDS, FORMS = get_args(ChunkKind), get_args(Form)

READINGS = "gauge"
"""Namespace of the state: session → its last gauge readings."""

MOST_READINGS = 100

STEPS = "curation_steps"
"""Namespace of the state: session → how often its curation was due (`relevance.chunks.step_of`)."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A gauge reading: the live tokens, and the tokens of the client's window if the client reported them."""

    at: datetime
    live: int
    client: int | None = None


@dataclass(frozen=True, slots=True)
class LiveSetCounts:
    """The size of a live set: its current reading, earlier readings (oldest first; the most recent one is included even
    if it is old), and the number of chunks that are live, cold, and shortened."""

    now: Reading
    earlier: tuple[Reading, ...]
    live: int
    cold: int
    shortened: int


@dataclass(frozen=True, slots=True)
class SessionState:
    """A session's stored state. `entries` are JSON values by namespace and key; `rows` are the live chunks, each a list
    of values in the order of `columns`."""

    entries: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    columns: tuple[str, ...] = CHUNK_COLUMNS
    rows: tuple[tuple[Any, ...], ...] = ()

    @property
    def chunks(self) -> list[LiveChunk]:
        """Returns the live chunks. Raises Invalid for rows that this version cannot read."""
        return [chunk_of(dict(zip(self.columns, row, strict=True))) for row in self.rows]

    def with_chunks(self, chunks: Sequence[LiveChunk]) -> SessionState:
        return SessionState(self.entries, CHUNK_COLUMNS, tuple(map(values_of, chunks)))

    def to_json(self) -> dict[str, Any]:
        """Returns the `state` field of a checkpoint."""
        return {"entries": self.entries, "live": {"columns": list(self.columns), "rows": [list(r) for r in self.rows]}}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> SessionState:
        """Returns the state from the result of `to_json`; missing parts are empty."""
        live = stored.get("live") or {}
        rows = tuple(tuple(row) for row in live.get("rows", ()))
        return cls(stored.get("entries") or {}, tuple(live.get("columns", CHUNK_COLUMNS)), rows)


def values_of(chunk: LiveChunk) -> tuple[Any, ...]:
    return tuple(_stored(getattr(chunk, name)) for name in CHUNK_COLUMNS)


def chunk_of(row: Mapping[str, Any]) -> LiveChunk:
    """Returns the chunk of a row (column -> value). Unknown columns are ignored."""
    stored = {name: row[name] for name in CHUNK_COLUMNS if name in row}
    for name in ("added", "accessed", "mtime"):
        stored[name] = datetime.fromisoformat(stored[name]) if stored.get(name) else None
    for name in ("tags", "topics"):
        stored[name] = tuple(json.loads(stored[name])) if stored.get(name, "[]") != "[]" else ()
    for name in ("important", "system"):
        stored[name] = bool(stored.get(name))
    if stored["kind"] not in KINDS:
        stored["kind"] = "message"
    if stored["form"] not in FORMS:
        stored["form"] = "whole"
    return LiveChunk(**stored)


def stored_moment(moment: datetime) -> str:
    """Returns a moment as ISO 8601 in UTC with milliseconds."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds")


def _stored(value: Any) -> Any:
    if isinstance(value, datetime):
        return stored_moment(value)
    if isinstance(value, tuple):
        return json.dumps(value, ensure_ascii=False)
    return int(value) if isinstance(value, bool) else value


LOCAL = ".local"
"""The folder of a workspace for files that git does not track."""

Place = tuple[str, str]
"""Namespace and key of an entry of the state."""


@dataclass(frozen=True, slots=True)
class Folder:
    """The folders of a workspace on this machine: `root` has its files, `local` is its `.local/`. Both raise
    Unavailable if the workspace is on PostgreSQL. `name` is the workspace's location, for messages."""

    name: str
    _places: tuple[Path, Path] | None = None

    @classmethod
    def at(cls, root: Path, local: Path) -> Folder:
        """Returns the folders of a workspace on this machine."""
        return cls(str(root), (root, local))

    @property
    def here(self) -> bool:
        return self._places is not None

    @property
    def root(self) -> Path:
        return self._both[0]

    @property
    def local(self) -> Path:
        return self._both[1]

    @property
    def _both(self) -> tuple[Path, Path]:
        if self._places is None:
            raise Unavailable(f"{self.name} is on PostgreSQL: this works only on a memory in a folder (docs/team.md)")
        return self._places


@dataclass(frozen=True, slots=True)
class Change:
    """A change in a workspace. `kind` is turn, file, index or session. `path` and `session` tell what changed, if it is
    known."""

    kind: str
    path: str | None = None
    session: str | None = None


Listener: TypeAlias = "MemoryObjectReceiveStream[Change]"
"""A stream of changes. `receive_nowait` raises anyio.WouldBlock if there is none."""

MOST_FRESH = 1_000
"""Most files in `Changes.fresh`; above that the oldest are dropped."""


@dataclass(slots=True)
class Changes:
    """A fan-out: every listener gets every change that is published after it began to listen.

    `indexed` is True while some process indexes changes; otherwise waiting for the index is useless. `fresh` has the
    changed files that searches may not see yet, each with the number that `settled` expects.
    """

    indexed: bool = False
    _listeners: set[MemoryObjectSendStream[Change]] = field(default_factory=set)
    fresh: dict[str, int] = field(default_factory=dict)
    _published: int = 0

    def settled(self, seen: Mapping[str, int]) -> None:
        """Removes files that searches see now from `fresh`, unless they changed again. `seen` has their numbers."""
        for path, number in seen.items():
            if self.fresh.get(path) == number:
                del self.fresh[path]

    def publish(self, change: Change) -> None:
        """Sends a change to every listener. Never waits."""
        if change.path is not None and self.indexed:
            self._published += 1
            self.fresh.pop(change.path, None)
            self.fresh[change.path] = self._published
            if len(self.fresh) > MOST_FRESH:
                del self.fresh[next(iter(self.fresh))]
        for listener in tuple(self._listeners):
            listener.send_nowait(change)

    @asynccontextmanager
    async def listen(self) -> AsyncIterator[Listener]:
        """Yields a stream of the changes that are published during the block."""
        from anyio import create_memory_object_stream

        send, receive = create_memory_object_stream[Change](math.inf)
        self._listeners.add(send)
        try:
            yield receive
        finally:
            self._listeners.discard(send)
            send.close()
            receive.close()


@dataclass(frozen=True, slots=True)
class FileStat:
    """A listed file. `size` is in bytes; a sealed file is read-only."""

    path: str
    size: int
    mtime_ns: int
    sealed: bool = False


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A session's row in the state. `kind` and `delivery` are None until a call sets them."""

    session: str
    path: str
    status: str
    project: str
    kind: Kind | None
    delivery: Delivery | None
    title: str
    opened: datetime
    last_arrival: datetime
    turns: int
    last_at: datetime | None
    size: int


@dataclass(frozen=True, slots=True)
class Recorded:
    """A session's row and its recorded turns that may equal an arriving one: the turn with its id, the session's last
    turn, and the number of turns with the same role and text."""

    row: SessionRow | None
    same_id: TurnKey | None
    last: TurnKey | None
    nth: int


@dataclass(frozen=True, slots=True)
class Depth:
    """The number of passages that a search fetches before it ranks: by `words`, by `meaning`, derived `lines` by words,
    and the number of best units whose neighbors are fetched too (`around`).

    `postings` limits the total number of passages that contain the words by which a search fetches; each costs about
    0.7 µs. More common words are used only to rank. `meaning`: among 100,000 passages sqlite-vec takes 31 ms for 100
    neighbors and 46 ms for 200, and 200 find no more answers (`bench retrieval`). `lines` can be small, because most
    turns have no derived line.
    """

    postings: int = 10_000
    words: int = 200
    lines: int = 100
    meaning: int = 100
    around: int = 50


USUAL = Depth()

Mode = Literal["hybrid", "keyword", "vector"]


@dataclass(frozen=True, slots=True)
class Filters:
    """Conditions that a passage must all fulfill; None restricts nothing.

    `projects`: raw keys and `slug:NAME`s; global passages are always included. `exclude_session` leaves out a session
    and its continuations; with `exclude_from` only its turns from that number on. `since` is inclusive, `until`
    exclusive; a file without a date has the date of its last change. A unit must contain all `phrases` (sequences of
    folded words) and none of `excluded`.
    """

    projects: frozenset[str] | None = None
    category: str | None = None
    session: str | None = None
    exclude_session: str | None = None
    exclude_from: int | None = None
    since: datetime | None = None
    until: datetime | None = None
    speaker: str | None = None
    phrases: tuple[tuple[str, ...], ...] = ()
    excluded: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class IndexQuery:
    """A search of the index. `filters` has the query's operators, such as `since:`; `text` is the rest of the query. If
    `text` has more words than the message, `said` is the message alone."""

    text: str
    filters: Filters
    mode: Mode = "hybrid"
    depth: Depth = USUAL
    said: str = ""


TurnsNear = Callable[[str, Sequence[Source]], Mapping[Source, Exchange]]
"""Returns the similarity of turns and their neighbors to a text. Turns without a vector are left out."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """Passages that may answer a query. `asked` and the candidates of `found` are the arguments of `ranking.rank`.

    `frequencies` (of the words of `asked.lookup`) and `passages` are counted within the filters, for the gate. `used`
    is the search method; "scan" if the index could not be used. `generation` is the index's number.
    """

    asked: query.Query
    found: tuple[Found, ...]
    frequencies: tuple[int, ...]
    passages: int
    used: Literal["hybrid", "keyword", "vector", "scan"]
    generation: str
    messages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class IndexStatus:
    """The state of the search index. `state`: ready, building, missing, broken; `vectors`: sqlite-vec, numpy, none."""

    state: str
    generation: str
    embedder: str
    vectors: str
    sqlite: str
    files: int
    passages: int
    not_embedded: int
    size_bytes: int
    problems: tuple[str, ...]
    messages: tuple[str, ...]


FOLDERS = ("raw", "knowledge", "topics", "archive")
"""The folders of a workspace whose files are indexed."""

ENDINGS = (".md", ".markdown", ".txt")


def is_indexed(path: str) -> bool:
    parts = path.split("/")
    return parts[0] in FOLDERS and path.endswith(ENDINGS) and not any(part.startswith(".") for part in parts)
