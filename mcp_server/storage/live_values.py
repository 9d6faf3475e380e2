"""The values of live sets: gauges, counts, and a session's whole state for a checkpoint."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any, get_args

from mcp_server.relevance.chunks import ChunkKind, Form, LiveChunk

COLUMNS = tuple(field.name for field in fields(LiveChunk))
KINDS, FORMS = get_args(ChunkKind), get_args(Form)

READINGS = "gauge"
"""Namespace of the state: session → its last gauge readings."""

STEPS = "curation_steps"
"""Namespace of the state: session → how often its curation was due (`gauges.curation_step`)."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A gauge reading: the live tokens, and the tokens of the client's window if the client reported them."""

    at: datetime
    live: int
    client: int | None = None


@dataclass(frozen=True, slots=True)
class LiveSetCounts:
    """A live set after a change: the reading now and earlier ones (oldest first; the last one however old it is), and
    the number of chunks that are live, cold, and shortened."""

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
    columns: tuple[str, ...] = COLUMNS
    rows: tuple[tuple[Any, ...], ...] = ()

    @property
    def chunks(self) -> list[LiveChunk]:
        """Returns the live chunks. Raises Invalid for rows that this version cannot read."""
        return [chunk_of(dict(zip(self.columns, row, strict=True))) for row in self.rows]

    def with_chunks(self, chunks: Sequence[LiveChunk]) -> SessionState:
        """Returns the same state with other live chunks."""
        return SessionState(self.entries, COLUMNS, tuple(map(values_of, chunks)))

    def to_json(self) -> dict[str, Any]:
        """Returns the `state` field of a checkpoint."""
        return {"entries": self.entries, "live": {"columns": list(self.columns), "rows": [list(r) for r in self.rows]}}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> SessionState:
        """Returns the state that `to_json` was called on; missing parts are empty."""
        live = stored.get("live") or {}
        rows = tuple(tuple(row) for row in live.get("rows", ()))
        return cls(stored.get("entries") or {}, tuple(live.get("columns", COLUMNS)), rows)


def values_of(chunk: LiveChunk) -> tuple[Any, ...]:
    """Returns a chunk's row in the order of COLUMNS."""
    return tuple(_stored(getattr(chunk, name)) for name in COLUMNS)


def chunk_of(row: Mapping[str, Any]) -> LiveChunk:
    """Returns the chunk of a row (column -> value). Unknown columns are ignored."""
    stored = {name: row[name] for name in COLUMNS if name in row}
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


def moment_text(moment: datetime) -> str:
    """Returns a moment as ISO 8601 in UTC with milliseconds."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds")


def _stored(value: Any) -> Any:
    if isinstance(value, datetime):
        return moment_text(value)
    if isinstance(value, tuple):
        return json.dumps(value, ensure_ascii=False)
    return int(value) if isinstance(value, bool) else value
