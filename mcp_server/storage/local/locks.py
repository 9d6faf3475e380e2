"""Locks among the tasks of this process and among processes. The operating system releases the locks of a dead process.

The operating system's lock is always taken without blocking, and tried again after short async sleeps, so that a
waiting task occupies no worker thread.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import anyio

from mcp_server.errors import Unavailable
from mcp_server.storage import ports

WAIT_SECONDS = 120.0
"""Seconds after which the process that holds a lock counts as stuck, and the waiting caller gets an error."""


class Held:
    """A lock that is held until `release`, at the latest until the process ends."""

    def __init__(self, handle: int | None, path: Path) -> None:
        self.lost = False  # the operating system never takes a lock from a running process
        self._handle = handle
        self._path = path

    def __enter__(self) -> Held:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()

    def release(self, *, forget: bool = False) -> None:
        """Releases the lock; a second call does nothing. With `forget`, also deletes its file: use that only for a name
        that is never used again."""
        if self._handle is not None:
            if forget:
                with contextlib.suppress(OSError):  # Windows does not delete open files, such as this one
                    self._path.unlink(missing_ok=True)
            os.close(self._handle)
            self._handle = None


class Locks(ports.Locks):
    """The locks of one workspace, with files in `.local/locks/`. Create only one object per process."""

    # Sessions share 4,096 lock files: lock files cannot be deleted safely, and the number of sessions is unlimited.
    session_digits = slice(5, 8)

    def __init__(
        self, local: Path, wait_seconds: float = WAIT_SECONDS, check_there: Callable[[], None] = lambda: None
    ) -> None:
        super().__init__()
        self._folder = local / "locks"
        self._wait_seconds = wait_seconds
        self.check_there = check_there
        """Raises Unavailable if the workspace is gone. Called before a missing folder is created."""

    def try_maintainer(self) -> Held | None:
        try:
            return self._try("maintainer", shared=False)
        except Unavailable:
            return None

    def share(self, name: str) -> Held | None:
        try:
            return self._try(f"share-{_safe(name)}", shared=True)
        except Unavailable:
            return Held(None, self._folder)

    def try_exclusive(self, name: str) -> Held | None:
        return self._try(f"share-{_safe(name)}", shared=False)

    def wait_for_state(self) -> Awaitable[Held]:
        """Waits for the lock under which a damaged `state.db` is replaced. The caller may hold any of the three other
        locks."""
        return self._wait_for("share-state")

    @contextlib.asynccontextmanager
    async def _exclusive(self, level: str, name: str) -> AsyncIterator[None]:
        held = self._held.get()
        self._check_order(level, held)
        async with self._inside.setdefault(name, anyio.Lock(fast_acquire=True)):
            lock = await self._wait_for(name)
            self._held.set((*held, level))
            try:
                yield
            finally:
                self._held.set(held)
                lock.release()

    async def _wait_for(self, name: str) -> Held:
        deadline = time.monotonic() + self._wait_seconds
        pause = 0.0005
        while True:
            lock = self._try(name, shared=False)
            if lock is not None:
                return lock
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"another process has held the lock {name!r} for {self._wait_seconds:.0f} s; "
                    "end it if it hangs (`context-manager doctor` lists them) and try again"
                )
            await anyio.sleep(pause)
            pause = min(pause * 1.5, 0.02)

    def _try(self, name: str, *, shared: bool) -> Held | None:
        import portalocker

        path = self._folder / f"{name}.lock"
        try:
            handle = self._opened(path)
        except OSError as error:
            raise Unavailable(
                f"cannot write the lock {path}: {error.strerror or error}; "
                "check the disk and the permissions of .local/"
            ) from error
        try:
            kind = portalocker.LockFlags.SHARED if shared else portalocker.LockFlags.EXCLUSIVE
            portalocker.lock(handle, kind | portalocker.LockFlags.NON_BLOCKING)
        except portalocker.AlreadyLocked:
            os.close(handle)
            return None
        except portalocker.LockException as error:
            os.close(handle)
            raise Unavailable(
                f"{self._folder} is on a file system without locks ({error}); move .local/ to a local disk"
            ) from error
        return Held(handle, path)

    def _opened(self, path: Path) -> int:
        flags = os.O_RDWR | os.O_CREAT
        try:
            return os.open(path, flags, 0o600)
        except FileNotFoundError:
            self.check_there()
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            return os.open(path, flags, 0o600)


def _safe(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "_", name)
