"""`bench retrieval --live-limit N`: what does a small live context cost? Asked before compaction, after it, and after
what returns by itself.

Every conversation is observed turn by turn, as one session in `replace`, twice: with a limit that nothing ever reaches,
and with one of N tokens. Every question is asked of both as the next message: its context is compiled without letting
anything return, and once more after what automatic recovery brings back for it. A question leaves no trace: it is no
turn, and what it brought back goes cold again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import anyio

from mcp_server.bench.evidence import KnownTurn, inside, known_turns, units_of
from mcp_server.bench.metrics import mean, percentile
from mcp_server.bench.questions import Conversation, Question, conversations
from mcp_server.bench.workbench import ASKER, Workbench
from mcp_server.clients.importers import beam, locomo
from mcp_server.clients.importers.imported import Skipped
from mcp_server.context.compile import CompileRequest, compile_gathered, gather
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.conversations.sessions import session_turns
from mcp_server.errors import Invalid, NotFound
from mcp_server.memory import Memory
from mcp_server.model import Turn
from mcp_server.pressure.cold import come_back
from mcp_server.recovery.recover import recover
from mcp_server.relevance.chunks import text_of
from mcp_server.relevance.similar import Seen

BUDGETS = (1024, 2048, 4096, 8192)
SESSION = "live"
UNREACHED = 1_000_000_000
"""Tokens of a live limit that no conversation reaches."""

Phase = Literal["before compaction", "after it", "after automatic recovery"]
PHASES: tuple[Phase, ...] = ("before compaction", "after it", "after automatic recovery")


@dataclass(slots=True)
class Where:
    """Where the turns of the compacted conversations are, how many pieces of them do not stand whole (`records`), and
    how many of those `recover` gives back byte for byte (`exact`)."""

    turns: int = 0
    live: int = 0
    shortened: int = 0
    cold: int = 0
    records: int = 0
    exact: int = 0


@dataclass(frozen=True, slots=True)
class LiveReport:
    """The outcome; shares are 0..1. `contexts`: phase → budget → share of gold turns inside the compiled context;
    `live`: phase → share of gold turns that are whole in the live context. `returned`: chunks that came back, a
    question."""

    path: str
    format: str
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

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


@dataclass(slots=True)
class _Found:
    """Shares of gold turns, one a question."""

    contexts: dict[tuple[Phase, int], list[float]] = field(default_factory=dict)
    live: dict[Phase, list[float]] = field(default_factory=dict)
    returned: list[float] = field(default_factory=list)


async def measure_live(
    bench: Workbench, path: Path, kind: Literal["locomo", "beam"], limit: int, embedder: str | None = None
) -> LiveReport:
    """Runs the whole measurement on `path` with a live limit of `limit` tokens.

    Raises:
        NotFound, Invalid: the data set is not there or not of that format.
    """
    began = time.perf_counter()
    todo = await anyio.to_thread.run_sync(lambda: list(conversations(path, kind)))
    total = 2 * sum(len(conversation.questions) for conversation in todo)
    if not total:
        raise Invalid(f"{path}: no question with evidence in it; give a data set that has some")
    overrides = {"CONTEXT_MANAGER_SEARCH__EMBEDDER": embedder} if embedder else {}
    found, where, took, name, done = _Found(), Where(), [], "", 0
    for conversation in todo:
        for tokens in (UNREACHED, limit):
            small = {"CONTEXT_MANAGER_CONTEXT__LIMIT_TOKENS": str(tokens), "CONTEXT_MANAGER_GIT__AUTO_COMMIT": "false"}
            async with bench.temporary({**overrides, **small}) as (memory, _):
                times = await observe_all(bench, memory, conversation)
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
        format=kind,
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


async def observe_all(bench: Workbench, memory: Memory, conversation: Conversation) -> list[float]:
    """Observes a whole conversation as one session in `replace`, indexed as it goes; milliseconds of each turn."""
    took = []
    for turn in said(conversation):
        began = time.perf_counter()
        await observe(memory, turn, ASKER)
        took.append((time.perf_counter() - began) * 1000)
        await bench.catch_up(memory)
    return took


def said(conversation: Conversation) -> Iterator[NewTurn]:
    """The messages of a conversation, in order."""
    if conversation.document is not None:
        found: Iterator[Any] = locomo.sessions(conversation.document, conversation.name)
    else:
        found = beam.read(conversation.path)
    for session in found:
        for turn in () if isinstance(session, Skipped) else session.turns:
            yield NewTurn(
                turn.role,
                turn.content,
                SESSION,
                turn_id=turn.turn_id,
                name=turn.name,
                at=turn.at,
                delivery="replace",
                tool_calls=turn.tool_calls,
            )


async def _ask(
    memory: Memory, question: Question, turns: Mapping[str, KnownTurn], found: _Found, *, compacted: bool
) -> None:
    """Asks one question: of the whole conversation, or of the compacted one without and with what returns."""
    gold = [turns[turn_id] for turn_id in sorted(question.gold)]
    if not compacted:
        return await _look(memory, question, gold, found, "before compaction")
    await _look(memory, question, gold, found, "after it")
    before = {chunk.id: chunk for chunk in await memory.live.of(SESSION)}
    records = {record.chunk_id: record for record in memory.cold.of(SESSION)}
    asked = await session_turns(memory, SESSION)
    turn = Turn(asked[-1].number + 1, "user", question.text, memory.clock())
    back = await come_back(memory, SESSION, [turn], Seen(memory, SESSION, (*asked, turn)))
    found.returned.append(len(back))
    await _look(memory, question, gold, found, "after automatic recovery")
    if back:
        memory.cold.put_all([records[one.record.chunk_id] for one in back])
        memory.cold.remove_all([one for one in memory.cold.of(SESSION) if one.chunk_id not in records])
        await memory.live.put(SESSION, before.values())
    return None


async def _look(memory: Memory, question: Question, gold: Sequence[KnownTurn], found: _Found, phase: Phase) -> None:
    """Compiles for a question at every budget, and looks which of its gold turns are inside."""
    request = CompileRequest(message=question.text, session=SESSION, budget=max(BUDGETS))
    gathered = await gather(memory, request, ASKER)
    for budget in BUDGETS:
        inputs = dataclasses.replace(gathered.inputs, budget=budget)
        compiled = await compile_gathered(memory, dataclasses.replace(gathered, inputs=inputs))
        share = len(inside(gold, compiled.text, units_of(compiled.receipt))) / len(gold)
        found.contexts.setdefault((phase, budget), []).append(share)
    standing = {(one.turn, one.part) for one in await memory.live.shortened_chunks(SESSION) or ()}
    whole = [turn for turn in gold if (int(turn.unit.rpartition("#")[2]), 0) not in standing]
    found.live.setdefault(phase, []).append(len(whole) / len(gold))


async def _count(memory: Memory, where: Where) -> None:
    """Where every turn is, and whether what `recover` would bring back is what was said."""
    turns = {turn.number: turn for turn in await session_turns(memory, SESSION)}
    away = await memory.live.shortened_chunks(SESSION) or ()
    standing = {one.turn: one for one in away if one.part == 0}
    where.turns += len(turns)
    where.cold += sum(one.form == "cold" for one in standing.values())
    where.shortened += sum(one.form != "cold" for one in standing.values())
    where.live += len(turns) - len(standing)
    where.records += len(away)
    for one in away:
        with contextlib.suppress(NotFound):
            back = await recover(memory, one.id, ASKER)
            where.exact += back.content == text_of(turns[one.turn], one.part)
