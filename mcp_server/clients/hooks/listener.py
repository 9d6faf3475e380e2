"""The socket on which the maintaining process answers hook commands, and the queue of events that no server received.

It is a Unix socket for this user only (on Windows a loopback port), with a token that only this user can read. A
request contains the hook's input unchanged (`protocol`); the answer is one line of JSON. Sessions are served
concurrently, the events of one session in order of arrival.

Hook commands that no server answers queue their events on disk. An entry is taken by renaming it to `NAME.taken-1`, so
that a newer entry of the same name is kept, and deleted when its work is done. If the process dies in between, the next
one takes the entry again (`taken-2`). Each entry is handled at least once; handlers are idempotent.

The queue comes first: with `claude -p` no server sees the end of a session, and the first prompt of the next one
follows soon. So the server listens only when the queued events are recorded and indexed, or after `FIRST_SECONDS`.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import logging
import os
import re
import secrets
import socket
import stat
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import anyio
from anyio.abc import SocketAttribute, SocketListener, SocketStream
from anyio.streams.stapled import MultiListener
from anyio.to_thread import run_sync

from mcp_server.clients.hooks import command, events, protocol
from mcp_server.clients.hooks.events import handle, work
from mcp_server.clients.hooks.offline import fields_of
from mcp_server.context import windows
from mcp_server.errors import ContextManagerError
from mcp_server.memory import Memory
from mcp_server.storage.local import durable

log = logging.getLogger(__name__)

Handle = Callable[[Memory, str, Mapping[str, object]], Awaitable[dict[str, object]]]
"""Handles an event: memory, event, the hook's input → the hook's output, {} for none."""

TRIES = 3
"""Failed attempts after which an entry is rejected."""

REJECTED = "queue/rejected"
KEPT_REJECTED = 100
LONGEST_ENTRY = 4_000_000
LOOK_SECONDS = 1.0
"""Seconds between checks of the queue, doubled each time while an event waits for its client's transcript."""

RETRY_SECONDS = 30.0
"""Seconds until a failed entry is retried, and the longest time between checks of the queue."""

_TAKEN = re.compile(r"(?P<name>.+\.json)\.taken-(?P<tries>\d+)")


async def watch(memory: Memory, handle: Handle) -> None:
    """Drains the queue now and whenever it changes, until it is cancelled."""
    folder = anyio.Path(memory.disk.local / protocol.QUEUE)
    seen: int | None = None
    pause = LOOK_SECONDS
    while True:
        try:
            now = (await folder.stat()).st_mtime_ns
        except OSError:  # the queue has never been used
            now = None
        if now == seen:
            pause = LOOK_SECONDS
        else:
            seen = now
            await drain(memory, handle)
            left = await run_sync(queued, memory.disk.local)
            failed = any(map(_TAKEN.fullmatch, left))
            pause = RETRY_SECONDS if failed else min(2 * pause, RETRY_SECONDS) if left else LOOK_SECONDS
        await anyio.sleep(pause)


async def drain(memory: Memory, handle: Handle) -> int:
    """Handles the queued entries, oldest first, and returns how many succeeded: 0 if another process is handling them.

    A failed entry stays in the queue. Invalid entries, and those that failed `TRIES` times, are moved to
    `queue/rejected/`.
    """
    if not await run_sync(queued, memory.disk.local):
        return 0
    held = await run_sync(memory.locks.try_exclusive, "hook-queue")
    if held is None:
        return 0
    done = 0
    try:
        for place in await run_sync(_take_entries, memory.disk.local / protocol.QUEUE):
            done += await _handle_entry(memory, place, handle)
    finally:
        held.release()
    return done


def queued(local: Path) -> list[str]:
    """Returns the names of the queued entries. Those that failed, or that a process works on, are `taken`."""
    try:
        names = [place.name for place in (local / protocol.QUEUE).iterdir()]
    except OSError:  # the queue has never been used
        return []
    return [name for name in names if name.endswith(".json") or _TAKEN.fullmatch(name)]


async def _handle_entry(memory: Memory, place: Path, handle: Handle) -> bool:
    """Handles a taken entry. Returns True if that succeeded."""
    entry = await run_sync(_entry, place)
    if entry is None:
        await run_sync(_reject, place, memory.disk.local, "it is not a valid event")
        return False
    try:
        await handle(memory, entry["event"], {**entry["given"], "at": entry["at"]})
    except Exception as error:  # a failed entry must not block the others
        kind = str(error) if isinstance(error, ContextManagerError) else f"{type(error).__name__}: {error}"
        taken = _TAKEN.fullmatch(place.name)
        if taken and int(taken["tries"]) >= TRIES:
            await run_sync(_reject, place, memory.disk.local, kind)
        else:
            log.warning("a queued %s failed and will be retried: %s", entry["event"], kind)
        return False
    await run_sync(place.unlink, True)
    return True


def _take_entries(folder: Path) -> list[Path]:
    """Takes every entry, also those that were taken before and not finished.

    Returns reports of printed texts first, then the others, each oldest first.
    """
    taken: list[tuple[bool, float, str, Path]] = []
    for place in sorted(folder.iterdir(), reverse=True):  # renames `taken-1` to `taken-2` before it makes a `taken-1`
        before = _TAKEN.fullmatch(place.name)
        if before is None and place.suffix != ".json":
            continue
        name, tries = (before["name"], int(before["tries"])) if before else (place.name, 0)
        now = place.with_name(f"{name}.taken-{tries + 1}")
        if tries >= TRIES:  # handling it may have crashed those processes
            _reject(place, folder.parent.parent, "every process that handled it ended before it was done")
            continue
        place.replace(now)
        entry = _entry(now)
        report = entry is not None and "printed" in entry["given"]  # first, because the next prompt needs it
        taken.append((not report, entry["at"] if entry else 0.0, now.name, now))
    return [place for *_, place in sorted(taken)]


def _entry(place: Path) -> dict[str, Any] | None:
    """Returns the entry in a file, or None if it is invalid."""
    try:
        if place.stat().st_size > LONGEST_ENTRY:
            return None
        entry = json.loads(place.read_bytes())
        whole = isinstance(entry["event"], str) and isinstance(entry["given"], dict)
        return {**entry, "at": float(entry["at"])} if whole else None
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None


def _reject(place: Path, local: Path, why: str) -> None:
    folder = local / REJECTED
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    aside = folder / place.name
    place.replace(aside)
    log.warning("a queued event was moved to %s: %s", aside, why)
    for old in sorted(folder.iterdir(), key=lambda found: found.stat().st_mtime_ns)[:-KEPT_REJECTED]:
        old.unlink(missing_ok=True)


FIRST_SECONDS = 3.0
"""Seconds that a starting server works on the queue before it answers hooks (`command.STARTING_BUDGET`)."""

AGAIN_SECONDS = 30.0
"""Seconds between attempts to listen, after one failed."""


async def attend(memory: Memory) -> None:
    """Works on the queue, then also answers hooks, until it is cancelled."""
    first_done = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_keep_working, memory, first_done)
        with anyio.move_on_after(FIRST_SECONDS):
            await first_done.wait()
        await _keep_listening(memory)


async def _keep_listening(memory: Memory) -> None:
    """Listens, and retries if it cannot (no sockets, another user's folder). Until then the queue keeps events."""
    told = ""
    while True:
        try:
            await listen(memory, handle)
        except OSError as error:
            if str(error) != told:
                told = str(error)
                log.warning(
                    "clients' hooks cannot reach this server yet, so their events are recorded later: %s", error
                )
            await anyio.sleep(AGAIN_SECONDS)


async def begun(memory: Memory) -> None:
    """Waits until a starting server listens, because queued events may not be recorded before that."""
    local = str(memory.disk.local)
    if protocol.is_starting(local):  # lists one folder, faster than starting a thread
        await run_sync(_wait_until_listening, local)


def _wait_until_listening(local: str) -> None:
    end = time.monotonic() + FIRST_SECONDS
    while (
        protocol.is_starting(local) and command.ask(local, "Nothing", end) == (None, False) and time.monotonic() < end
    ):
        time.sleep(0.02)  # there is no socket to wait on yet


async def _keep_working(memory: Memory, first_done: anyio.Event) -> None:
    try:
        if await drain(memory, work):
            await memory.index.refresh()
    except ContextManagerError as error:
        log.warning("some queued events of clients' hooks could not be recorded yet: %s", error)
    finally:
        first_done.set()
    await watch(memory, work)


LONGEST_PATH = 100
"""Bytes of a Unix socket's path; systems allow 103 to 107."""

UNIX_SOCKETS = sys.platform != "win32"

READ_SECONDS = 2.0
"""Seconds after which a connection with an incomplete request is closed."""

AT_ONCE = 32
"""Requests handled at the same time; others wait."""


async def listen(memory: Memory, handle: Handle) -> None:
    """Answers hook commands until it is cancelled. Raises OSError if no socket can be made."""
    token = secrets.token_urlsafe(24)
    await windows.forget_closed(memory)
    async with _bound(memory.disk.local) as (listener, place):
        address = protocol.address(token, os.getpid(), place)
        write = partial(durable.put, new=False, mode=0o600)  # readable by this user only
        await run_sync(write, memory.disk.local / protocol.ADDRESS, address, protocol.ADDRESS)
        try:
            await run_sync(protocol.unmark_starting, str(memory.disk.local))
            await listener.serve(_Answerer(memory, handle, token.encode()).answer)
        finally:
            _delete_address(memory.disk.local, address)


@dataclass(slots=True)
class _Answerer:
    """Answers the connections of one listener. `token` is the secret that each request must contain."""

    memory: Memory
    handle: Handle
    token: bytes
    _free: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(AT_ONCE))
    _sessions: WeakValueDictionary[str, anyio.Lock] = field(default_factory=WeakValueDictionary)
    """A lock for each session with an event that is being handled."""

    async def answer(self, client: SocketStream) -> None:
        try:
            async with client, self._free:
                asked = await self._read(client)
                if asked is None:
                    return
                await self._work(client, *asked)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):  # the command did not wait for the answer
            return
        except Exception as error:
            log.warning("a hook was not answered: %s", error)

    async def _read(self, client: SocketStream) -> tuple[str, dict[str, object]] | None:
        """Returns event and input; None if the token is wrong or the request is invalid."""
        sent = bytearray()
        with anyio.move_on_after(READ_SECONDS) as patience:
            with contextlib.suppress(anyio.EndOfStream):
                while len(sent) <= protocol.LONGEST_REQUEST:
                    sent += await client.receive()
        if patience.cancelled_caught or len(sent) > protocol.LONGEST_REQUEST:
            return None
        try:
            token, event, extra, payload = protocol.read_request(bytes(sent))
        except ValueError:
            return None
        return (event, fields_of(payload, extra)) if hmac.compare_digest(token, self.token) else None

    async def _work(self, client: SocketStream, event: str, given: dict[str, object]) -> None:
        """Handles an event and sends the output. If sending fails, the text does not count as pushed.

        A closed Unix socket reports that at once, a port on Windows mostly does not.
        """
        session = str(given.get("session_id") or "")
        async with self._sessions.setdefault(session, anyio.Lock()):
            if session and given.get("window"):
                await windows.enter(self.memory, str(given["window"]), session)
            output = await self.handle(self.memory, event, given)
            try:
                await client.send(json.dumps(output).encode("ascii") + b"\n")
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                await events.take_back(self.memory, event, given, output)
                raise


@asynccontextmanager
async def _bound(local: Path) -> AsyncIterator[tuple[MultiListener[SocketStream] | SocketListener, str]]:
    """Yields the listening socket and its place, as `protocol.address` takes it."""
    if not UNIX_SOCKETS:
        async with await anyio.create_tcp_listener(local_host="127.0.0.1") as ports:
            yield ports, f"port {ports.extra(SocketAttribute.local_port)}"
        return
    path = await run_sync(socket_path, local)
    _delete_socket(path)  # left by a dead process: only the maintainer listens
    listener = await anyio.create_unix_listener(path, mode=0o600)
    try:
        async with listener:
            yield listener, f"unix {path}"
    finally:
        _delete_socket(path)


def socket_path(local: Path) -> Path:
    """Returns the socket's path: in the workspace or, if that path is too long, in a temporary folder of this user.

    All workspaces of a user share the temporary folder, so it is never deleted. Raises OSError if another user owns it.
    """
    path = local / protocol.SOCKET
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if len(os.fsencode(path)) <= LONGEST_PATH:
        return path
    name = f"{hashlib.sha256(os.fsencode(local)).hexdigest()[:16]}.sock"
    for parent in (tempfile.gettempdir(), "/tmp"):  # /tmp if TMPDIR itself is too long
        folder = Path(parent) / f"context-manager-{os.getuid()}"
        if len(os.fsencode(folder / name)) <= LONGEST_PATH:
            break
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise PermissionError(f"{folder} is not this user's own folder; delete it, and hooks reach the server again")
    folder.chmod(0o700)
    return folder / name


def obstacle(local: Path) -> str:
    """Returns why no server could listen here, for `doctor`; "" if one can. Creates a socket to try, and deletes it."""
    if not UNIX_SOCKETS:
        return ""
    try:
        path = socket_path(local)
        trial = path.with_stem(secrets.token_hex(16)[: len(path.stem)])  # a unique path of the same length
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as tried:
            tried.bind(str(trial))
        _delete_socket(trial)
    except OSError as error:
        return str(error)
    return ""


def _delete_socket(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)


def _delete_address(local: Path, address: bytes) -> None:
    """Deletes the address if it is still ours: another program may reuse a closed port."""
    place = local / protocol.ADDRESS
    with contextlib.suppress(OSError):
        if place.read_bytes() == address:
            place.unlink()
