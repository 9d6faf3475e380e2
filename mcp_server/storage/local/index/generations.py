"""Generations: which index file is the live one, which is being filled, which may go.

    memory-2-wordllama-7.db        generation 7 of schema 2 with embedder wordllama
    memory-2-wordllama.current     names the live generation of these two; replaced atomically

Whoever reads or fills a generation shares its lock. One that is not live and that nobody shares is deleted. Files of
another schema or another embedder are never looked at.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mcp_server.errors import Unavailable
from mcp_server.storage.local import durable
from mcp_server.storage.local.index.schema import SCHEMA

if TYPE_CHECKING:
    from mcp_server.storage.local.locks import Held, Locks


MAGIC = b"SQLite format 3\0"


@dataclass(frozen=True, slots=True)
class Generation:
    """A generation that this process uses until it releases `held`."""

    number: int
    path: Path
    held: Held


class Generations:
    """The index files of one schema and one embedder in a folder."""

    def __init__(self, folder: Path, locks: Locks, embedder: str) -> None:
        self.folder = folder
        self._locks = locks
        self._prefix = f"memory-{SCHEMA}-{re.sub(r'[^a-z0-9_.]', '_', embedder.lower())}"
        self._pointer = folder / f"{self._prefix}.current"
        self._damage = folder / f"{self._prefix}.damaged"

    def path(self, number: int) -> Path:
        """Returns the path of a generation's file."""
        return self.folder / f"{self._prefix}-{number}.db"

    def current(self) -> int | None:
        """Returns the live generation's number; None if there is none, or the pointer cannot be read."""
        try:
            return int(self._pointer.read_text("ascii"))
        except (OSError, ValueError):
            return None

    def take_current(self) -> Generation | None:
        """Returns the live generation, shared with others; None if there is none or its file is gone."""
        for _ in range(100):
            number = self.current()
            if number is None:
                return None
            held = self._locks.share(self._lock(number))
            if held is None:  # somebody is just deleting it: the pointer has moved, or moves in a moment
                continue
            if self.current() == number:
                if self.path(number).is_file():
                    return Generation(number, self.path(number), held)
                held.release()
                return None
            held.release()
        return None

    def serves(self) -> bool:
        """Returns whether the live file begins like a database and was not reported as damaged."""
        number = self.current()
        if number is None or self._reported() == number:
            return False
        try:
            with self.path(number).open("rb") as file:
                return file.read(len(MAGIC)) == MAGIC
        except OSError:
            return False

    def report_damage(self, number: int) -> None:
        """Records that a generation cannot be read, for the maintaining process, which only writes."""
        with contextlib.suppress(OSError):
            self._damage.write_text(str(number), "ascii")

    def _reported(self) -> int | None:
        try:
            return int(self._damage.read_text("ascii"))
        except (OSError, ValueError):
            return None

    def begin(self) -> Generation:
        """Creates an empty generation for this process. Raises Unavailable if no file can be made."""
        self._locks.check_there()
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            while True:
                number = max([self.current() or 0, *self._numbers()]) + 1
                held = self._locks.share(self._lock(number))
                if held is None:
                    continue
                with contextlib.suppress(FileExistsError):
                    os.close(os.open(self.path(number), os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
                    return Generation(number, self.path(number), held)
                held.release()
        except OSError as error:
            raise Unavailable(
                f"no index can be made in {self.folder} ({error.strerror or error}); search reads the files "
                "themselves. Check the disk and the permissions of .local/"
            ) from error

    def publish(self, generation: Generation) -> None:
        """Makes a filled generation the live one, for every process."""
        temporary = self._pointer.with_name(f"{self._pointer.name}.{secrets.token_hex(4)}")
        temporary.write_text(str(generation.number), "ascii")
        durable.replace(temporary, self._pointer)

    def sweep(self) -> list[int]:
        """Deletes all generations that are neither live nor in use. Returns their numbers."""
        gone: list[int] = []
        for number in self._numbers():
            if number == self.current():
                continue
            try:
                held = self._locks.try_exclusive(self._lock(number))
            except Unavailable:
                continue
            if held is None:
                continue
            if number != self.current():
                for ending in ("", "-wal", "-shm", "-journal"):
                    with contextlib.suppress(OSError):
                        self.path(number).with_name(self.path(number).name + ending).unlink()
                gone.append(number)
            held.release(forget=True)
        return gone

    def left(self) -> list[int]:
        """Returns the numbers of the other generations that exist."""
        return [number for number in self._numbers() if number != self.current()]

    def sweep_others(self) -> list[str]:
        """Deletes unused index files of other schemas and embedders. Returns the names of those in use."""
        used: list[str] = []
        for file in sorted(self.folder.glob("memory-*.db")):
            found = re.fullmatch(r"(memory-\d+-.*)-\d+\.db", file.name)
            if found is None or found[1] == self._prefix:
                continue
            held = self._locks.try_exclusive(f"index-{file.stem}")
            if held is None:
                used.append(file.name)
                continue
            (self.folder / f"{found[1]}.current").unlink(missing_ok=True)
            for ending in ("-wal", "-shm", "-journal", ""):
                file.with_name(file.name + ending).unlink(missing_ok=True)
            held.release(forget=True)
        return used

    def _numbers(self) -> list[int]:
        pattern = re.compile(re.escape(self._prefix) + r"-(\d+)\.db")
        try:
            names = [entry.name for entry in self.folder.iterdir()]
        except OSError:
            return []
        return sorted(int(found[1]) for name in names if (found := pattern.fullmatch(name)))

    def _lock(self, number: int) -> str:
        return f"index-{self._prefix}-{number}"
