"""Several processes on one workspace: nothing acknowledged is lost or twice. `tests/torture` also kills them."""

from __future__ import annotations

import random
from pathlib import Path

import anyio
import pytest

from tests.end_to_end.servers import CALLS, DATABASE_TROUBLE, Served, eventually, served
from tests.torture.processes import (
    FEW_LINES,
    Said,
    assert_nothing_lost_or_twice,
    assert_the_index_is_as_new,
    rebuild,
    start_calls,
)

pytestmark = pytest.mark.anyio


async def test_two_servers_and_a_rebuilding_third_process_lose_nothing_and_write_nothing_twice(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    said, over, printed = Said(), anyio.Event(), list[str]()
    rebuilt: list[int] = []
    async with served(root, env=FEW_LINES) as first, served(root, env=FEW_LINES) as second:

        async def third() -> None:
            rebuilt.append(await rebuild(root, over, printed))

        async with anyio.create_task_group() as rebuilding:
            rebuilding.start_soon(third)
            async with anyio.create_task_group() as tasks:
                start_calls(tasks, said, first, "first", random.Random(1))
                start_calls(tasks, said, second, "second", random.Random(2))
            over.set()
        assert said.errors == []
        assert said.acknowledged == 4 * CALLS
        assert_nothing_lost_or_twice(root, said)

        async def both_find_the_last() -> bool:
            return all([await found(server, name) for server in (first, second) for name in ("first", "second")])

        async def found(server: Served, name: str) -> bool:
            last = f"{name}-t{CALLS - 1}"
            hits = await server.hits(f'"{last}"')
            return [hit.get("turn_id") for hit in hits] == [last] and await server.finds(last)

        await eventually(both_find_the_last)
    logs = [first.stderr(), second.stderr(), *printed]
    assert rebuilt[0] >= 1
    assert not [log for log in logs if DATABASE_TROUBLE.search(log)]
    await assert_the_index_is_as_new(root)
    print(f"{said.acknowledged} calls acknowledged, {rebuilt[0]} rebuilds meanwhile, stderr: {''.join(logs)!r}")
