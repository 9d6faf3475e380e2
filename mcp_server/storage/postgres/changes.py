"""Change notices among the processes of a team.

A notice is delivered in this process at once, and written to the table `change` by a thread. The other processes poll
that table; NOTIFY wakes them earlier. A notice that is published in a unit of work is sent after its commit. A notice
only announces that data has changed: if one is lost, a reader sees the change later, and no data is lost.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from collections.abc import Callable, Sequence
from functools import partial

from mcp_server.errors import ContextManagerError
from mcp_server.storage.postgres.connections import CHANNEL
from mcp_server.storage.postgres.database import Connection, Database
from mcp_server.storage.values import Change, Changes

log = logging.getLogger(__name__)

POLL_SECONDS = 1.0
"""Seconds between reads of the table if no NOTIFY arrives."""

KEPT_HOURS = 1
"""Hours for which notices are kept. A process that was suspended longer gets notices that anything may have changed."""

MOST_AT_ONCE = 1_000


class TeamChanges(Changes):
    """The change notices of one workspace. Call `start` once, in the event loop, and `close` at the end."""

    def __init__(self, database: Database) -> None:
        super().__init__()
        self._database = database
        self._outgoing: queue.SimpleQueue[Change | None] = queue.SimpleQueue()
        self._over = threading.Event()
        self._alarm = threading.Event()
        self._threads: list[threading.Thread] = []
        self._deliver: Callable[[Change], None] = super().publish

    def publish(self, change: Change) -> None:
        """Sends a change to every listener of every process, after the commit of an open unit of work. Never waits."""
        unit = self._database.current
        if unit is None:
            self._send(change)
        else:
            unit.published.append(change)

    async def start(self) -> None:
        import asyncio

        loop, publish = asyncio.get_running_loop(), super().publish

        def deliver(change: Change) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(publish, change)

        self._deliver = deliver
        last = "SELECT value FROM counter WHERE ws = %s AND name = 'change'"
        (seen,) = await self._database.call(lambda connection: connection.row(last)) or (0,)
        self._threads = [
            threading.Thread(target=self._send_loop, name="change notices out", daemon=True),
            threading.Thread(target=self._receive_loop, args=(int(seen),), name="change notices in", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Sends the waiting notices and ends the threads. Blocks: call it in a worker thread."""
        self._over.set()
        self._outgoing.put(None)
        self._alarm.set()
        for thread in self._threads:
            thread.join(2 * POLL_SECONDS)

    def send_all(self, changes: Sequence[Change]) -> None:
        """Sends the changes of a committed unit of work. Runs in the event loop."""
        for change in changes:
            self._send(change)

    def _send(self, change: Change) -> None:
        super().publish(change)
        self._outgoing.put(change)

    # threads

    def _send_loop(self) -> None:
        while True:
            first = self._outgoing.get()
            more = [first]
            with contextlib.suppress(queue.Empty):
                while len(more) < MOST_AT_ONCE:
                    more.append(self._outgoing.get_nowait())
            waiting = [change for change in more if change is not None]
            if waiting:
                try:
                    self._database.run(partial(self._insert, changes=waiting))
                except ContextManagerError as error:
                    log.warning("%d change notices were not sent to other replicas: %s", len(waiting), error)
            if None in more:
                return

    def _insert(self, connection: Connection, changes: Sequence[Change]) -> None:
        ws, many = connection.ws, len(changes)
        first = connection.count("change", many) - many + 1
        connection.cursor().executemany(
            "INSERT INTO change (ws, seq, sender, kind, path, session, at) VALUES (%s, %s, %s, %s, %s, %s, now())",
            [
                (ws, first + place, self._database.process, change.kind, change.path, change.session)
                for place, change in enumerate(changes)
            ],
        )
        if first % MOST_AT_ONCE < many:
            connection.run("DELETE FROM change WHERE ws = %s AND at < now() - make_interval(hours => %s)", KEPT_HOURS)
        connection.execute("SELECT pg_notify(%s, %s)", (CHANNEL, str(ws)))

    def _receive_loop(self, seen: int) -> None:
        failed = ""
        with self._database.connections.alarm.of(self._database.ws) as alarm:
            self._alarm = alarm
            while not self._over.is_set():
                try:
                    seen = self._deliver_new(seen)
                    failed = ""
                except ContextManagerError as error:
                    if str(error) != failed:  # a lasting problem is logged once
                        log.warning("change notices cannot be received: %s", error)
                    failed = str(error)
                alarm.wait(POLL_SECONDS)
                alarm.clear()

    def _deliver_new(self, seen: int) -> int:
        """Delivers the notices of other processes after number `seen`. Returns the number of the last one."""
        rows = self._database.rows(
            "SELECT seq, sender, kind, path, session FROM change WHERE ws = %s AND seq > %s ORDER BY seq LIMIT %s",
            seen,
            MOST_AT_ONCE,
        )
        if rows and rows[0][0] > seen + 1:  # older ones were deleted meanwhile
            self._deliver(Change("index"))
            self._deliver(Change("session"))
        for _, sender, kind, path, session in rows:
            if sender != self._database.process:
                self._deliver(Change(kind, path, session))
        return int(rows[-1][0]) if rows else seen
