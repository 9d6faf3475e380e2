"""`speed`: measures the speed and memory targets on made-up conversations, each with a baseline where there is one.

The curve shows what an exchange costs Clarity's tracker, and what the tracker holds, in a growing conversation.
"""

from __future__ import annotations

import dataclasses
import json
import os
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import anyio
import httpx2

from benchmarks import topics
from benchmarks.server_process import ServerProcess, empty, ours, proportional, resident, round_trips, running
from benchmarks.workbench import ASKER, START, Bm25, Talk, Workbench, made_up_sessions, percentile, unseen
from mcp_server.app import maintain
from mcp_server.context.compile import CompileRequest, compile_context
from mcp_server.conversations.closed_sessions import PENDING_EXTRACTION, commit_together
from mcp_server.conversations.imports import record_session
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.memory import Memory
from mcp_server.model import Project
from mcp_server.page.door import Door
from mcp_server.page.site import application
from mcp_server.relevance.clarity_scores import Tracker
from mcp_server.search.search import SearchRequest, find
from mcp_server.settings import ClarityScoring

STARTS = 7
OBSERVED = 200
QUERIES = 100
CHANGES = 10
SERVERS = 6
HOOKS = 30
PLAIN_QUERIES = 5
TOPICS = 1_000
MESSAGES = 300
PAGE_VISITS = 10
PAGE_PORT = 8000
PAGES = {
    "Now": "/now",
    "Days": "/days",
    "What it knows": "/knows",
    "Find": "/find?q=what+did+we+say+about+the+flour",
    "Topics": "/topics?try=please+review+this",
    "State": "/state",
}
LARGE = 50_000
"""Passages from which on the bars for 100,000 passages hold."""

POINTS = (100, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000)
"""Exchanges after which the curve has a point."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A row of the table: median and p95 over `runs`, in `unit`, and the bar, if there is one.

    `deciding` says which of the two figures has to meet the bar. `plain` is the figure of a baseline, in `unit`.
    """

    what: str
    unit: str
    median: float
    p95: float
    runs: int
    bar: float | None
    deciding: str = "p95"
    at_least: bool = False
    plain: float | None = None
    plain_what: str = ""
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Returns True if the bar is met, or None if there is no bar."""
        if self.bar is None:
            return None
        value = self.median if self.deciding == "median" else self.p95
        return value >= self.bar if self.at_least else value <= self.bar

    def as_dict(self) -> dict[str, Any]:
        """Returns the row as JSON values."""
        return {**dataclasses.asdict(self), "met": self.met}


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """A measurement after `exchanges` exchanges: CPU microseconds per exchange since the previous measurement, and for
    scoring all items; the numbers of items and candidates; bytes of the stored state; resident memory in MB."""

    exchanges: int
    exchange_us: float
    scores_us: float
    items: int
    candidates: int
    state_bytes: int
    resident_mb: float | None


@dataclass(frozen=True, slots=True)
class SpeedReport:
    """The table, the curve, and what they were measured on."""

    passages: int
    cores: int
    embedder: str
    rows: tuple[Measured, ...]
    curve: tuple[CurvePoint, ...]


async def measure_speed(bench: Workbench, passages: int) -> SpeedReport:
    """Fills a temporary workspace with made-up conversations, and measures every row on it."""
    async with bench.temporary() as (memory, workspace):
        rows: list[Measured] = []
        steps: list[tuple[str, Callable[[], Awaitable[Sequence[Measured]]]]] = [
            ("building the index", lambda: _index_build(memory)),
            ("observe", lambda: _observe(memory, workspace)),
            ("search", lambda: _search(memory, passages)),
            ("compile", lambda: _compile(memory, passages)),
            ("the page", lambda: _page(memory)),
            ("a changed file", lambda: _changed_file(memory, workspace)),
            ("topics", lambda: _topics(bench)),
        ]
        total = len(steps) + 4
        bench.show(0, total, "filling the workspace")
        await _fill(memory, passages)
        for place, (label, step) in enumerate(steps, start=1):
            bench.show(place, total, label)
            rows += await step()
        held = int(_count(await memory.index.status()))
        name = memory.embedder.name if memory.embedder else "none"
        bench.show(total - 2, total, "Clarity, 100,000 exchanges")
        points = await anyio.to_thread.run_sync(curve, POINTS)
        bench.show(total - 1, total, "server processes")
        rows[0:0] = await anyio.to_thread.run_sync(_first_answers, workspace)
        rows += await anyio.to_thread.run_sync(_memory, workspace)
        rows += await anyio.to_thread.run_sync(_hooks, workspace)
    return SpeedReport(held, os.cpu_count() or 1, name, tuple(rows), points)


async def _topics(bench: Workbench) -> Sequence[Measured]:
    """Measures what a message costs the watchers with many topics, before the gate."""
    found = await topics.measure_topics_speed(dataclasses.replace(bench, show=unseen), TOPICS, MESSAGES)
    what = f"topics: a message, {found.topics:,} topics with {found.triggers} triggers"
    return [Measured(what, "ms", found.median_ms, found.p95_ms, found.messages, found.bar_ms)]


async def _fill(memory: Memory, passages: int) -> None:
    """Imports made-up conversations, committed, and without the extraction that would follow."""
    for session in made_up_sessions(passages):
        await record_session(memory, session)
    await commit_together(memory, "bench")
    await memory.state.remove(PENDING_EXTRACTION, *await memory.state.keys_of(PENDING_EXTRACTION))


def _row(what: str, times: Sequence[float], bar: float | None, unit: str = "ms", **more: Any) -> Measured:
    return Measured(what, unit, statistics.median(times), percentile(times, 0.95), len(times), bar, **more)


async def _timed(count: int, act: Callable[[int], Awaitable[object]]) -> list[float]:
    """Returns the milliseconds of each of `count` calls, one after the other."""
    times = []
    for number in range(count):
        began = time.perf_counter()
        await act(number)
        times.append((time.perf_counter() - began) * 1000)
    return times


async def _index_build(memory: Memory) -> Sequence[Measured]:
    if memory.embedder is not None:
        await anyio.to_thread.run_sync(memory.embedder.embed, ["loaded"])
    began = time.perf_counter()
    await memory.index.rebuild()
    seconds = time.perf_counter() - began
    rate = _count(await memory.index.status()) / seconds
    row = _row("index build", [rate], 2000, "passages/s", deciding="median", at_least=True)
    if memory.embedder is None:
        return [row]
    texts = [Talk(1).turn() for _ in range(1000)]
    began = time.perf_counter()
    await anyio.to_thread.run_sync(memory.embedder.embed, texts)
    plain = len(texts) / (time.perf_counter() - began)
    return [dataclasses.replace(row, plain=plain, plain_what="embedding alone")]


async def _observe(memory: Memory, workspace: Path) -> Sequence[Measured]:
    talk = Talk(2)

    async def act(number: int) -> None:
        turn = NewTurn("agent" if number % 2 else "user", talk.turn(), session="bench-observe", turn_id=f"m{number}")
        await observe(memory, turn, ASKER)

    def append() -> list[float]:
        times = []
        with (workspace / "tmp" / "plain").open("ab") as file:
            for _ in range(OBSERVED):
                began = time.perf_counter()
                file.write(talk.turn().encode())
                file.flush()
                os.fsync(file.fileno())
                times.append((time.perf_counter() - began) * 1000)
        return times

    (workspace / "tmp").mkdir(exist_ok=True)
    times = await _timed(OBSERVED, act)
    plain = percentile(await anyio.to_thread.run_sync(append), 0.95)
    return [_row("observe, durable", times, 20, plain=plain, plain_what="append and fsync")]


async def _search(memory: Memory, passages: int) -> Sequence[Measured]:
    talk = Talk(3)
    questions = [talk.question() for _ in range(QUERIES)]

    async def act(number: int) -> None:
        await find(memory, SearchRequest(query=questions[number], limit=10, scope="all", project=Project()))

    await act(0)
    times = await _timed(QUERIES, act)
    plain = await anyio.to_thread.run_sync(_plain_scan, memory, questions[:PLAIN_QUERIES])
    return [_row("search, warm", times, 80 if passages >= LARGE else 30, plain=plain, plain_what="rank-bm25 in memory")]


def _plain_scan(memory: Memory, questions: Sequence[str]) -> float:
    """Returns the p95 in milliseconds of plain BM25 over all turns. Its statistics are counted before."""
    texts = {
        f"{path}#{placed.turn.number}": placed.turn.content
        for path in memory.transcripts.all()
        for placed in memory.transcripts.read(path).turns
    }
    ranking, times = Bm25(texts), []
    for question in questions:
        began = time.perf_counter()
        ranking.ranked(question, 10)
        times.append((time.perf_counter() - began) * 1000)
    return percentile(times, 0.95)


async def _compile(memory: Memory, passages: int) -> Sequence[Measured]:
    talk = Talk(4)
    questions = [talk.question() for _ in range(QUERIES)]
    budget = memory.settings.context_compiler.token_budget

    async def act(number: int) -> None:
        await compile_context(memory, CompileRequest(message=questions[number], budget=budget), ASKER)

    async def search_only(number: int) -> None:
        await find(memory, SearchRequest(query=questions[number], limit=10, scope="all", project=Project()))

    await act(0)
    times = await _timed(QUERIES, act)
    plain = percentile(await _timed(QUERIES, search_only), 0.95)
    bar = 150 if passages >= LARGE else 50
    return [_row(f"compile, warm, {budget:,} tokens", times, bar, plain=plain, plain_what="search alone")]


async def _page(memory: Memory) -> Sequence[Measured]:
    """Measures what the server takes to answer each screen of the page, without a network."""
    door = Door(PAGE_PORT)
    root = f"http://127.0.0.1:{PAGE_PORT}"

    async def opened() -> Memory:
        return memory

    rows: list[Measured] = []
    transport = httpx2.ASGITransport(app=application(opened, door))
    async with httpx2.AsyncClient(transport=transport, base_url=root) as visitor:
        await visitor.post("/open", content=door.new_code(), headers={"Sec-Fetch-Site": "same-origin", "Origin": root})
        for name, path in PAGES.items():

            async def act(number: int, path: str = path) -> None:
                (await visitor.get(path)).raise_for_status()

            await act(0)
            rows.append(_row(f"page: {name}", await _timed(PAGE_VISITS, act), 300, deciding="median"))
    return rows


async def _changed_file(memory: Memory, workspace: Path) -> Sequence[Measured]:
    """Measures the time from writing a file until the search finds what is new in it."""
    path = workspace / "knowledge" / "reference" / "bench.md"
    times: list[float] = []
    async with maintain(memory):
        for number in range(CHANGES + 1):
            await anyio.sleep(0.5)  # a person does not save files in quick succession
            word = f"zanzibar{number}quokka"
            await anyio.to_thread.run_sync(_write, path, f"# Bench\n\nThe word of the day is {word}.\n")
            began = time.perf_counter()
            while time.perf_counter() - began < 10:
                found = await find(memory, SearchRequest(query=word, limit=1, scope="all", project=Project()))
                if found.hits and word in found.hits[0].passage.text:
                    break
                await anyio.sleep(0.005)
            if number:  # the watcher is still starting at the first one
                times.append((time.perf_counter() - began) * 1000)
    return [_row("one changed file searchable", times, 200)]


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _first_answers(workspace: Path) -> list[Measured]:
    """Starts our server and an empty one alternately, so that the load of the machine is the same for both."""
    environ = dict(os.environ)
    times: dict[str, list[float]] = {"ours": [], "empty": []}
    for round_ in range(STARTS + 1):
        for name, command in (("empty", empty()), ("ours", ours(workspace))):
            with running(command, environ) as server:
                if round_:  # the first start fills the disk caches
                    times[name].append(server.first_answer * 1000)
    plain = statistics.median(times["empty"])
    row = _row("first answer after start", times["ours"], 1.5 * plain, deciding="median")
    return [dataclasses.replace(row, plain=plain, plain_what="an empty MCPServer")]


def _memory(workspace: Path) -> list[Measured]:
    """Measures the memory of one server that has searched and compiled, and of six servers on one workspace.

    The memory of six is given as RSS, which counts shared pages (libraries, the embedder's table) six times, and as
    PSS if the system tells it, which counts them once.
    """
    environ = dict(os.environ)
    with running(empty(), environ) as server:
        plain = resident(server.pid)
    with ExitStack() as stack:
        servers = [stack.enter_context(running(ours(workspace), environ)) for _ in range(SERVERS)]
        for number, server in enumerate(servers):
            server.call("observe", role="user", content="a word to everybody", session=f"bench-{number}")
        _use(servers[0])
        one, one_uses = resident(servers[0].pid), _together(servers)
        for server in servers[1:]:
            _use(server)
        all_use = _together(servers)
    if plain is None or one is None:
        return []
    rows = [_row("memory, one server that compiles", [one], 250, "MB", plain=plain, plain_what="an empty MCPServer")]
    for who, (counted, taken) in (("one of them compiles", one_uses), ("all compile", all_use)):
        bar = 1024 if who == "one of them compiles" else None
        what, note = f"memory, {SERVERS} servers, {who}", "" if bar else "no bar; the worst case"
        empties = {"plain": plain * SERVERS, "plain_what": f"{SERVERS} empty ones"}
        if taken is None:
            rows.append(_row(f"{what}, RSS", [counted], bar, "MB", note=note, **empties))
            continue
        rows.append(_row(f"{what}, PSS", [taken], bar, "MB", note=note))
        rows.append(_row(f"{what}, RSS", [counted], None, "MB", note="shared pages six times", **empties))
    return rows


def _hooks(workspace: Path) -> list[Measured]:
    """Measures the hook of a prompt with a running server, as clients call it."""
    by_command, by_tool, idle = round_trips(workspace, HOOKS)
    whole = _row("hook round trip, command", by_command, 50, deciding="median")
    return [
        dataclasses.replace(whole, plain=statistics.median(idle), plain_what="an idle Python"),
        _row("hook round trip, tool", by_tool, 20, deciding="median"),
    ]


def _together(servers: Sequence[ServerProcess]) -> tuple[float, float | None]:
    """Returns the sums of RSS and PSS of these processes in MB. PSS is None if the system does not tell it."""
    parts = [proportional(server.pid) for server in servers]
    taken = [part for part in parts if part is not None]
    return sum(resident(server.pid) or 0 for server in servers), sum(taken) if len(taken) == len(parts) else None


def _use(server: ServerProcess) -> None:
    talk = Talk(5)
    for _ in range(3):
        server.call("search", query=talk.question())
        server.call("compile_context", message=talk.question())


def _count(status: Any) -> int:
    """Returns the number of passages in the status of an index."""
    held = status["passages"] if isinstance(status, dict) else status.passages
    assert isinstance(held, int)
    return held


def curve(points: Sequence[int]) -> tuple[CurvePoint, ...]:
    """Returns the points of one conversation, in which the user names something new in each exchange."""
    talk, tracker, at = Talk(6), Tracker(), START
    found, done = [], 0
    for point in points:
        seconds = 0.0
        for number in range(done, point):
            asked = f"ClaraCore, NewThing{number} and src/part{number}.py: {talk.sentence(12)}"
            answer = f"ClaraCore and NewThing{number}: {talk.sentence(12)}"
            began = time.process_time()
            tracker.hear("user", asked, at)
            tracker.hear("agent", answer, at, ["web_search"])
            seconds += time.process_time() - began
        found.append(_point(tracker, point, 1e6 * seconds / (point - done), at))
        done = point
    return tuple(found)


def _point(tracker: Tracker, exchanges: int, exchange_us: float, at: datetime) -> CurvePoint:
    began = time.process_time()
    tracker.scores(ClarityScoring())
    scores_us = 1e6 * (time.process_time() - began)
    return CurvePoint(
        exchanges,
        exchange_us,
        scores_us,
        len(tracker.items),
        len(tracker.candidates),
        len(json.dumps(tracker.as_dict(at))),
        resident(os.getpid()),
    )
