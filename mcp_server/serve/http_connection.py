"""One HTTP connection: closed if its client stops in the middle of a request. uvicorn itself would keep it for ever."""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_SECONDS = 10.0
"""How long a client may take for the head of a request, and for each next part of its body."""


class Connection(H11Protocol):
    """An HTTP/1.1 connection that does not wait for the rest of a request for longer than REQUEST_SECONDS."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:  # the head is incomplete: more data does not move its deadline
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
        if self.flow.read_paused:  # the server itself has not read what came
            self._start()
        else:
            self.transport.close()
