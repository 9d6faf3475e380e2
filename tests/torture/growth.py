"""One server does the same work again and again: memory, descriptors, threads and files must not grow with it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tests.end_to_end.servers import Served, served
from tests.torture.frame import Case, Trial

MEGABYTES, DESCRIPTORS, THREADS, FILES = 24.0, 6, 4, 10
"""How much a server may have grown after the second half of the work. Caches are warm after the first half."""


@dataclass(frozen=True, slots=True)
class Used:
    """What a process uses now; `files` are those in .local that no conversation owns."""

    megabytes: float
    descriptors: int
    threads: int
    files: int

    @classmethod
    def by(cls, server: Served, root: Path) -> Used:
        """Reads the figures from /proc."""
        about = Path(f"/proc/{server.pid}/status").read_text()
        figures = {name: int(value) for name, value in re.findall(r"(VmRSS|Threads):\s+(\d+)", about)}
        descriptors = len(list(Path(f"/proc/{server.pid}/fd").iterdir()))
        owned = ("cold-storage", "logs", "locks", "checkpoints")
        files = [path for path in (root / ".local").rglob("*") if path.is_file() and not set(owned) & set(path.parts)]
        return cls(figures["VmRSS"] / 1024, descriptors, figures["Threads"], len(files))


async def work(server: Served, number: int) -> int:
    """Does one unit of work; returns its number of calls."""
    session = f"s{number % 7}"
    await server.call("observe", role="user", content=f"Boat {number % 50} lies in harbour {number}.", session=session)
    await server.call("observe", role="agent", content="Noted.", session=session)
    await server.search(f"boat {number % 50}")
    await server.call("compile_context", message=f"Where lies boat {number % 50}?", session=session)
    await server.call("read", path="knowledge/memory/MEMORY.md")
    await server.call("status")
    await server.refused("read", path="../x")
    return 7


async def one_server(trial: Trial) -> None:
    """Compares what the server uses after half of the work with what it uses at the end."""
    rounds = 3 if trial.short else 60
    async with served(trial.root) as server:
        for number in range(rounds):
            trial.tally.load += await work(server, number)
        before = Used.by(server, trial.root)
        for number in range(rounds, 2 * rounds):
            trial.tally.load += await work(server, number)
        after = Used.by(server, trial.root)
    grown = f"from {before} to {after}"
    assert after.megabytes - before.megabytes <= MEGABYTES, grown
    assert after.descriptors - before.descriptors <= DESCRIPTORS, grown
    assert after.threads - before.threads <= THREADS, grown
    assert after.files - before.files <= FILES, grown
    assert not list(trial.root.rglob(".cm-*.tmp"))


CASES = (Case("growth", "memory, descriptors, threads and files of a server do not grow with its work", one_server),)
