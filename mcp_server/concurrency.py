"""Runs two coroutines at once."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, TypeVar

T = TypeVar("T")
U = TypeVar("U")


async def both(first: Awaitable[T], second: Awaitable[U]) -> tuple[T, U]:
    """Starts two awaitables in this order, and returns their results. Raises the first error, not in a group."""
    from anyio import create_task_group

    results: list[Any] = [None, None]
    errors: list[Exception] = []

    async def run(place: int, work: Awaitable[Any]) -> None:
        try:
            results[place] = await work
        except Exception as error:  # raised below, not as an ExceptionGroup
            errors.append(error)

    async with create_task_group() as tasks:
        tasks.start_soon(run, 0, first)
        tasks.start_soon(run, 1, second)
    if errors:
        raise errors[0]
    return results[0], results[1]
