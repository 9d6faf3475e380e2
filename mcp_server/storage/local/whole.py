"""Exports a whole workspace from a folder, and imports one into a folder.

An import builds the workspace in a hidden folder beside the target and renames it at the end. A killed import leaves
only the hidden folder, which the next import replaces.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import IO

from anyio.to_thread import run_sync

from mcp_server.errors import Conflict, Refused, Unavailable
from mcp_server.storage.files import SETTINGS, is_untouched_template, is_usable, parts_of
from mcp_server.storage.local.durable import TEMPORARY, sync_folder
from mcp_server.storage.local.files import WorkspaceFiles
from mcp_server.storage.local.folders import check_may_open, is_workspace
from mcp_server.storage.local.git.repository import Repository
from mcp_server.storage.local.locks import Locks
from mcp_server.storage.local.state import SQLITE, LocalState, create
from mcp_server.storage.sqlite import Database
from mcp_server.storage.values import LOCAL
from mcp_server.storage.whole import (
    BRANCH,
    OF_AN_ENGINE,
    ORDERS,
    PART_BYTES,
    TABLES,
    MovedFile,
    Sink,
    Source,
    dump_history,
    git,
    moves,
    read_bundle,
)

_REMADE = ("index", "locks", "state.db", "state.db-wal", "state.db-shm", "state.db-journal")
"""Files in `.local/` of an empty workspace that are not kept when an import replaces it."""


async def dump(root: Path, local: Path, state: LocalState, sink: Sink) -> list[str]:
    """Writes a whole workspace to `sink`. Returns the paths that are left out: links, and names that some system does
    not allow. The caller must bring the state up to date first.

    If a transcript grows meanwhile, only the part that the exported rows cover is written.
    """
    ends: dict[str, int] = {}

    def rows(connection: sqlite3.Connection) -> None:
        for table, columns in TABLES.items():
            # The names are constants, not input.
            found = connection.execute(
                f"SELECT {', '.join(columns)} FROM {SQLITE.parts[table]} ORDER BY {ORDERS[table]}"
            )
            for row in found:
                if table == "entry" and row[0] in OF_AN_ENGINE:
                    continue
                if table == "session":
                    ends[row[1]] = row[11]
                sink.row(table, tuple(row))

    await state.file.read(rows)
    return await run_sync(_dump_rest, root, local, ends, sink)


def _dump_rest(root: Path, local: Path, ends: Mapping[str, int], sink: Sink) -> list[str]:
    repository = Repository(root)
    if repository.exists():
        dump_history(root, repository.branch() or BRANCH, sink)
    left_out: list[str] = []
    for path, real in sorted(_files(root, local)):
        if not all(map(is_usable, path.split("/"))) or real.is_symlink() or not real.is_file():
            left_out.append(path)
            continue
        with real.open("rb") as stream:
            found = os.fstat(stream.fileno())
            end = min(ends.get(path, found.st_size), found.st_size)
            sink.file(MovedFile(path, found.st_mtime_ns, not found.st_mode & 0o222), _parts(stream, end))
    return left_out


def _files(root: Path, local: Path) -> Iterator[tuple[str, Path]]:
    """Yields the path in the workspace and the path on disk of every file that is exported."""
    for base, prefix in ((root, ""), (local, f"{LOCAL}/")):
        for folder, folders, names in os.walk(base):
            here = Path(folder)
            if here == root:
                folders[:] = [name for name in folders if name not in (LOCAL, ".git")]
            for name in (*names, *(name for name in folders if (here / name).is_symlink())):
                path = prefix + (here / name).relative_to(base).as_posix()
                if moves(path) and not TEMPORARY.fullmatch(name):
                    yield path, here / name


def _parts(stream: IO[bytes], end: int) -> Iterator[bytes]:
    while end > 0 and (part := stream.read(min(PART_BYTES, end))):
        end -= len(part)
        yield part


async def load(root: Path, source: Source, generated: Mapping[str, str]) -> None:
    """Fills a workspace that is missing or empty. `generated` are files (path -> text) for this machine, which are
    written if the import lacks them.

    Raises Refused if the folder is not empty, Conflict if another process imports into it, Unavailable if the folder
    cannot be replaced.
    """
    await run_sync(check_empty, root)
    beside = root.with_name(f".{root.name}.import")
    lock = Locks(beside / "locks").try_exclusive("import")
    if lock is None:
        raise Conflict(f"another import into {root} is running")
    try:
        staged = beside / "memory"
        await run_sync(_load_files, staged, source)
        database = await Database.open(staged / LOCAL / "state.db")
        try:
            await database.write(create)
            await database.write(lambda connection: _load_rows(connection, source))
        finally:
            await database.close()
        await run_sync(_put_in_place, staged, root, beside / "empty", generated)
    finally:
        lock.release()
    await run_sync(partial(shutil.rmtree, beside, ignore_errors=True))


def check_empty(root: Path) -> None:
    """Raises Refused unless the folder is missing, empty, or a memory in which nothing was recorded or changed."""
    check_may_open(root, "create")
    if not is_workspace(root):
        return
    known = {name for name, _ in _files(root, root / LOCAL) if not name.startswith(f"{LOCAL}/logs/")}
    files = WorkspaceFiles(root)
    shown = sorted(known - {SETTINGS}, key=lambda name: (name.startswith("."), name))
    mine = [name for name in shown if not is_untouched_template(name, files.readable(name) or "")]
    if mine:
        raise Refused(
            f"the memory in {root} is not empty (it has {mine[0]}, for example): import into a new folder with "
            "--workspace DIR"
        )


def _load_files(staged: Path, source: Source) -> None:
    shutil.rmtree(staged, ignore_errors=True)
    try:
        staged.mkdir(parents=True, mode=0o700)
        (staged / LOCAL).mkdir(mode=0o700)
        with tempfile.TemporaryDirectory(prefix="context-manager-") as place:
            history = source.history(Path(place))
            if history is not None:
                read_bundle(history.bundle, staged, history.branch)
        for found, parts in source.files():
            if not moves(found.path) or "/".join(parts_of(found.path)) != found.path:
                raise Refused(f"the export has {found.path!r}, which is not a file of a memory; nothing was imported")
            real = staged / found.path
            real.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with real.open("xb") as stream:
                for part in parts:
                    stream.write(part)
                stream.flush()
                os.fsync(stream.fileno())
            real.chmod(0o444 if found.sealed else 0o600)
            os.utime(real, ns=(found.mtime_ns, found.mtime_ns))
        if history is not None and Repository(staged).head():
            git(staged, "reset", "--quiet")  # makes git's index; the files exist already
        for folder, *_ in os.walk(staged):
            sync_folder(Path(folder))
    except OSError as error:
        raise Unavailable(f"{staged} cannot be written: {error.strerror or error}") from error


def _load_rows(connection: sqlite3.Connection, source: Source) -> None:
    for table, values in source.rows():
        columns = TABLES[table]
        marks = ", ".join("?" * len(columns))
        connection.execute(f"INSERT INTO {SQLITE.parts[table]} ({', '.join(columns)}) VALUES ({marks})", values)
    connection.execute("INSERT OR REPLACE INTO entries VALUES ('state', 'complete', 'true')")


def _put_in_place(staged: Path, root: Path, aside: Path, generated: Mapping[str, str]) -> None:
    """Moves the imported workspace to `root`. If an empty workspace was there, keeps this machine's files from its
    `.local/`, except those in `_REMADE`."""
    try:
        if root.is_dir():
            check_empty(root)
            if (root / LOCAL).is_dir():
                for found in (root / LOCAL).iterdir():
                    to = staged / LOCAL / found.name
                    if found.name not in _REMADE and not to.exists():
                        (shutil.copytree if found.is_dir() else shutil.copy2)(found, to)
        for path, text in generated.items():
            if not (staged / path).exists():
                (staged / path).write_text(text, "utf-8")
        if root.is_dir():
            shutil.rmtree(aside, ignore_errors=True)
            root.rename(aside)
        staged.rename(root)
        sync_folder(root.parent)
    except OSError as error:
        raise Unavailable(
            f"{root} cannot be replaced ({error.strerror or error}); stop the programs that use it, or import into "
            "another folder with --workspace DIR"
        ) from error
