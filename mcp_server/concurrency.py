"""Runs two coroutines at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")
U = TypeVar("U")


async def both(first: Awaitable[T], second: Awaitable[U]) -> tuple[T, U]:
    """Returns the results of two awaitables that run at once. If one fails, the other still ends before its error is
    raised as it is. If the caller is cancelled, both are; a thread that one of them waits for runs on, so give it only
    work that may end later: reading, or a transaction."""
    results = await asyncio.gather(first, second, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results[0], results[1]  # type: ignore[return-value]
