"""An HTTP connection that is closed if its client stops within a request. uvicorn would keep it open forever."""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_SECONDS = 10.0
"""Time limit for the head of a request, and for each further part of its body."""


class Connection(H11Protocol):
    """An HTTP/1.1 connection that waits at most REQUEST_SECONDS for the next part of a request."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:  # the head is incomplete: more data does not extend the limit
            if self._deadline is None:
                self._start()
            return
        self._stop()
        if self.conn.their_state is h11.SEND_BODY:
            self._start()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)

    def _start(self) -> None:
        self._deadline = self.loop.call_later(REQUEST_SECONDS, self._is_late)

    def _stop(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _is_late(self) -> None:
        if self.flow.read_paused:  # the server has not read the data yet
            self._start()
        else:
            self.transport.close()
