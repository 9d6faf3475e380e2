"""`live`: what does a small live context cost? Measured before compaction, after it, and after automatic recovery.

Every conversation is observed turn by turn, as one session with delivery `replace`, twice: with a limit that is never
reached, and with the given one. Every question is sent to both as the next message: its context is compiled without
recovery, and again after automatic recovery. A question leaves no trace: it becomes no turn, and what it brought back
is put away again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from anyio.to_thread import run_sync

from benchmarks.datasets import Conversation, KnownTurn, Question, conversations, known_turns, share_inside
from benchmarks.workbench import ASKER, Workbench, mean, percentile
from mcp_server.app import catch_up
from mcp_server.context.compile import CompileRequest, compile_gathered, gather
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.conversations.sessions import session_turns
from mcp_server.errors import NotFound
from mcp_server.memory import Memory
from mcp_server.model import Turn
from mcp_server.pressure.cold import come_back
from mcp_server.recovery.recover import recover
from mcp_server.relevance.chunks import text_of
from mcp_server.relevance.similar import Lookups

BUDGETS = (1024, 2048, 4096, 8192)
SESSION = "live"
UNREACHED = 1_000_000_000
"""A live limit in tokens that no conversation reaches."""

Phase = Literal["before compaction", "after it", "after automatic recovery"]
PHASES: tuple[Phase, ...] = ("before compaction", "after it", "after automatic recovery")


@dataclass(slots=True)
class Where:
    """Where the turns of the compacted conversations are. `records`: pieces of turns that are not live as they were;
    `exact`: how many of these `recover` gives back byte for byte."""

    turns: int = 0
    live: int = 0
    shortened: int = 0
    cold: int = 0
    records: int = 0
    exact: int = 0


@dataclass(frozen=True, slots=True)
class LiveReport:
    """Shares are 0 to 1. `contexts`: phase → budget → share of gold turns inside the compiled context; `live`: phase →
    share of gold turns that are whole in the live context; `returned`: mean number of recovered chunks per question."""

    path: str
    embedder: str
    limit: int
    conversations: int
    questions: int
    where: Where
    contexts: Mapping[Phase, Mapping[str, float]]
    live: Mapping[Phase, float]
    returned: float
    observe_ms: Mapping[str, float]
    seconds: float


@dataclass(slots=True)
class _Found:
    """Shares of gold turns, one per question."""

    contexts: dict[tuple[Phase, int], list[float]] = field(default_factory=dict)
    live: dict[Phase, list[float]] = field(default_factory=dict)
    returned: list[float] = field(default_factory=list)


async def measure_live(bench: Workbench, path: Path, limit: int) -> LiveReport:
    """Measures the conversations of `path` with a live limit of `limit` tokens.

    Raises:
        NotFound, Invalid: `path` holds no conversation with questions.
    """
    began = time.perf_counter()
    todo = await run_sync(conversations, path)
    total = 2 * sum(len(conversation.questions) for conversation in todo)
    found, where, took, name, done = _Found(), Where(), [], "", 0
    for conversation in todo:
        for tokens in (UNREACHED, limit):
            small = {"CONTEXT_MANAGER_CONTEXT__LIMIT_TOKENS": str(tokens), "CONTEXT_MANAGER_GIT__AUTO_COMMIT": "false"}
            async with bench.temporary(small) as (memory, _):
                times = await observe_all(memory, conversation)
                turns = await known_turns(memory)
                if tokens == limit:
                    took += times
                    await _count(memory, where)
                for question in conversation.questions:
                    await _ask(memory, question, turns, found, compacted=tokens == limit)
                    done += 1
                    bench.show(done, total, conversation.name)
                name = memory.embedder.name if memory.embedder else "none"
    return LiveReport(
        path=str(path),
        embedder=name,
        limit=limit,
        conversations=len(todo),
        questions=total // 2,
        where=where,
        contexts={phase: {str(budget): mean(found.contexts[phase, budget]) for budget in BUDGETS} for phase in PHASES},
        live={phase: mean(found.live[phase]) for phase in PHASES},
        returned=mean(found.returned),
        observe_ms={"p50": percentile(took, 0.5), "p95": percentile(took, 0.95)},
        seconds=round(time.perf_counter() - began, 1),
    )


async def observe_all(memory: Memory, conversation: Conversation) -> list[float]:
    """Observes a whole conversation as one session, indexed after each turn. Returns the milliseconds of each turn."""
    took = []
    for turn in (turn for session in conversation.sessions for turn in session.turns):
        new = NewTurn(
            turn.role, turn.content, SESSION, turn_id=turn.turn_id, name=turn.name, at=turn.at, delivery="replace"
        )
        began = time.perf_counter()
        await observe(memory, new, ASKER)
        took.append((time.perf_counter() - began) * 1000)
        await catch_up(memory)
    return took


async def _ask(
    memory: Memory, question: Question, turns: Mapping[str, KnownTurn], found: _Found, *, compacted: bool
) -> None:
    """Sends a question: to the whole conversation, or to the compacted one without and with automatic recovery."""
    if not compacted:
        return await _look(memory, question, turns, found, "before compaction")
    await _look(memory, question, turns, found, "after it")
    before = {chunk.id: chunk for chunk in await memory.live.of(SESSION)}
    records = {record.chunk_id: record for record in memory.cold.of(SESSION)}
    asked = await session_turns(memory, SESSION)
    turn = Turn(asked[-1].number + 1, "user", question.text, memory.clock())
    back = await come_back(memory, SESSION, [turn], Lookups(memory, SESSION, (*asked, turn)))
    found.returned.append(len(back))
    await _look(memory, question, turns, found, "after automatic recovery")
    if back:
        memory.cold.put_all([records[one.record.chunk_id] for one in back])
        memory.cold.remove_all([one for one in memory.cold.of(SESSION) if one.chunk_id not in records])
        await memory.live.put(SESSION, before.values())
    return None


async def _look(
    memory: Memory, question: Question, turns: Mapping[str, KnownTurn], found: _Found, phase: Phase
) -> None:
    """Compiles for a question at every budget, and notes which shares of its gold turns are there."""
    request = CompileRequest(message=question.text, session=SESSION, budget=max(BUDGETS))
    gathered = await gather(memory, request, ASKER)
    for budget in BUDGETS:
        inputs = dataclasses.replace(gathered.inputs, budget=budget)
        compiled = await compile_gathered(memory, dataclasses.replace(gathered, inputs=inputs))
        found.contexts.setdefault((phase, budget), []).append(share_inside(question, turns, compiled))
    away = {(one.turn, one.part) for one in await memory.live.shortened_chunks(SESSION) or ()}
    numbers = [int(turns[turn].unit.rpartition("#")[2]) for turn in question.gold]
    found.live.setdefault(phase, []).append(mean([(number, 0) not in away for number in numbers]))


async def _count(memory: Memory, where: Where) -> None:
    """Counts where the turns are, and how many pieces `recover` gives back as they were said."""
    turns = {turn.number: turn for turn in await session_turns(memory, SESSION)}
    away = await memory.live.shortened_chunks(SESSION) or ()
    first = {one.turn: one for one in away if one.part == 0}
    where.turns += len(turns)
    where.cold += sum(one.form == "cold" for one in first.values())
    where.shortened += sum(one.form != "cold" for one in first.values())
    where.live += len(turns) - len(first)
    where.records += len(away)
    for one in away:
        with contextlib.suppress(NotFound):
            back = await recover(memory, one.id, ASKER)
            where.exact += back.content == text_of(turns[one.turn], one.part)
