"""Runs two coroutines at once."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")
U = TypeVar("U")


async def both(first: Awaitable[T], second: Awaitable[U]) -> tuple[T, U]:
    """Returns the results of two awaitables that run at once. Raises the error of either as it is."""
    from anyio import create_task_group

    results: list[U] = []
    errors: list[Exception] = []

    async def run_second() -> None:
        try:
            results.append(await second)
        except Exception as error:  # raised below, not as an ExceptionGroup
            errors.append(error)

    async with create_task_group() as tasks:
        tasks.start_soon(run_second)
        try:
            result = await first
        except Exception as error:
            errors.append(error)
    if errors:
        raise errors[0]
    return result, results[0]
