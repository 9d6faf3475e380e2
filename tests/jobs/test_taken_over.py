"""A maintainer whose lease another process has taken over."""

from __future__ import annotations

from dataclasses import dataclass, replace

import anyio
import pytest

from mcp_server.jobs import maintainer
from mcp_server.memory import Memory
from mcp_server.storage.local.locks import Locks

pytestmark = pytest.mark.anyio


@dataclass
class Lease:
    lost: bool = False

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def release(self, *, forget: bool = False) -> None:
        pass


class OneLease(Locks):
    """Locks that give the maintainer's lease away once."""

    leases: list[Lease]

    def try_maintainer(self) -> Lease | None:  # type: ignore[override]
        return self.leases.pop() if self.leases else None


async def test_a_maintainer_stops_its_work_when_another_process_has_taken_over(memory: Memory) -> None:
    lease, ended = Lease(), anyio.Event()
    locks = OneLease(memory.disk.local)
    locks.leases = [lease]

    async def duty(memory: Memory) -> None:
        try:
            lease.lost = True
            await anyio.sleep_forever()
        finally:
            ended.set()

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(maintainer.run, replace(memory, locks=locks), [duty])
            await ended.wait()
            tasks.cancel_scope.cancel()
