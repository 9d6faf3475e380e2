"""Options for the HTTP clients of LLMs and embedding services: no redirects, uncompressed answers, limited size and
time.

Redirects are not followed, because the other address would receive the request and, from some packages, the API key.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

from mcp_server.errors import Unavailable

PLAIN = {"Accept-Encoding": "identity"}
"""Headers of each request. The size limit counts received bytes, and a compressed answer may unpack to a thousand times
as many."""


def careful(most_bytes: int) -> dict[str, Any]:
    """Returns options for a package's asynchronous HTTP client. An answer may have at most `most_bytes` bytes."""

    async def on_response(response: Any) -> None:
        _check(response)
        response.stream = _limited(response.stream, most_bytes)

    return {"follow_redirects": False, "event_hooks": {"response": [on_response]}}


def careful_and_quick(most_bytes: int, seconds: float) -> dict[str, Any]:
    """Returns options for a package's blocking HTTP client, whose caller cannot cancel it. An answer may have at most
    `most_bytes` bytes, and receiving it may take at most `seconds`."""

    def on_response(response: Any) -> None:
        _check(response)
        response.stream = _limited_in_time(response.stream, most_bytes, time.monotonic() + seconds)

    return {"follow_redirects": False, "event_hooks": {"response": [on_response]}}


def _check(response: Any) -> None:
    if 300 <= response.status_code < 400:
        raise Unavailable(
            "the endpoint redirects to another address, and redirects are not followed; set that address in settings"
        )
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        raise Unavailable("the endpoint compressed its answer although the request asked for an uncompressed one")


def _limited(stream: Any, most_bytes: int) -> Any:
    class Limited(_stream_class(stream, "AsyncByteStream")):  # type: ignore[misc]  # known only at run time
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
    class Limited(_stream_class(stream, "SyncByteStream")):  # type: ignore[misc]  # known only at run time
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


def _stream_class(stream: Any, name: str) -> Any:
    """Returns the base class `name` of a stream. Its HTTP library depends on the version of the package."""
    return next(kind for kind in type(stream).__mro__ if kind.__name__ == name)


def _too_long(most_bytes: int) -> Unavailable:
    return Unavailable(f"the endpoint's answer has over {most_bytes // 1_000_000} MB")
