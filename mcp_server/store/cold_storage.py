"""Cold storage: `.local/cold-storage/{session}/{chunk}.jsonl`, one record a file, on disk before anything is dropped.

A record that is written again (after a crash, or because a chunk came back and went again) replaces the older one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from datetime import datetime

from mcp_server.core.pressure.cold import ColdRecord, read_record
from mcp_server.errors import ContextManagerError, NotFound
from mcp_server.store.files import WorkspaceFiles
from mcp_server.store.transcripts import file_id

FOLDER = ".local/cold-storage"


class ColdStorage:
    """The port. Methods are synchronous and short; actions call them through a worker thread."""

    def __init__(self, files: WorkspaceFiles) -> None:
        self._files = files

    def put(self, record: ColdRecord) -> str:
        """Writes a record durably; returns its path in the workspace. Raises Unavailable if the disk refuses it."""
        path = path_of(record)
        self._files.write_atomic(path, record.as_line())
        return path

    def put_all(self, records: Iterable[ColdRecord], *, copies: bool = False) -> None:
        """Writes records durably, as `put` does, and faster: their folder waits for the disk once. `copies` of what is
        on disk, and stays there, do not wait at all."""
        for folder, some in _by_folder(records).items():
            lines = {f"{one.chunk_id}.jsonl": one.as_line().encode() for one in some}
            self._files.write_all_atomic(folder, lines, synced=not copies)

    def get(self, session: str, chunk_id: str) -> ColdRecord:
        """The record of a session's chunk. Raises NotFound."""
        with contextlib.suppress(ContextManagerError, ValueError):
            return read_record(self._files.read_text(f"{folder_of(session)}/{chunk_id}.jsonl"))
        raise NotFound(f"no chunk {chunk_id!r} in cold storage (cold-storage list)")

    def of(self, session: str) -> list[ColdRecord]:
        """The records of a session by their place in it; files that hold none are passed over."""
        found = [record for record in self._in(folder_of(session)) if record.session_id == session]
        return sorted(found, key=lambda record: (record.turn, record.part, record.chunk_id))

    def all(self) -> Iterator[ColdRecord]:
        """Every record, session by session."""
        yield from self._in(FOLDER)

    def find(self, chunk_id: str) -> ColdRecord:
        """The record of a chunk. Raises NotFound."""
        for stat in self._files.walk(FOLDER + "/"):
            if stat.path.endswith(f"/{chunk_id}.jsonl"):
                with contextlib.suppress(ContextManagerError, ValueError):
                    return read_record(self._files.read_text(stat.path))
        raise NotFound(f"no chunk {chunk_id!r} in cold storage (cold-storage list)")

    def remove(self, record: ColdRecord) -> None:
        """Deletes a record: its chunk is whole again in the live context, or its time is over."""
        path = path_of(record)
        if self._files.exists(path):
            self._files.remove(path)

    def remove_all(self, records: Iterable[ColdRecord]) -> None:
        """Deletes records; those that are not there are passed over."""
        for folder, some in _by_folder(records).items():
            self._files.remove_all(folder, [f"{one.chunk_id}.jsonl" for one in some])

    def expired(self, now: datetime) -> list[ColdRecord]:
        """Records whose `recoverable_until` has passed."""
        return [record for record in self.all() if record.recoverable_until < now]

    def damaged(self) -> list[str]:
        """Returns the paths of files that should hold a record and do not."""
        return [path for path, record in self._read(FOLDER) if record is None]

    def _in(self, folder: str) -> Iterator[ColdRecord]:
        return (record for _, record in self._read(folder) if record is not None)

    def _read(self, folder: str) -> Iterator[tuple[str, ColdRecord | None]]:
        for path, data in self._files.contents(folder):
            if path.endswith(".jsonl"):
                try:
                    record = read_record(data.decode("utf-8"))
                except ValueError:  # a broken line, or no UTF-8
                    record = None
                yield path, record


def _by_folder(records: Iterable[ColdRecord]) -> dict[str, list[ColdRecord]]:
    folders: dict[str, list[ColdRecord]] = {}
    for record in records:
        folders.setdefault(folder_of(record.session_id), []).append(record)
    return folders


def folder_of(session: str) -> str:
    """The folder of a session's records."""
    return f"{FOLDER}/{file_id(session)}"


def path_of(record: ColdRecord) -> str:
    """Where a record lies in the workspace."""
    return f"{folder_of(record.session_id)}/{record.chunk_id}.jsonl"
