"""The socket on which the process that maintains the workspace answers hook commands.

It is a Unix socket for this user only (on Windows a loopback port), with a token that only this user can read. A
request contains the hook's input unchanged (`protocol`); the answer is one line of JSON. Sessions are served
concurrently, the events of one session in order of arrival.

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
import secrets
import socket
import stat
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from weakref import WeakValueDictionary

import anyio
from anyio.abc import SocketAttribute, SocketListener, SocketStream
from anyio.streams.stapled import MultiListener
from anyio.to_thread import run_sync

from mcp_server.clients.hooks import command, events, protocol, queue
from mcp_server.clients.hooks.events import handle, work
from mcp_server.clients.hooks.offline import fields_of
from mcp_server.clients.hooks.queue import Handle
from mcp_server.context import windows
from mcp_server.errors import ContextManagerError
from mcp_server.memory import Memory
from mcp_server.storage.local import durable

log = logging.getLogger(__name__)

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
    """Waits until the server listens, if it is just starting: before that, queued events may not be recorded yet."""
    local = str(memory.disk.local)
    if protocol.is_starting(local):  # lists one folder, faster than starting a thread
        await run_sync(_wait_until_listening, local)


def _wait_until_listening(local: str) -> None:
    end = time.monotonic() + FIRST_SECONDS
    with contextlib.suppress(TimeoutError):  # a server listens and is busy
        while protocol.is_starting(local) and command.ask(local, "Nothing", end) is None and time.monotonic() < end:
            time.sleep(0.02)  # there is no socket to wait on yet


async def _keep_working(memory: Memory, first_done: anyio.Event) -> None:
    try:
        if await queue.drain(memory, work):
            await memory.index.refresh()
    except ContextManagerError as error:
        log.warning("some queued events of clients' hooks could not be recorded yet: %s", error)
    finally:
        first_done.set()
    await queue.watch(memory, work)


LONGEST_PATH = 100
"""Bytes of a Unix socket's path; systems allow 103 to 107."""

UNIX_SOCKETS = sys.platform != "win32"

READ_SECONDS = 2.0
"""A connection whose request is not complete by then is closed."""

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
    """A lock for each session with an event at work."""

    async def answer(self, client: SocketStream) -> None:
        """Answers one connection. Errors end only this connection."""
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
    _delete_socket(path)  # of a dead process: only one process, the maintainer, listens
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
    """Returns why no server could listen here, for `doctor`; empty if one can. Deletes the socket that it tries."""
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
