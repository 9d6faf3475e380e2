"""Exports a whole workspace from PostgreSQL and imports one, each in one transaction, and writes the versions of a
workspace as a git repository, which people read and clone.

The git history of an imported workspace is stored as a file, `BUNDLE`, because versions in tables have no messages,
authors, tags and branches. When the workspace is exported, newer versions become commits on top of that history.

Each `export` adds commits for the versions that are not in the repository yet. The database records the last commit and
its versions after the commits were made, so a killed run is repeated on top of the same commit. If a text was forgotten
since, or the repository is lost, all commits are made again.
"""

from __future__ import annotations

import hashlib
import itertools
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from mcp_server.errors import Refused, Unavailable
from mcp_server.history.commit_rules import refusal
from mcp_server.storage.files import SETTINGS, is_untouched_template
from mcp_server.storage.forgotten import PATH as FORGOTTEN
from mcp_server.storage.git_process import GitFailed
from mcp_server.storage.postgres.database import Connection, Database
from mcp_server.storage.postgres.files import TeamFiles, add_part, has_history
from mcp_server.storage.postgres.state import put_entries, read_entries
from mcp_server.storage.state import storable
from mcp_server.storage.values import LOCAL, is_indexed
from mcp_server.storage.whole import (
    BRANCH,
    BUNDLE,
    OF_AN_ENGINE,
    ORDERS,
    PART_BYTES,
    TABLES,
    MovedFile,
    MovedHistory,
    NewCommit,
    Sink,
    Source,
    dump_history,
    fast_import,
    git,
    message,
    moves,
    new_repository,
    read_bundle,
    tip_of,
    versions,
)

IMPORTED = ("git", "imported")
"""Key of the entry about `BUNDLE`: branch, the server's time at the import, and digest of the requests to forget."""

EXPORTED = ("git", "exported")
"""Key of the entry about the repository: its last commit, and the digest of the requests to forget."""

IN_GIT = "in git"
"""Namespace of the exported versions: path → number of the last version; for a conversation, its time in ns."""

GATHERED = timedelta(minutes=1)
"""Versions within this time become one commit, unless the same file changed twice."""

CHECKED_BYTES = 4 << 20
"""Larger files are not searched for secrets."""


@dataclass(frozen=True, slots=True)
class _NewVersion:
    """A version that is not in git yet. `size` is None for a deletion; `mark` is the value for IN_GIT."""

    at: datetime
    path: str
    version: int
    size: int | None
    mark: int


def export(database: Database, folder: Path, remote: str | None, tracked: Sequence[str]) -> str | None:
    """Updates the repository in `folder`, mirrors it to `remote`, and returns its last commit; None if there is nothing
    to commit.

    `tracked` are the files and folders of a workspace that git contains. Raises Unavailable if git is missing or fails,
    or if another process has taken over the caller's lease; then nothing is recorded or pushed.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    new: dict[str, int] = {}
    noted, remade = database.apart(lambda open_: _write(open_, folder, remote, tracked, new))
    if noted is None:
        return None
    pushed = remote is None or (noted.get("pushed") == [remote, noted["tip"]] and not new)

    def note(connection: Connection) -> None:
        if remade:
            connection.run("DELETE FROM entry WHERE ws = %s AND namespace = %s", IN_GIT)
        put_entries(connection, {(IN_GIT, path): mark for path, mark in new.items()})
        put_entries(connection, {EXPORTED: noted})

    if new or remade or not pushed:
        database.apart(note)
    if remote is not None and not pushed:
        try:
            git(folder, "push", "--mirror", "--quiet", remote)
        except GitFailed as error:  # the address may have a password
            raise Unavailable(f"the remote refused the history: {error.said.replace(remote, 'REMOTE')}") from None
        noted["pushed"] = [remote, noted["tip"]]
        database.apart(note)
    return str(noted["tip"])


def _write(
    connection: Connection, folder: Path, remote: str | None, tracked: Sequence[str], new: dict[str, int]
) -> tuple[dict[str, Any] | None, bool]:
    """Makes the missing commits, and adds their versions to `new`. Returns the next value of EXPORTED, and whether all
    commits were made again."""
    connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
    noted, digest = read_entries(connection, [EXPORTED]).get(EXPORTED), forgotten_digest(connection)
    if noted is not None and noted["forgotten"] == digest and _has_last_commit(folder, noted, remote):
        marks = connection.rows("SELECT key, value FROM entry WHERE ws = %s AND namespace = %s", IN_GIT)
        known = {path: int(value) for path, value in marks}
        commits = new_commits(connection, known, tracked, new)
        return {**noted, "tip": fast_import(folder, commits, noted["tip"], noted["branch"])}, False
    place = folder.with_name(f".{folder.name}.new")
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    repository, branch, tip = _all_commits(connection, place, tracked, new)
    if tip is not None:
        shutil.rmtree(folder, ignore_errors=True)
        repository.rename(folder)
    shutil.rmtree(place)
    return (None if tip is None else {"tip": tip, "branch": branch, "forgotten": digest}), True


def _all_commits(
    connection: Connection, place: Path, tracked: Sequence[str], new: dict[str, int]
) -> tuple[Path, str, str | None]:
    """Creates a repository in a folder, with the history from before the import and commits of all versions since. Adds
    all versions to `new`. Returns the folder of the repository, its branch, and its last commit."""
    before, repository = imported_history(connection, place), place / "git"
    known = imported_versions(connection) if before else {}
    branch = before.branch if before else BRANCH
    if before is not None:
        read_bundle(before.bundle, repository, branch, bare=True)
    else:
        new_repository(repository, branch)
    tip = fast_import(repository, new_commits(connection, known, tracked, new), tip_of(repository, branch), branch)
    new |= {path: mark for path, mark in known.items() if path not in new}
    return repository, branch, tip


def new_commits(
    connection: Connection, known: Mapping[str, int], tracked: Sequence[str], new: dict[str, int]
) -> Iterator[NewCommit]:
    """Yields commits for all versions that are not in `known`, oldest first, and adds the versions to `new`.

    Versions that must not be committed, for example because of a secret, are left out.
    """
    group: list[_NewVersion] = []
    for one in _unexported(connection, known, tracked):
        if group and (one.at - group[0].at > GATHERED or any(one.path == other.path for other in group)):
            yield _commit(connection, group)
            group = []
        new[one.path] = one.mark
        if not _may_not_commit(connection, one):
            group.append(one)
    if group:
        yield _commit(connection, group)


def _unexported(connection: Connection, known: Mapping[str, int], tracked: Sequence[str]) -> Iterator[_NewVersion]:
    places = (list(tracked), [f"{name}/" for name in tracked])
    within = "(path = ANY(%s) OR EXISTS (SELECT 1 FROM unnest(%s::text[]) AS p (top) WHERE starts_with(path, top)))"
    documents = connection.rows(f"SELECT path, version, size, at FROM file_version WHERE ws = %s AND {within}", *places)
    closed = connection.rows(
        f"SELECT path, version, size, mtime_ns FROM file f WHERE ws = %s AND {within} AND starts_with(path, 'raw/') "
        "AND (sealed OR NOT EXISTS "
        "(SELECT 1 FROM session s WHERE s.ws = f.ws AND s.path = f.path AND s.status = 'open'))",
        *places,
    )
    found = [_NewVersion(at, path, number, size, number) for path, number, size, at in documents if has_history(path)]
    for path, number, size, ns in closed:
        found.append(_NewVersion(datetime.fromtimestamp(ns // 1_000_000_000, UTC), path, number, size, ns))
    found.sort(key=lambda one: (one.at, one.path, one.version))
    return (one for one in found if one.mark > known.get(one.path, 0))


def _commit(connection: Connection, group: Sequence[_NewVersion]) -> NewCommit:
    files = (
        (one.path, one.size, () if one.size is None else stored_parts(connection, one.path, one.version))
        for one in group
    )
    return NewCommit(group[-1].at, message([one.path for one in group]), files)


def _may_not_commit(connection: Connection, one: _NewVersion) -> bool:
    if one.size is None or one.size > CHECKED_BYTES:
        return False
    text = b"".join(stored_parts(connection, one.path, one.version)).decode("utf-8", "replace")
    return refusal(one.path, text, None) is not None


def imported_history(connection: Connection, folder: Path) -> MovedHistory | None:
    """Writes the history from before the import to a file in `folder`. Returns None if there is none, or if a text was
    forgotten since, which the history may contain."""
    noted = read_entries(connection, [IMPORTED]).get(IMPORTED)
    row = connection.row("SELECT version FROM file WHERE ws = %s AND path = %s", BUNDLE)
    if noted is None or not row or noted["forgotten"] != forgotten_digest(connection):
        return None
    bundle = folder / "bundle"
    with bundle.open("wb") as stream:
        for part in stored_parts(connection, BUNDLE, row[0]):
            stream.write(part)
    return MovedHistory(bundle, noted["branch"])


def imported_versions(connection: Connection) -> dict[str, int]:
    """Returns the last version of each imported file, with values as in IN_GIT."""
    noted = read_entries(connection, [IMPORTED]).get(IMPORTED)
    if noted is None:
        return {}
    found = connection.rows(
        "SELECT path, max(version) FROM file_version WHERE ws = %s AND at <= %s::timestamptz GROUP BY path",
        noted["at"],
    )
    raw = connection.rows(
        "SELECT path, mtime_ns FROM file WHERE ws = %s AND starts_with(path, 'raw/') "
        "AND mtime_ns <= extract(epoch FROM %s::timestamptz) * 1000000000",
        noted["at"],
    )
    return {path: int(mark) for path, mark in [*(row for row in found if has_history(row[0])), *raw]}


def forgotten_digest(connection: Connection) -> str:
    """Returns a digest of the requests to forget."""
    row = connection.row("SELECT version FROM file WHERE ws = %s AND path = %s", FORGOTTEN)
    parts = stored_parts(connection, FORGOTTEN, row[0]) if row else ()
    return hashlib.sha256(b"".join(parts)).hexdigest()


def stored_parts(connection: Connection, path: str, version: int) -> Iterator[bytes]:
    """Yields the bytes of a version of a file, with about PART_BYTES in memory at a time."""
    start = 0
    while True:
        rows = connection.rows(
            "SELECT data FROM file_part WHERE ws = %s AND path = %s AND version = %s AND start >= %s AND start < %s "
            "ORDER BY start",
            *(path, version, start, start + PART_BYTES),
        )
        if not rows:
            return
        for (data,) in rows:
            start += len(data)
            yield bytes(data)


def _has_last_commit(folder: Path, noted: Mapping[str, Any], remote: str | None) -> bool:
    """Returns whether the repository has the last exported commit. A missing repository is copied from the remote."""
    try:
        if not folder.exists() and remote is not None:
            git(folder.parent, "clone", "--quiet", "--mirror", remote, str(folder))
        git(folder, "cat-file", "-e", f"{noted['tip']}^{{commit}}")
    except (GitFailed, OSError):
        return False
    return True


ROWS = 2_000
"""Most rows that one statement inserts, or that the server sends at a time."""


def dump(database: Database, tracked: Sequence[str], sink: Sink) -> None:
    """Writes a whole workspace to `sink`, as it is at one moment. `tracked` are the files and folders that git
    contains."""

    def write(connection: Connection) -> None:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        for table, columns in TABLES.items():
            select = f"SELECT {', '.join(columns)} FROM {table} WHERE ws = %s ORDER BY {ORDERS[table]}"
            for row in _streamed(connection, select):
                if table != "entry" or row[0] not in OF_AN_ENGINE:
                    sink.row(table, row)
        with tempfile.TemporaryDirectory(prefix="context-manager-") as place:
            repository, branch, _ = _all_commits(connection, Path(place), tracked, {})
            dump_history(repository, branch, sink)
        listed = "SELECT path, version, mtime_ns, sealed FROM file WHERE ws = %s ORDER BY path"
        for path, version, mtime_ns, sealed in _streamed(connection, listed):
            if moves(path):
                sink.file(MovedFile(path, mtime_ns, sealed), stored_parts(connection, path, version))

    database.apart(write)


def load(database: Database, source: Source) -> None:
    """Fills an empty workspace, in one transaction. Raises Refused for a workspace that is not empty."""

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
                for path, at, data in versions(repository, history.branch, has_history):
                    _add_version(connection, path, at, data)
                with history.bundle.open("rb") as stream:
                    parts = iter(lambda: stream.read(PART_BYTES), b"")
                    _add_file(connection, MovedFile(BUNDLE, 0, False), parts)
        for found, parts in source.files():
            if not moves(found.path) or files.relative(found.path) != found.path:
                raise Refused(f"the export has {found.path!r}, which is not a file of a memory; nothing was imported")
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
                    f"the memory {name} is not empty (it has {path}, for example); set a new workspace=NAME in the "
                    "address"
                )


def _load_rows(connection: Connection, source: Source) -> None:
    for table, rows in itertools.groupby(source.rows(), key=lambda row: row[0]):
        names = TABLES[table]
        # SQLite has no column `id`; the order of equal accesses does not matter.
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


def _add_version(connection: Connection, path: str, at: datetime, data: bytes | None) -> None:
    (version,) = connection.row(
        "INSERT INTO file_version (ws, path, version, at, size) SELECT %s, %s, "
        "1 + coalesce((SELECT max(version) FROM file_version WHERE ws = %s AND path = %s), 0), "
        "least(%s, clock_timestamp()), %s RETURNING version",
        *(path, connection.ws, path, at, None if data is None else len(data)),
    )
    _add_parts(connection, path, version, [data] if data else [])


def _add_file(connection: Connection, found: MovedFile, parts: Iterable[bytes]) -> None:
    """Adds a file. If its bytes are the same as in its last version from git, no new version is added."""
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
    if last and last[1] == size and _equals_previous(connection, found.path, version):
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


def _equals_previous(connection: Connection, path: str, version: int) -> bool:
    """Returns whether a version of a file has the same bytes as the one before."""
    new, old = (stored_parts(connection, path, number) for number in (version, version - 1))
    return b"".join(new) == b"".join(old)


def _add_parts(connection: Connection, path: str, version: int, parts: Iterable[bytes]) -> int:
    size = 0
    for part in parts:
        add_part(connection, path, version, size, part)
        size += len(part)
    return size


def _streamed(connection: Connection, select: str) -> Iterator[tuple[Any, ...]]:
    """Yields the rows of a query, with at most ROWS in memory."""
    with connection.cursor(name="moved") as cursor:
        cursor.itersize = ROWS
        cursor.execute(select, (connection.ws,))
        yield from cursor
