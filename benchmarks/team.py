"""Turns and searches a second on PostgreSQL: many workspaces, many clients, one and two server processes; beside them
one workspace in a folder. Calls are made in the server processes, so HTTP and sign-in are not in the figures."""

from __future__ import annotations

import multiprocessing
import os
import random
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import anyio

from benchmarks.server_process import resident
from benchmarks.workbench import ASKER, Show, Talk, made_up_sessions, percentile
from mcp_server.app import export_memory, import_memory, maintain, open_memory
from mcp_server.conversations.closed_sessions import PENDING_EXTRACTION
from mcp_server.conversations.imports import record_session
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.errors import ContextManagerError
from mcp_server.memory import Memory
from mcp_server.model import Project
from mcp_server.search.search import SearchRequest, find

PHASES = ("turns", "searches")
QUESTIONS = 2_000


@dataclass(frozen=True, slots=True)
class TeamRow:
    """The calls of one kind: how many a second, and their milliseconds."""

    engine: str
    processes: int
    calls: str
    per_second: float
    p50: float
    p95: float
    failed: int
    resident_mb: float


@dataclass(frozen=True, slots=True)
class TeamReport:
    """All figures. `loads` are the machine's load averages before and after; `index_bytes` those of one workspace."""

    workspaces: int
    passages: int
    clients: int
    cores: int
    loads: tuple[float, float]
    fill_seconds: float
    index_bytes: int
    rows: tuple[TeamRow, ...]


async def measure_team(
    address: str, workspaces: int, passages: int, clients: int, seconds: float, show: Show
) -> TeamReport:
    """Fills the workspaces `bench-0`, `bench-1`, … of a database if they are missing, and measures."""
    load, began = os.getloadavg()[0], time.perf_counter()
    start = f"{address}{'&' if '?' in address else '?'}workspace=bench-"
    names = [f"{start}{number}" for number in range(workspaces)]
    with tempfile.TemporaryDirectory(prefix="context-manager-") as place:
        folder, archive = Path(place) / "memory", Path(place) / "memory.zip"
        await _fill(folder, passages)
        await export_memory(folder, os.environ, archive)
        index_bytes = 0
        for number, name in enumerate(names):
            show(number, workspaces, "workspaces")
            async with open_memory(name, os.environ) as memory:
                empty = not await memory.state.sessions()
            if empty:
                await import_memory(name, os.environ, archive)
            async with open_memory(name, os.environ) as memory:
                await memory.index.refresh()
                index_bytes = (await memory.index.status()).size_bytes
        filled = time.perf_counter() - began
        rows: list[TeamRow] = []
        for engine, places, processes in (
            ("folder", [str(folder)], 1),
            ("PostgreSQL", names, 1),
            ("PostgreSQL", names, 2),
        ):
            show(len(rows), 6, f"{engine}, {processes}")
            rows += await anyio.to_thread.run_sync(_measured, engine, places, processes, clients, seconds)
    cores = os.cpu_count() or 1
    return TeamReport(
        workspaces, passages, clients, cores, (load, os.getloadavg()[0]), filled, index_bytes, tuple(rows)
    )


async def _fill(folder: Path, passages: int) -> None:
    async with open_memory(folder, os.environ) as memory:
        for session in made_up_sessions(passages):
            await record_session(memory, session)
        await memory.state.remove(PENDING_EXTRACTION, *await memory.state.keys_of(PENDING_EXTRACTION))
        await memory.index.refresh()


def _measured(engine: str, places: Sequence[str], processes: int, clients: int, seconds: float) -> list[TeamRow]:
    context = multiprocessing.get_context("spawn")
    barrier, answers = context.Barrier(processes), context.Queue()
    running = [
        context.Process(target=_serve, args=(places, clients // processes, seconds, number, barrier, answers))
        for number in range(processes)
    ]
    for process in running:
        process.start()
    told = [answers.get() for _ in running]
    for process in running:
        process.join()
    rows = []
    for phase in PHASES:
        times = [one for answer in told for one in answer[phase]]
        failed = sum(answer[f"{phase} failed"] for answer in told)
        used = max(answer["resident"] for answer in told)
        p50, p95 = percentile(times, 0.5) * 1000, percentile(times, 0.95) * 1000
        rows.append(TeamRow(engine, processes, phase, len(times) / seconds, p50, p95, failed, used))
    return rows


def _serve(places: Sequence[str], clients: int, seconds: float, number: int, barrier: Barrier, answers: Any) -> None:
    """Opens all workspaces as a server does, and makes the calls of its clients. The main function of a process."""
    answers.put(anyio.run(_calls, places, clients, seconds, number, barrier))


async def _calls(places: Sequence[str], clients: int, seconds: float, number: int, barrier: Barrier) -> dict[str, Any]:
    told: dict[str, Any] = {}
    talk, chance = Talk(number), random.Random(number)
    questions = [talk.question() for _ in range(QUESTIONS)]

    async def turn(memory: Memory, client: int) -> None:
        await observe(memory, NewTurn("user", talk.turn(), session=f"bench-{os.getpid()}-{client}"), ASKER)

    async def search(memory: Memory, client: int) -> None:
        await find(memory, SearchRequest(query=chance.choice(questions), limit=10, scope="all", project=Project()))

    async with AsyncExitStack() as stack:
        memories = []
        for place in places:
            memory = await stack.enter_async_context(open_memory(place, os.environ))
            await stack.enter_async_context(maintain(memory, os.environ))
            await turn(memory, 0)  # loads what the first call needs
            await search(memory, 0)
            memories.append(memory)
        for phase, act in zip(PHASES, (turn, search), strict=True):
            await anyio.to_thread.run_sync(barrier.wait)
            times: list[float] = []
            failed = [0]
            async with anyio.create_task_group() as tasks:
                for client in range(clients):
                    tasks.start_soon(partial(_repeat, act, memories, client, chance, seconds, times, failed))
            told |= {phase: times, f"{phase} failed": failed[0], "resident": resident(os.getpid()) or 0.0}
    return told


async def _repeat(
    act: Callable[[Memory, int], Awaitable[None]],
    memories: Sequence[Memory],
    client: int,
    chance: random.Random,
    seconds: float,
    times: list[float],
    failed: list[int],
) -> None:
    until = time.perf_counter() + seconds
    while (began := time.perf_counter()) < until:
        try:
            await act(chance.choice(memories), client)
            times.append(time.perf_counter() - began)
        except ContextManagerError:
            failed[0] += 1
