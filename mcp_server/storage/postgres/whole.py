"""Moves a whole workspace out of PostgreSQL, and into it, each in one transaction.

The git history that a workspace brings along stays as a file, `BUNDLE`, because versions in tables have no messages,
authors, tags and branches. When the workspace moves on, the versions since then become commits on top of it.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from mcp_server.errors import Refused
from mcp_server.storage.bundle import (
    BRANCH,
    FileVersion,
    fast_import,
    new_repository,
    read_bundle,
    tip_of,
    versions,
    write_bundle,
)
from mcp_server.storage.postgres.database import Connection, Database
from mcp_server.storage.postgres.files import TeamFiles, has_history
from mcp_server.storage.postgres.git_export import (
    IMPORTED,
    forgotten_digest,
    imported_history,
    imported_versions,
    new_commits,
    stored_parts,
)
from mcp_server.storage.postgres.state import put_entries
from mcp_server.storage.state import storable
from mcp_server.storage.templates import SETTINGS, is_untouched_template
from mcp_server.storage.values import LOCAL, is_indexed
from mcp_server.storage.whole import BUNDLE, OF_AN_ENGINE, ORDERS, PART_BYTES, TABLES, MovedFile, Sink, Source, moves

ROWS = 2_000
"""Rows that one statement inserts, or that the server sends at a time."""


def dump(database: Database, tracked: Sequence[str], sink: Sink) -> None:
    """Writes a whole workspace to `sink`, as it is at one moment. `tracked` are the files and folders that git has."""

    def write(connection: Connection) -> None:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        for table, columns in TABLES.items():
            select = f"SELECT {', '.join(columns)} FROM {table} WHERE ws = %s ORDER BY {ORDERS[table]}"
            for row in _streamed(connection, select):
                if table != "entry" or row[0] not in OF_AN_ENGINE:
                    sink.row(table, row)
        _dump_history(connection, tracked, sink)
        listed = "SELECT path, version, mtime_ns, sealed FROM file WHERE ws = %s ORDER BY path"
        for path, version, mtime_ns, sealed in _streamed(connection, listed):
            if moves(path):
                sink.file(MovedFile(path, mtime_ns, sealed), stored_parts(connection, path, version))

    database.apart(write)


def _dump_history(connection: Connection, tracked: Sequence[str], sink: Sink) -> None:
    with tempfile.TemporaryDirectory(prefix="context-manager-") as place:
        before = imported_history(connection, Path(place))
        known = imported_versions(connection) if before else {}
        commits = new_commits(connection, known, tracked, {})
        first = next(commits, None)
        branch, bundle = before.branch if before else BRANCH, Path(place) / "bundle"
        if first is not None:
            repository = Path(place) / "git"
            if before is not None:
                read_bundle(before.bundle, repository, branch, bare=True)
            else:
                new_repository(repository, branch)
            fast_import(repository, itertools.chain([first], commits), tip_of(repository, branch), branch)
            write_bundle(repository, bundle)
        if bundle.exists():
            with bundle.open("rb") as stream:
                sink.history(branch, iter(lambda: stream.read(PART_BYTES), b""))


def load(database: Database, source: Source) -> None:
    """Fills an empty workspace, in one transaction. Raises Refused for a workspace with something in it."""

    files = TeamFiles(database)

    def write(connection: Connection) -> None:
        connection.lock_row("files")
        _check_empty(connection, database.address.shown)
        for table in ("file", "file_version", "unindexed", "entry", "directory", "access"):
            connection.run(f"DELETE FROM {table} WHERE ws = %s")
        _load_rows(connection, source)
        with tempfile.TemporaryDirectory(prefix="context-manager-") as place:
            history = source.history(Path(place))
            if history is not None:
                repository = Path(place) / "git"
                read_bundle(history.bundle, repository, history.branch, bare=True)
                for one in versions(repository, history.branch, has_history):
                    _add_version(connection, one)
                with history.bundle.open("rb") as stream:
                    parts = iter(lambda: stream.read(PART_BYTES), b"")
                    _add_file(connection, MovedFile(BUNDLE, 0, False), parts)
        for found, parts in source.files():
            if not moves(found.path) or files.relative(found.path) != found.path:
                raise Refused(f"the export has {found.path!r}, which is no file of a memory; nothing was imported")
            _add_file(connection, found, parts)
        if history is not None:
            row = connection.execute("SELECT clock_timestamp()::text").fetchone()
            assert row is not None
            noted = {"branch": history.branch, "at": row[0], "forgotten": forgotten_digest(connection)}
            put_entries(connection, {IMPORTED: noted})

    database.apart(write)


def _check_empty(connection: Connection, name: str) -> None:
    for path, version in connection.rows("SELECT path, version FROM file WHERE ws = %s ORDER BY path"):
        if path != SETTINGS and not path.startswith(f"{LOCAL}/"):
            text = b"".join(stored_parts(connection, path, version)).decode("utf-8", "replace")
            if not is_untouched_template(path, text):
                raise Refused(
                    f"the memory {name} is not empty (it has {path}, for example): name a new one in the address with "
                    "workspace=NAME, or add with --merge what is missing here"
                )


def _load_rows(connection: Connection, source: Source) -> None:
    for table, rows in itertools.groupby(source.rows(), key=lambda row: row[0]):
        names = TABLES[table]
        # SQLite has no such key; the order of equal accesses does not matter.
        numbered = (*names, "id") if table == "access" else names
        marks = ", ".join(["%s"] * (len(numbered) + 1))
        statement = f"INSERT INTO {table} (ws, {', '.join(numbered)}) VALUES ({marks})"
        made = (
            (connection.ws, *(storable(one) if isinstance(one, str) else one for one in values), number)[
                : len(numbered) + 1
            ]
            for number, (_, values) in enumerate(rows)
        )
        while some := list(itertools.islice(made, ROWS)):
            connection.cursor().executemany(statement, some)


def _add_version(connection: Connection, one: FileVersion) -> None:
    """Adds an earlier version of a document from git."""
    (version,) = connection.row(
        "INSERT INTO file_version (ws, path, version, at, size) SELECT %s, %s, "
        "1 + coalesce((SELECT max(version) FROM file_version WHERE ws = %s AND path = %s), 0), "
        "least(%s, clock_timestamp()), %s RETURNING version",
        *(one.path, connection.ws, one.path, one.at, None if one.data is None else len(one.data)),
    )
    _add_parts(connection, one.path, version, [one.data] if one.data else [])


def _add_file(connection: Connection, found: MovedFile, parts: Iterable[bytes]) -> None:
    """Adds a file. If its bytes are the last version that git had, it is that version."""
    last = connection.row(
        "SELECT version, size FROM file_version WHERE ws = %s AND path = %s ORDER BY version DESC LIMIT 1",
        found.path,
    )
    version = last[0] + 1 if last else 1
    connection.run(
        "INSERT INTO file_version (ws, path, version, at, size) VALUES (%s, %s, %s, clock_timestamp(), 0)",
        *(found.path, version),
    )
    size = _add_parts(connection, found.path, version, parts)
    if last and last[1] == size and _same(connection, found.path, version):
        connection.run("DELETE FROM file_version WHERE ws = %s AND path = %s AND version = %s", found.path, version)
        version -= 1
    else:
        connection.execute(
            "UPDATE file_version SET size = %s WHERE ws = %s AND path = %s AND version = %s",
            (size, connection.ws, found.path, version),
        )
    connection.run(
        "INSERT INTO file (ws, path, version, size, mtime_ns, sealed) VALUES (%s, %s, %s, %s, %s, %s)",
        *(found.path, version, size, found.mtime_ns, found.sealed),
    )
    if is_indexed(found.path):
        connection.run("INSERT INTO unindexed (ws, path, changes) VALUES (%s, %s, 1)", found.path)


def _same(connection: Connection, path: str, version: int) -> bool:
    """Returns whether a version of a file has the same bytes as the one before."""
    new, old = (stored_parts(connection, path, number) for number in (version, version - 1))
    return b"".join(new) == b"".join(old)


def _add_parts(connection: Connection, path: str, version: int, parts: Iterable[bytes]) -> int:
    size = 0
    for part in parts:
        connection.run(
            "INSERT INTO file_part (ws, path, version, start, data) VALUES (%s, %s, %s, %s, %b)",
            *(path, version, size, part),
        )
        size += len(part)
    return size


def _streamed(connection: Connection, select: str) -> Iterator[tuple[Any, ...]]:
    """Yields the rows of a query, of which only ROWS are in memory."""
    with connection.cursor(name="moved") as cursor:
        cursor.itersize = ROWS
        cursor.execute(select, (connection.ws,))
        yield from cursor
