"""Asking HTTP endpoints with care, for those whose packages ask: embeddings and LLMs.

No redirect is followed: whoever is sent on gets what was asked, and of some packages the key. An answer that does not
end, in bytes or in time, is broken off.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

from mcp_server.errors import Unavailable

PLAIN = {"Accept-Encoding": "identity"}
"""Headers of each request: packed answers could be a thousand times as long as what is counted here."""


def careful(most_bytes: int) -> dict[str, Any]:
    """Options of the packages' own asynchronous HTTP client: answers may have so many bytes."""

    async def look(response: Any) -> None:
        _check(response)
        response.stream = _limited(response.stream, most_bytes)

    return {"follow_redirects": False, "event_hooks": {"response": [look]}}


def careful_and_quick(most_bytes: int, seconds: float) -> dict[str, Any]:
    """The same for a client that blocks, whose caller cannot end it: an answer may take so many seconds."""

    def look(response: Any) -> None:
        _check(response)
        response.stream = _limited_in_time(response.stream, most_bytes, time.monotonic() + seconds)

    return {"follow_redirects": False, "event_hooks": {"response": [look]}}


def _check(response: Any) -> None:
    if 300 <= response.status_code < 400:
        raise Unavailable("the endpoint sends callers on to another address, which is not followed; name that one")
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        raise Unavailable("the endpoint packs its answer, which it was not asked to")


def _limited(stream: Any, most_bytes: int) -> Any:
    class Limited(_kind(stream, "AsyncByteStream")):  # type: ignore[misc]  # known only when it runs
        async def __aiter__(self) -> AsyncIterator[bytes]:
            left = most_bytes
            async for piece in stream:
                left -= len(piece)
                if left < 0:
                    raise _too_long(most_bytes)
                yield piece

        async def aclose(self) -> None:
            await stream.aclose()

    return Limited()


def _limited_in_time(stream: Any, most_bytes: int, until: float) -> Any:
    class Limited(_kind(stream, "SyncByteStream")):  # type: ignore[misc]  # known only when it runs
        def __iter__(self) -> Iterator[bytes]:
            left = most_bytes
            for piece in stream:
                left -= len(piece)
                if left < 0:
                    raise _too_long(most_bytes)
                if time.monotonic() > until:
                    raise Unavailable("the endpoint's answer takes too long")
                yield piece

        def close(self) -> None:
            stream.close()

    return Limited()


def _kind(stream: Any, name: str) -> Any:
    """The class of streams of the HTTP library that a package brings: which one that is depends on its version."""
    return next(kind for kind in type(stream).__mro__ if kind.__name__ == name)


def _too_long(most_bytes: int) -> Unavailable:
    return Unavailable(f"the endpoint's answer has over {most_bytes // 1_000_000} MB")
