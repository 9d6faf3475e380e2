"""Files in PostgreSQL: documents with all their versions, and append-only files.

They are the authoritative data of a team's memory. A write marks an indexed file as `unindexed` in the same
transaction. A folder exists as long as there is a file below it. There are no links.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import Any

from mcp_server.errors import Conflict, Invalid, NotFound, Refused
from mcp_server.storage.files import Files, file_name, parts_of
from mcp_server.storage.postgres.database import Connection, Database
from mcp_server.storage.values import LOCAL, FileStat, is_indexed

_NOW = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint * 1000"


def has_history(path: str) -> bool:
    """Returns whether earlier versions of a file are kept: not for conversations, which only grow, nor for
    `.local/`."""
    return path.split("/", 1)[0] not in (LOCAL, "raw")


class TeamFiles(Files):
    """The files of one workspace."""

    def __init__(self, database: Database) -> None:
        self._database = database

    # paths

    def relative(self, path: str) -> str:
        """Returns the path without `.` and doubled slashes. Raises Refused for a path that some operating
        systems do not allow."""
        return "/".join(parts_of(path))

    def exists(self, path: str) -> bool:
        return self._database.run(lambda connection: self._kind(connection, self.relative(path))) is not None

    def is_folder(self, path: str) -> bool:
        return self._database.run(lambda connection: self._kind(connection, self.relative(path))) == "folder"

    def stat(self, path: str) -> FileStat:
        row = self._database.run(lambda connection: self._row(connection, self.relative(path)))
        if row is None:
            raise self.missing(path)
        return FileStat(path, *row[1:])

    def version(self, path: str) -> tuple[int, int, int] | None:
        row = self._database.run(lambda connection: self._row(connection, self.relative(path)))
        return None if row is None else (row[0], row[1], row[2])

    # reading

    def read_bytes(self, path: str, start: int = 0, size: int = -1) -> bytes:
        clean = self.relative(path)
        data = self._database.run(lambda connection: _content(connection, clean, start, size))
        if data is None:
            raise self.missing(path)
        return data

    def walk(self, prefix: str = "") -> Iterator[FileStat]:
        return (FileStat(*row) for row in self._listed(prefix))

    def contents(self, prefix: str) -> Iterator[tuple[str, bytes]]:
        for path, *_ in self._listed(prefix):
            data = self._database.run(partial(_content, path=path))
            if data is not None:
                yield path, data

    def names(self, prefix: str, part: str) -> list[str]:
        folder = self._folder(prefix)
        rows = self._database.rows(
            "SELECT path FROM file WHERE ws = %s AND path >= %s AND path < %s AND path LIKE '%%.md' "
            "AND strpos(path, %s) > 0",
            *(folder, _after(folder), part),
        )
        shown = (path for (path,) in rows if not _is_hidden(path[len(folder) :]))
        return [path for path in shown if part in path.rpartition("/")[2]]

    def everything(self) -> Iterator[str]:
        return (path for (path,) in self._database.rows("SELECT path FROM file WHERE ws = %s ORDER BY path"))

    def past_versions(self) -> Iterator[tuple[str, int, bytes]]:
        rows = self._database.rows(
            "SELECT v.path, v.version, v.size FROM file_version v LEFT JOIN file f ON f.ws = v.ws AND f.path = v.path "
            "AND f.version = v.version WHERE v.ws = %s AND f.path IS NULL ORDER BY 1, 2"
        )
        for path, number, size in rows:
            yield path, number, b"" if size is None else self.content_of(path, number)

    def erase_versions(self, versions: Iterable[tuple[str, int]]) -> None:
        paths, numbers = zip(*versions, strict=True) if (versions := list(versions)) else ((), ())
        self._database.run(
            lambda connection: connection.execute(
                "DELETE FROM file_version v USING unnest(%s::text[], %s::bigint[]) AS o (path, version) "
                "WHERE v.ws = %s AND v.path = o.path AND v.version = o.version",
                (list(paths), list(numbers), connection.ws),
            )
        )

    def last_version(self, path: str, until: int | datetime) -> int | None:
        """Returns the number of the last kept version of a file up to a number or a moment; None if there was no such
        file then."""
        what = "version" if isinstance(until, int) else "at"
        rows = self._database.rows(
            "SELECT version, size FROM file_version WHERE ws = %s AND path = %s "
            f"AND {what} <= %s ORDER BY version DESC LIMIT 1",
            *(self.relative(path), until),
        )
        return rows[0][0] if rows and rows[0][1] is not None else None

    def content_of(self, path: str, version: int) -> bytes:
        """Returns the bytes of a version. Raises NotFound if it is not kept."""
        rows = self._database.rows(
            "SELECT p.data FROM file_version v LEFT JOIN file_part p ON p.ws = v.ws AND p.path = v.path "
            "AND p.version = v.version WHERE v.ws = %s AND v.path = %s AND v.version = %s AND v.size IS NOT NULL "
            "ORDER BY p.start",
            *(self.relative(path), version),
        )
        if not rows:
            raise NotFound(f"version {version} of {path!r} is not kept")
        return b"".join(data for (data,) in rows if data is not None)

    # writing

    def write_bytes_atomic(
        self, path: str, data: bytes, expected: bytes | None = None, *, new: bool = False, sealed: bool = False
    ) -> None:
        clean = self._name(path)
        self._database.run(lambda connection: self._put(connection, clean, data, expected, new=new, sealed=sealed))

    def write_all_atomic(self, folder: str, contents: Mapping[str, bytes], *, synced: bool = True) -> None:
        base = self.relative(folder)
        named = {self._name(f"{base}/{file_name(name)}"): data for name, data in contents.items()}

        def put(connection: Connection) -> None:
            for path, data in sorted(named.items()):
                self._put(connection, path, data, None, new=False, sealed=False)

        self._database.run(put)

    def append_durable(self, path: str, data: bytes, at_offset: int) -> int:
        clean = self.relative(path)

        def append(connection: Connection) -> int | None:
            row = self._locked(connection, clean)
            if row is None:
                return None
            version, size, _, sealed = row
            if sealed:
                raise Refused(f"{path} is read-only")
            if size < at_offset:
                raise Conflict(f"{path} has {size} bytes, {at_offset} were expected; another program cut it")
            if size > at_offset:  # a new version, so that readers of the same version find the same beginning
                kept = _content(connection, clean, 0, at_offset) or b""
                self._put(connection, clean, kept + data, None, new=False, sealed=False)
                return at_offset + len(data)
            self._grow(connection, clean, version, at_offset, data)
            connection.execute(
                "UPDATE file_version SET size = %s WHERE ws = %s AND path = %s AND version = %s",
                (at_offset + len(data), connection.ws, clean, version),
            )
            self.mark(connection, clean)
            return at_offset + len(data)

        found = self._database.run(append)
        if found is None:
            raise self.missing(path)
        return found

    def append_log(self, path: str, line: bytes, most: int) -> None:
        clean = self._name(path)

        def append(connection: Connection) -> None:
            row = self._locked(connection, clean)
            if row is None:
                self._put(connection, clean, line, None, new=False, sealed=False)
                return
            version, size, *_ = row
            if size + len(line) > most:
                stem, dot, ending = clean.rpartition(".")
                whole = (_content(connection, clean) or b"") + line
                self._put(connection, f"{stem}.1{dot}{ending}", whole, None, new=False, sealed=False)
                self._drop(connection, clean)
                return
            self._grow(connection, clean, version, size, line)

        self._database.run(append)

    def move(self, path: str, to: str) -> None:
        source, target = self.relative(path), self._name(to)

        def rename(connection: Connection) -> bool:
            kind = self._kind(connection, source)
            if kind is None:
                return False
            if self._kind(connection, target) is not None:
                raise Conflict(f"{to} exists already; move it away or choose another name")
            found = [source] if kind == "file" else self.paths_below(connection, f"{source}/")
            for old in found:
                row = self._locked(connection, old)
                data = _content(connection, old)
                if row is not None and data is not None:
                    self._put(connection, target + old[len(source) :], data, None, new=True, sealed=row[3])
                    self._drop(connection, old)
            return True

        if not self._database.run(rename):
            raise self.missing(path)

    def remove(self, path: str) -> None:
        clean = self.relative(path)
        if not self._database.run(lambda connection: self._drop(connection, clean)):
            raise self.missing(path)

    def remove_all(self, folder: str, names: Iterable[str]) -> None:
        base = self.relative(folder)
        paths = sorted(f"{base}/{file_name(name)}" for name in names)
        self._database.run(lambda connection: [self._drop(connection, path) for path in paths])

    def remove_folder(self, path: str) -> None:
        folder = self._folder(path)
        self._database.run(
            lambda connection: [self._drop(connection, found) for found in self.paths_below(connection, folder)]
        )

    def erase(self, path: str) -> None:
        clean = self.relative(path)

        def erase(connection: Connection) -> None:
            self._drop(connection, clean)
            connection.run("DELETE FROM file_version WHERE ws = %s AND path = %s", clean)

        self._database.run(erase)

    # within a transaction

    def _grow(self, connection: Connection, path: str, version: int, size: int, data: bytes) -> None:
        """Adds `data` to a file that has `size` bytes."""
        add_part(connection, path, version, size, data)
        connection.execute(
            f"UPDATE file SET size = %s, mtime_ns = greatest({_NOW}, mtime_ns + 1) WHERE ws = %s AND path = %s",
            (size + len(data), connection.ws, path),
        )

    def _row(self, connection: Connection, path: str, lock: str = "") -> tuple[Any, ...] | None:
        """Returns version, size, time of the last change, and whether a file is sealed; None if it is missing."""
        select = f"SELECT version, size, mtime_ns, sealed FROM file WHERE ws = %s AND path = %s{lock}"
        return connection.row(select, path) or None

    def _locked(self, connection: Connection, path: str) -> tuple[Any, ...] | None:
        return self._row(connection, path, " FOR UPDATE")

    def _kind(self, connection: Connection, path: str) -> str | None:
        """Returns "file" or "folder", or None if there is neither."""
        file, folder = connection.row(
            "SELECT EXISTS (SELECT 1 FROM file WHERE ws = %s AND path = %s), "
            "EXISTS (SELECT 1 FROM file WHERE ws = %s AND path >= %s AND path < %s)",
            *(path, connection.ws, f"{path}/", _after(f"{path}/")),
        )
        return "file" if file else "folder" if folder or not path else None

    def _put(
        self, connection: Connection, path: str, data: bytes, expected: bytes | None, *, new: bool, sealed: bool
    ) -> None:
        row = self._locked(connection, path)
        if row is None:
            if expected is not None:
                raise Conflict(f"{path} was changed by another program meanwhile; read it again and repeat")
            parents = [path[:at] for at, letter in enumerate(path) if letter == "/"]
            if parents and connection.row("SELECT 1 FROM file WHERE ws = %s AND path = ANY(%s)", parents):
                raise Invalid(f"{path}: a part of this path is a file, not a folder; choose another path")
            if self._kind(connection, path) == "folder":
                raise Invalid(f"{path} is a folder; name a file in it")
            added = connection.row(
                "INSERT INTO file (ws, path, version, size, mtime_ns, sealed) SELECT %s, %s, "
                "1 + coalesce((SELECT max(version) FROM file_version WHERE ws = %s AND path = %s), 0), %s, "
                f"{_NOW}, %s ON CONFLICT (ws, path) DO NOTHING RETURNING version",
                *(path, connection.ws, path, len(data), sealed),
            )
            if added:
                self._add_version(connection, path, added[0], data)
                return
            row = self._locked(connection, path)  # another transaction has just written it
            if row is None:
                raise Conflict(f"{path} was deleted by another program meanwhile; repeat")
        if new:
            raise Conflict(f"{path} exists already; read it first, or choose another name")
        if expected is not None and _content(connection, path) != expected:
            raise Conflict(f"{path} was changed by another program meanwhile; read it again and repeat")
        version = row[0] + 1
        if not has_history(path):
            connection.run("DELETE FROM file_version WHERE ws = %s AND path = %s", path)
        connection.execute(
            f"UPDATE file SET version = %s, size = %s, mtime_ns = greatest({_NOW}, mtime_ns + 1), sealed = %s "
            "WHERE ws = %s AND path = %s",
            (version, len(data), sealed or row[3], connection.ws, path),
        )
        self._add_version(connection, path, version, data)

    def _add_version(self, connection: Connection, path: str, version: int, data: bytes) -> None:
        connection.run(
            "INSERT INTO file_version (ws, path, version, at, size) VALUES (%s, %s, %s, clock_timestamp(), %s)",
            *(path, version, len(data)),
        )
        add_part(connection, path, version, 0, data)
        self.mark(connection, path)

    def _drop(self, connection: Connection, path: str) -> bool:
        """Deletes a file; its history stays. Returns whether there was one."""
        row = self._locked(connection, path)
        if row is None:
            return False
        connection.run("DELETE FROM file WHERE ws = %s AND path = %s", path)
        if has_history(path):
            connection.run(
                "INSERT INTO file_version (ws, path, version, at, size) VALUES (%s, %s, %s, clock_timestamp(), NULL)",
                *(path, row[0] + 1),
            )
        else:
            connection.run("DELETE FROM file_version WHERE ws = %s AND path = %s", path)
        self.mark(connection, path)
        return True

    def mark(self, connection: Connection, path: str) -> None:
        """Marks a file as changed since it was indexed, if the index includes it."""
        if is_indexed(path):
            connection.run(
                "INSERT INTO unindexed (ws, path, changes) VALUES (%s, %s, 1) "
                "ON CONFLICT (ws, path) DO UPDATE SET changes = unindexed.changes + 1",
                path,
            )

    def found(self, connection: Connection, path: str) -> tuple[int, FileStat | None]:
        """Returns a file's version, and its size and time; None if it is missing."""
        row = self._row(connection, path)
        return (row[0], FileStat(path, *row[1:])) if row else (0, None)

    def bytes_of(self, connection: Connection, path: str, start: int = 0) -> bytes:
        """Returns the bytes of a file from `start` on; none if it is missing."""
        return _content(connection, path, start) or b""

    def paths_below(self, connection: Connection, folder: str) -> list[str]:
        """Returns the paths of all files of a folder, whose name ends with a slash."""
        statement = "SELECT path FROM file WHERE ws = %s AND path >= %s AND path < %s ORDER BY path"
        rows = connection.rows(statement, folder, _after(folder))
        return [path for (path,) in rows]

    def _listed(self, prefix: str) -> list[tuple[Any, ...]]:
        folder = self._folder(prefix)
        rows = self._database.rows(
            "SELECT path, size, mtime_ns, sealed FROM file WHERE ws = %s AND path >= %s AND path < %s",
            *(folder, _after(folder)),
        )
        shown = [row for row in rows if not _is_hidden(row[0][len(folder) :])]
        return sorted(shown, key=lambda row: row[0].split("/"))

    def _folder(self, prefix: str) -> str:
        """Returns a folder's path with a slash at its end; "" for the whole workspace."""
        if prefix.strip("/") in ("", "."):
            return ""
        return f"{self.relative(prefix)}/"

    def _name(self, path: str) -> str:
        clean = self.relative(path)
        if not clean:
            raise Invalid(f"{path} is a folder; name a file in it")
        return clean

    def missing(self, path: str) -> NotFound:
        if self.is_folder(path):
            raise Invalid(f"{path} is a folder; name a file in it")
        return super().missing(path)


def _content(connection: Connection, path: str, start: int = 0, size: int = -1) -> bytes | None:
    """Returns bytes of the current version; None if there is no such file."""
    end = 2**62 if size < 0 else start + size
    rows = connection.execute(
        "SELECT f.version, p.start, p.data FROM file f LEFT JOIN file_part p ON p.ws = f.ws AND p.path = f.path "
        "AND p.version = f.version AND p.start < %s AND p.start + length(p.data) > %s "
        "WHERE f.ws = %s AND f.path = %s ORDER BY p.start",
        (end, start, connection.ws, path),
        binary=True,
    ).fetchall()
    if not rows:
        return None
    found = b"".join(data[max(0, start - first) : end - first] for _, first, data in rows if data is not None)
    return bytes(found)


def add_part(connection: Connection, path: str, version: int, start: int, data: bytes) -> None:
    if data:
        statement = "INSERT INTO file_part (ws, path, version, start, data) VALUES (%s, %s, %s, %s, %b)"
        connection.run(statement, path, version, start, data)


def _after(folder: str) -> str:
    """Returns the first string after all paths of a folder, whose name ends with a slash."""
    return f"{folder[:-1]}0" if folder else "\U0010ffff"


def _is_hidden(path: str) -> bool:
    return path.startswith(".") or "/." in path
