"""Live sets and cold storage.

The live set of an open session has the chunks of its context, in the tables of the state. Cold storage has the chunks
that were dropped from it, one per file, in `.local/cold-storage/{session}/{chunk}.jsonl`. The record is written before
the chunk is dropped. Writing it again (after a crash, or because a recovered chunk was dropped again) replaces the
older record.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain
from types import MappingProxyType
from typing import Any

from mcp_server.errors import ContextManagerError, NotFound
from mcp_server.relevance.chunks import ChunkKind, ColdRecord, LiveChunk, Standing, read_record
from mcp_server.storage.files import Files
from mcp_server.storage.state import PLACES, State, Tables, Transaction, put_entries, read_entries
from mcp_server.storage.values import (
    CHUNK_COLUMNS,
    MOST_READINGS,
    READINGS,
    STEPS,
    LiveSetCounts,
    Place,
    Reading,
    SessionState,
    chunk_of,
    stored_moment,
    values_of,
)
from mcp_server.text.transcript_head import file_id

_NAMES = ", ".join(CHUNK_COLUMNS)
_OF = "FROM {live_chunk} WHERE {here}session = ?"
_ORDER = "ORDER BY turn, part, id"
_ALL = f"SELECT {_NAMES} {_OF} {_ORDER}"
_INSERT = (
    f"INSERT INTO {{live_chunk}} ({{ws_}}session, {_NAMES}) VALUES ({{ws}}?, {', '.join('?' * len(CHUNK_COLUMNS))}) "
    "ON CONFLICT ({ws_}session, id) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in CHUNK_COLUMNS if name != "id")
)
_COUNTS = (
    "SELECT coalesce(sum(tokens) FILTER (WHERE form <> 'cold'), 0), count(*) FILTER (WHERE form <> 'cold'), "
    f"count(*) FILTER (WHERE form = 'cold'), count(*) FILTER (WHERE form <> 'whole') {_OF}"
)
_ANY = f"SELECT 1 {_OF} LIMIT 1"


class LiveSets(Tables):
    """The live sets of one workspace. Every method is one transaction, or a part of the open unit of work."""

    def __init__(self, state: State) -> None:
        super().__init__(state.store, state.dialect)

    async def of(self, session: str) -> list[LiveChunk]:
        """Returns all chunks of a session, also cold ones, in their order."""
        return [_chunk(row) for row in await self.rows(_ALL, session)]

    async def of_kinds(self, session: str, kinds: Sequence[ChunkKind]) -> list[LiveChunk]:
        """Returns the chunks of these kinds that are not cold, in their order."""
        statement = f"SELECT {_NAMES} {_OF} AND form <> 'cold' AND kind {{among}} {_ORDER}"
        return [_chunk(row) for row in await self.rows(statement, session, list(kinds))]

    async def any_of(self, session: str) -> bool:
        return bool(await self.rows(_ANY, session))

    async def sessions(self) -> list[str]:
        rows = await self.rows("SELECT DISTINCT session FROM {live_chunk} WHERE {here}true ORDER BY session")
        return [session for (session,) in rows]

    async def whole(self, session: str | None) -> frozenset[str]:
        """Returns the ids of the chunks that are whole, of one session or of all."""
        statement = "SELECT id FROM {live_chunk} WHERE {here}form = 'whole'"
        given = () if session is None else (session,)
        return frozenset(row[0] for row in await self.rows(statement + (" AND session = ?" if given else ""), *given))

    async def tokens(self, session: str) -> int:
        """Returns the number of live tokens: cold chunks have none."""
        return int(await self.value(_COUNTS, session))

    def add(
        self,
        session: str,
        turn: int,
        chunks: Sequence[LiveChunk],
        at: datetime,
        client: int | None,
        keep: timedelta,
        entries: Mapping[Place, Any] = MappingProxyType({}),
    ) -> Awaitable[LiveSetCounts | None]:
        """Adds the chunks of turn number `turn` and a gauge reading; earlier readings are kept for `keep`. Returns
        None, and adds no chunk, if the set lacks the previous turn because it was lost or never created.

        `entries` are values by namespace and key; the same transaction stores them in either case.
        """
        rows = _rows(session, chunks)

        def write(transaction: Transaction) -> LiveSetCounts | None:
            put_entries(transaction, entries)
            last = f"SELECT coalesce(max(turn), 0) {_OF} AND kind IN ('message', 'tool')"
            if transaction.rows(last, session)[0][0] < turn - 1:
                return None
            transaction.each(_INSERT, rows)
            tokens, live, cold, shortened = transaction.rows(_COUNTS, session)[0]
            now, before = Reading(at, int(tokens), client), _readings(transaction, session)
            kept = [one for one in before[:-1] if timedelta() <= at - one.at <= keep] + before[-1:]
            listed = [[stored_moment(one.at), one.live, one.client] for one in [*kept[-MOST_READINGS:], now]]
            put_entries(transaction, {(READINGS, session): listed})
            return LiveSetCounts(now, tuple(kept), live, cold, shortened)

        return self.write(write, waits=False)  # rebuilt from the transcript if lost

    def readings(self, session: str) -> Awaitable[list[Reading]]:
        """Returns the last gauge readings, oldest first."""
        return self.read(lambda transaction: _readings(transaction, session))

    def counts(self, session: str) -> Awaitable[LiveSetCounts]:
        """Returns the readings and counts of the live set as it is now."""

        def ask(transaction: Transaction) -> LiveSetCounts:
            tokens, live, cold, shortened = transaction.rows(_COUNTS, session)[0]
            *earlier, last = _readings(transaction, session) or [Reading(datetime.fromtimestamp(0, UTC), 0)]
            return LiveSetCounts(Reading(last.at, int(tokens), last.client), tuple(earlier), live, cold, shortened)

        return self.read(ask)

    def shortened_chunks(self, session: str) -> Awaitable[list[Standing] | None]:
        """Returns the chunks of a session that are not whole, in their order; None if it has no live set."""
        select = f"SELECT id, kind, turn, part, form, shown, name {_OF} AND form <> 'whole' {_ORDER}"

        def ask(transaction: Transaction) -> list[Standing] | None:
            if not transaction.rows(_ANY, session):
                return None
            return [Standing(*row) for row in transaction.rows(select, session)]

        return self.read(ask)

    async def cold_turns(self, places: Iterable[tuple[str, int]]) -> dict[tuple[str, int], str]:
        """Returns the id of the cold chunk of each of these turns (session, number); other turns are left out."""
        asked = list(dict.fromkeys(places))

        def ask(transaction: Transaction) -> dict[tuple[str, int], str]:
            found: dict[tuple[str, int], str] = {}
            for first in range(0, len(asked), PLACES):
                some = asked[first : first + PLACES]
                these = " OR ".join(["session = ? AND turn = ?"] * len(some))
                statement = f"SELECT session, turn, id FROM {{live_chunk}} WHERE {{here}}({these})"
                rows = transaction.rows(f"{statement} AND part = 0 AND form = 'cold'", *chain(*some))
                found |= {(session, turn): chunk_id for session, turn, chunk_id in rows}
            return found

        return await self.read(ask) if asked else {}

    async def knows(self, chunk_id: str) -> bool:
        return bool(await self.rows("SELECT 1 FROM {live_chunk} WHERE {here}id = ? LIMIT 1", chunk_id))

    async def put(self, session: str, chunks: Iterable[LiveChunk]) -> None:
        """Adds chunks, or replaces those with the same ids, in one transaction."""
        rows = _rows(session, chunks)
        if rows:
            await self.write(lambda transaction: transaction.each(_INSERT, rows))

    def clear(self, session: str) -> Awaitable[None]:
        """Deletes the live set of a session that has ended."""
        return self.replace_state(session, [(READINGS, session), (STEPS, session)], {}, ())

    def read_state(self, session: str, places: Sequence[Place]) -> Awaitable[SessionState]:
        """Returns the session's live chunks and the entries at these places, from one snapshot."""

        def ask(transaction: Transaction) -> SessionState:
            entries: dict[str, dict[str, Any]] = {}
            stored = read_entries(transaction, places)
            for namespace, key in places:
                if (namespace, key) in stored:
                    entries.setdefault(namespace, {})[key] = stored[namespace, key]
            return SessionState(entries, rows=tuple(transaction.rows(_ALL, session)))

        return self.read(ask)

    def replace_state(
        self,
        session: str,
        places: Sequence[Place],
        entries: Mapping[str, Mapping[str, Any]],
        chunks: Sequence[LiveChunk],
    ) -> Awaitable[None]:
        """Replaces the live chunks and the entries at these places, in one transaction. Missing entries are deleted."""

        def write(transaction: Transaction) -> None:
            put_entries(transaction, {(name, key): entries.get(name, {}).get(key) for name, key in places})
            transaction.run("DELETE FROM {live_chunk} WHERE {here}session = ?", session)
            transaction.each(_INSERT, _rows(session, chunks))

        return self.write(write)


def _rows(session: str, chunks: Iterable[LiveChunk]) -> list[tuple[Any, ...]]:
    return [(session, *values_of(chunk)) for chunk in chunks]


def _readings(transaction: Transaction, session: str) -> list[Reading]:
    listed = read_entries(transaction, [(READINGS, session)]).get((READINGS, session)) or ()
    return [Reading(datetime.fromisoformat(at), live, client) for at, live, client in listed]


def _chunk(row: tuple[Any, ...]) -> LiveChunk:
    return chunk_of(dict(zip(CHUNK_COLUMNS, row, strict=True)))


FOLDER = ".local/cold-storage"


class ColdStorage:
    """Reads and writes cold records. Methods are synchronous and short; actions call them in a worker thread."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def put_all(self, records: Iterable[ColdRecord], *, copies: bool = False) -> None:
        """Writes records durably. With `copies`, does not sync them, because their originals stay on disk. Raises
        Unavailable if the disk refuses the write."""
        for folder, some in _by_folder(records).items():
            lines = {f"{one.chunk_id}.jsonl": one.as_line().encode() for one in some}
            self._files.write_all_atomic(folder, lines, synced=not copies)

    def find(self, chunk_id: str, session: str | None = None) -> ColdRecord:
        """Returns the record of a chunk, searching only `session` if it is given. Raises NotFound."""
        if session is not None:
            paths = [f"{folder_of(session)}/{chunk_id}.jsonl"]
        else:
            found = (stat.path for stat in self._files.walk(f"{FOLDER}/"))
            paths = [path for path in found if path.endswith(f"/{chunk_id}.jsonl")]
        for path in paths:
            with contextlib.suppress(ContextManagerError, ValueError):
                return read_record(self._files.read_text(path))
        raise NotFound(f"no chunk {chunk_id!r} in cold storage (`cold-storage list` shows all)")

    def of(self, session: str) -> list[ColdRecord]:
        """Returns the records of a session in order. Skips damaged files."""
        found = [record for record in self._in(folder_of(session)) if record.session_id == session]
        return sorted(found, key=lambda record: (record.turn, record.part, record.chunk_id))

    def all(self) -> Iterator[ColdRecord]:
        """Yields every record, session by session."""
        return self._in(FOLDER)

    def remove_all(self, records: Iterable[ColdRecord]) -> None:
        """Deletes records. Skips missing ones."""
        for folder, some in _by_folder(records).items():
            self._files.remove_all(folder, [f"{one.chunk_id}.jsonl" for one in some])

    def damaged(self) -> list[str]:
        """Returns the paths of record files that cannot be read."""
        return [path for path, record in self._read(FOLDER) if record is None]

    def _in(self, folder: str) -> Iterator[ColdRecord]:
        return (record for _, record in self._read(folder) if record is not None)

    def _read(self, folder: str) -> Iterator[tuple[str, ColdRecord | None]]:
        for path, data in self._files.contents(folder):
            if path.endswith(".jsonl"):
                try:
                    record = read_record(data.decode("utf-8"))
                except ValueError:  # a broken line, or not UTF-8
                    record = None
                yield path, record


def _by_folder(records: Iterable[ColdRecord]) -> dict[str, list[ColdRecord]]:
    folders: dict[str, list[ColdRecord]] = {}
    for record in records:
        folders.setdefault(folder_of(record.session_id), []).append(record)
    return folders


def folder_of(session: str) -> str:
    return f"{FOLDER}/{file_id(session)}"


def path_of(record: ColdRecord) -> str:
    return f"{folder_of(record.session_id)}/{record.chunk_id}.jsonl"
