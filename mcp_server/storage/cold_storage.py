"""Cold storage: `.local/cold-storage/{session}/{chunk}.jsonl`, one record per file, written before a chunk is dropped.

A record that is written again (after a crash, or because a recovered chunk was dropped again) replaces the older one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

from mcp_server.errors import ContextManagerError, NotFound
from mcp_server.relevance.chunks import ColdRecord, read_record
from mcp_server.storage.files import Files
from mcp_server.text.transcript_head import file_id

FOLDER = ".local/cold-storage"


class ColdStorage:
    """Reads and writes cold records. Methods are synchronous and short; actions call them in a worker thread."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def put_all(self, records: Iterable[ColdRecord], *, copies: bool = False) -> None:
        """Writes records durably. `copies`, whose originals stay on disk, are not synced. Raises Unavailable if the
        disk refuses it."""
        for folder, some in _by_folder(records).items():
            lines = {f"{one.chunk_id}.jsonl": one.as_line().encode() for one in some}
            self._files.write_all_atomic(folder, lines, synced=not copies)

    def find(self, chunk_id: str, session: str | None = None) -> ColdRecord:
        """Returns the record of a chunk, of this session if it is named. Raises NotFound."""
        if session is not None:
            paths = [f"{folder_of(session)}/{chunk_id}.jsonl"]
        else:
            found = (stat.path for stat in self._files.walk(f"{FOLDER}/"))
            paths = [path for path in found if path.endswith(f"/{chunk_id}.jsonl")]
        for path in paths:
            with contextlib.suppress(ContextManagerError, ValueError):
                return read_record(self._files.read_text(path))
        raise NotFound(f"no chunk {chunk_id!r} in cold storage (cold-storage list)")

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
