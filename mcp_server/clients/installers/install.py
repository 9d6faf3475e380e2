"""Installs into a client and uninstalls: writes its files, backups, and a record of the state before.

The record, `.local/installs/CLIENT.json`, is written before the files, so that an interrupted installation can be
undone.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ValidationError

from mcp_server.clients.adapters import opencode
from mcp_server.clients.installers import config_file, entries
from mcp_server.clients.installers.config_file import ConfigFile, digest
from mcp_server.clients.installers.known import Client, Machine
from mcp_server.clients.installers.plan import FileChange, Plan, hooks_place, place
from mcp_server.errors import ContextManagerError, Invalid
from mcp_server.memory import Memory

RECORDS = ".local/installs"


class FileRecord(BaseModel, frozen=True):
    """The change of one file.

    `before` and `after` are the SHA-256 of its bytes before and after (`before` is "" for a new file). `folders` are
    folders that we made, innermost first.
    """

    path: str
    existed: bool
    before: str
    after: str
    backup: str | None = None
    folders: list[str] = []


class Installation(BaseModel, frozen=True):
    """One installation: for all projects, or for one."""

    project: str | None = None
    name: str
    at: str
    files: list[FileRecord]


class Record(BaseModel, frozen=True):
    """All installations into one client from this workspace."""

    client: str
    installations: list[Installation] = []

    def of(self, project: Path | None) -> Installation | None:
        wanted = None if project is None else str(project)
        return next((found for found in self.installations if found.project == wanted), None)


Outcome = Literal["created", "written", "restored", "deleted", "cleaned", "unchanged"]


@dataclass(frozen=True, slots=True)
class Done:
    """The result for one file. `cleaned` means that only our part was removed."""

    path: Path
    what: Outcome
    backup: Path | None = None


def record_of(memory: Memory | None, client: Client) -> Record:
    """Returns the record of a client; an empty one if there is no memory, no record, or an unreadable one."""
    path = _path(client)
    try:
        if memory is not None and memory.files.exists(path):
            return Record.model_validate_json(memory.files.read_bytes(path))
    except ValidationError:
        pass
    return Record(client=client.name)


def install(memory: Memory, plan: Plan) -> tuple[Done, ...]:
    """Carries out a plan, with a backup of each existing file and a record for `uninstall`.

    If a file cannot be written, all changes, backups and the record are rolled back.
    """
    record = record_of(memory, plan.client)
    earlier = record.of(plan.project)
    known = {file.path: file for file in earlier.files} if earlier else {}
    if not plan.needed:
        return tuple(Done(change.file.path, "unchanged") for change in plan.changes)
    needed = [change for change in plan.changes if change.changes]
    kept: dict[str, FileRecord] = dict(known)
    written: list[FileChange] = []
    try:
        for change in needed:
            path = str(change.file.path)
            kept[path] = _record_change(change, known.get(path))
        now = Installation(
            project=None if plan.project is None else str(plan.project),
            name=plan.name,
            at=memory.clock().isoformat(),
            files=list(kept.values()),
        )
        others = [found for found in record.installations if found.project != now.project]
        _save(memory, plan.client, record.model_copy(update={"installations": [*others, now]}))
        for change in needed:
            config_file.write(change.file, change.file.encoded(change.after))
            written.append(change)
    except ContextManagerError:
        _roll_back(written, [new for path, new in kept.items() if known.get(path) != new], known)
        _save(memory, plan.client, record)
        raise
    return tuple(_done(change, kept) for change in plan.changes)


def _done(change: FileChange, kept: Mapping[str, FileRecord]) -> Done:
    if not change.changes:
        return Done(change.file.path, "unchanged")
    backup = kept[str(change.file.path)].backup
    path = Path(backup) if backup else None
    return Done(change.file.path, "created" if change.file.data is None else "written", path)


def _roll_back(written: Sequence[FileChange], records: Sequence[FileRecord], known: Mapping[str, FileRecord]) -> None:
    """Restores the written files, and deletes new backups and folders. Ignores errors: the caller raises the first."""
    for change in written:
        with contextlib.suppress(ContextManagerError, OSError):
            if change.file.data is None:
                change.file.real.unlink()
            else:
                ours = dataclasses.replace(change.file, data=change.file.encoded(change.after))
                config_file.write(ours, change.file.data)
    for new in records:
        before = known.get(new.path)
        if new.backup and not (before and before.backup == new.backup):
            Path(new.backup).unlink(missing_ok=True)
        _remove_folders(new)


def uninstall(memory: Memory | None, client: Client, machine: Machine, project: Path | None = None) -> tuple[Done, ...]:
    """Removes our entry and hooks from a client.

    A file that has not changed since we wrote it gets its earlier bytes back; from any other file only our part is
    removed. An older entry of ours in the earlier bytes is removed too.
    """
    record = record_of(memory, client)
    installation = record.of(project)
    files = {file.path: file for file in installation.files} if installation else {}
    path, container = place(client, machine, project)
    paths = {str(path): path}
    if hooks := hooks_place(client.hooks, machine, project):
        paths[str(hooks)] = hooks
    paths |= {name: Path(name) for name in files}
    done = tuple(_remove_from(client, container, found, files.get(name)) for name, found in paths.items())
    if installation is not None and memory is not None:
        rest = [found for found in record.installations if found is not installation]
        _save(memory, client, record.model_copy(update={"installations": rest}))
    return tuple(found for found in done if found.what != "unchanged")


def _record_change(change: FileChange, earlier: FileRecord | None) -> FileRecord:
    """Returns the record of a change. If the file has not changed since our last write, its first backup is kept."""
    after = digest(change.file.encoded(change.after))
    if earlier is not None and earlier.after == digest(change.file.data):
        return earlier.model_copy(update={"after": after})
    backup = None if change.file.data is None else str(config_file.back_up(change.file))
    folders = []
    for folder in change.file.real.parents:
        if folder.exists():
            break
        folders.append(str(folder))
    return FileRecord(
        path=str(change.file.path),
        existed=change.file.data is not None,
        before=digest(change.file.data),
        after=after,
        backup=backup,
        folders=folders,
    )


def _remove_from(client: Client, container: tuple[str, ...], path: Path, record: FileRecord | None) -> Done:
    file = config_file.read(path)
    if file.data is None:
        return Done(path, "unchanged")
    backup = Path(record.backup) if record and record.backup else None
    if record is not None and digest(file.data) == record.after:
        if not record.existed:
            file.real.unlink()
            _remove_folders(record)
            return Done(path, "deleted")
        original = _original(record)
        if original is not None:
            bare = _without_ours(client, container, dataclasses.replace(file, data=original))
            _write_rest(file, bare, original)
            if bare == original and backup is not None:
                backup.unlink(missing_ok=True)  # the file is restored
                backup = None
            return Done(path, "restored", backup)
    data = _without_ours(client, container, file)
    if data == file.data:
        if backup is not None and record is not None and digest(data) == record.before:
            backup.unlink(missing_ok=True)  # the installation was interrupted before it wrote this file
        return Done(path, "unchanged")
    _write_rest(file, data)
    return Done(path, "cleaned", backup)


def _write_rest(file: ConfigFile, data: bytes, original: bytes | None = None) -> None:
    """Writes a file without our part. Deletes a plugin of ours, unless it was empty before."""
    config_file.refuse_read_only(file)
    if data or data == original or file.path.suffix != ".js":
        config_file.write(file, data)
    else:
        file.real.unlink()


def _remove_folders(record: FileRecord) -> None:
    """Deletes the folders that we made if they are empty."""
    for folder in record.folders:
        with contextlib.suppress(OSError):
            Path(folder).rmdir()


def _original(record: FileRecord) -> bytes | None:
    try:
        data = Path(record.backup or "").read_bytes()
    except OSError:
        return None
    return data if digest(data) == record.before else None


def _without_ours(client: Client, container: tuple[str, ...], file: ConfigFile) -> bytes:
    """Returns the file's bytes without our part, and without the JSON objects around it that are then empty."""
    text, where = file.text, str(file.path)
    if client.hooks and client.hooks.plugin and file.path.suffix == ".js":
        return b"" if opencode.command_in(text) else file.data or b""
    toml = client.form == "toml" and file.path.suffix == ".toml"  # Codex has its hooks in a JSON file
    try:
        if toml or client.form == "json":
            text = entries.remove(client, container, text, where)
        if client.hooks and not toml:
            text = entries.put_hooks(text, {}, where)
        if text != file.text and not toml:
            events = client.hooks.events if client.hooks else ()
            around = [container[:depth] for depth in range(len(container), 0, -1)]
            for path in (*around, *(("hooks", event) for event in events), ("hooks",)):
                text = entries.remove_empty(path, text, where)
    except Invalid as error:
        raise Invalid(f"{error}; our entry is still in it") from None
    return file.encoded(text)


def _path(client: Client) -> str:
    return f"{RECORDS}/{client.name}.json"


def _save(memory: Memory, client: Client, record: Record) -> None:
    if not record.installations:
        if memory.files.exists(_path(client)):
            memory.files.remove(_path(client))
        return
    memory.files.write_atomic(_path(client), record.model_dump_json(indent=2) + "\n")
