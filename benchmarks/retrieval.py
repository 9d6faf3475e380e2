"""`retrieval`: does the search find the turns that answer a question, and does a compiled context hold them?

Every conversation is imported into a workspace of its own; every question goes through the ordinary search and the
ordinary compiler, without a session. The baseline is plain BM25 over the turns.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from anyio.to_thread import run_sync

from benchmarks.datasets import (
    DerivedLine,
    KnownTurn,
    Question,
    conversations,
    derived_lines,
    import_conversation,
    known_turns,
    share_inside,
    whole,
)
from benchmarks.workbench import ASKER, Bm25, Workbench, caught_up, mean, percentile
from mcp_server.context.compile import CompileRequest, inputs_without_files, with_files
from mcp_server.context.compiler import compile_inputs
from mcp_server.knowledge.condense import condense
from mcp_server.knowledge.extract import extract
from mcp_server.memory import Memory
from mcp_server.model import Hit, Project
from mcp_server.search.search import SearchRequest, find

BUDGETS = (512, 1024, 2048, 4096, 8192)
DEPTHS = (5, 10, 20)
NDCG_DEPTH = 10
Files = Literal["template", "full"]
FILES: tuple[Files, ...] = ("template", "full")
MEASURES = (*(f"recall@{depth}" for depth in DEPTHS), f"ndcg@{NDCG_DEPTH}")


@dataclass(slots=True)
class Asked:
    """The results for one question. Times are in milliseconds. In `ranked` a line of knowledge counts as the turns that
    it repeats, in `turns_only` it counts as nothing. `contexts` maps files and budget to the shares of the evidence
    that is inside, that is whole, and that is inside without such lines."""

    question: Question
    ranked: list[str]
    turns_only: list[str]
    plain: list[str]
    search_ms: float
    contexts: dict[tuple[Files, int], tuple[float, float, float]] = field(default_factory=dict)
    compile_ms: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class RetrievalReport:
    """`scores`, `turns_only` (without lines of knowledge) and `baseline` hold `overall`, `macro` and each category.
    Shares and scores are 0 to 1."""

    path: str
    embedder: str
    conversations: int
    questions: int
    scores: Mapping[str, Mapping[str, float]]
    turns_only: Mapping[str, Mapping[str, float]]
    baseline: Mapping[str, Mapping[str, float]]
    contexts: Mapping[str, Mapping[str, Mapping[str, float]]]
    latency_ms: Mapping[str, Mapping[str, float]]
    seconds: float


async def measure_retrieval(bench: Workbench, path: Path, knowledge: bool = False) -> RetrievalReport:
    """Measures the conversations of `path`, with the identity and memory files of a new workspace and with full ones.

    With `knowledge`, knowledge is first extracted from each conversation, and a line counts as those of its source
    turns that it repeats.

    Raises:
        NotFound, Invalid: `path` holds no conversation with questions.
    """
    began = time.perf_counter()
    todo = await run_sync(conversations, path)
    total = sum(len(conversation.questions) for conversation in todo)
    asked: list[Asked] = []
    name = ""
    for conversation in todo:
        async with bench.temporary() as (memory, _):
            await import_conversation(memory, conversation)
            if knowledge:
                await extract(memory)
                await condense(memory, "weekly")
                await caught_up(memory)
            turns = await known_turns(memory)
            lines = await derived_lines(memory, turns)
            here = await _search_all(memory, conversation.questions, turns, lines)
            for place, files in enumerate(FILES):
                if files == "full":
                    for file, text in full_files().items():
                        memory.files.write_atomic(file, text)
                    await caught_up(memory)
                for number, one in enumerate(here, start=1):
                    await _compile_for(memory, one, files, turns, lines)
                    bench.show(len(asked) + (place * len(here) + number) / len(FILES), total, conversation.name)
            asked += here
            name = memory.embedder.name if memory.embedder else "none"
    return RetrievalReport(
        path=str(path),
        embedder=name,
        conversations=len(todo),
        questions=total,
        scores=scores([(one.question, one.ranked) for one in asked]),
        turns_only=scores([(one.question, one.turns_only) for one in asked]),
        baseline=scores([(one.question, one.plain) for one in asked]),
        contexts={files: {str(budget): _means(asked, files, budget) for budget in BUDGETS} for files in FILES},
        latency_ms={
            what: {"p50": percentile(times, 0.5), "p95": percentile(times, 0.95)}
            for what, times in (
                ("search", [one.search_ms for one in asked]),
                ("compile", [ms for one in asked for ms in one.compile_ms]),
            )
        },
        seconds=round(time.perf_counter() - began, 1),
    )


async def _search_all(
    memory: Memory,
    questions: Sequence[Question],
    turns: Mapping[str, KnownTurn],
    lines: Mapping[str, DerivedLine],
) -> list[Asked]:
    plain = Bm25({turn.turn_id: turn.shown for turn in turns.values()})
    by_unit = {turn.unit: turn.turn_id for turn in turns.values()}
    asked: list[Asked] = []
    await _hits(memory, "warm up")
    for question in questions:
        began = time.perf_counter()
        hits = await _hits(memory, question.text)
        took = (time.perf_counter() - began) * 1000
        ranked, turns_only = ranked_turns(hits, by_unit, lines), ranked_turns(hits, by_unit, {})
        asked.append(Asked(question, ranked, turns_only, plain.ranked(question.text, max(DEPTHS)), took))
    return asked


async def _hits(memory: Memory, text: str) -> tuple[Hit, ...]:
    request = SearchRequest(query=text, limit=max(DEPTHS), scope="project", project=Project())
    return (await find(memory, request)).hits


def ranked_turns(hits: Iterable[Hit], turn_ids: Mapping[str, str], lines: Mapping[str, DerivedLine]) -> list[str]:
    """Returns the ids of the turns among the hits, best first; `turn_ids` has them by unit. One of `lines` counts as
    the turns that it repeats; any other passage that is no turn keeps its place as its unit."""
    ranked: list[str] = []
    for hit in hits:
        line = lines.get(hit.passage.unit)
        named = [turn_ids[unit] for unit in sorted(line.sources) if unit in turn_ids] if line else []
        ranked += named or [hit.passage.turn_id or hit.passage.unit]
    return distinct(ranked)


async def _compile_for(
    memory: Memory, one: Asked, files: Files, turns: Mapping[str, KnownTurn], lines: Mapping[str, DerivedLine]
) -> None:
    """Compiles for a question at every budget and notes the shares of its gold turns. Only the budget differs, so the
    inputs of the compiler are gathered once."""
    gold = [turns[turn] for turn in one.question.gold]
    began = time.perf_counter()
    request = CompileRequest(message=one.question.text, budget=max(BUDGETS))
    gathered = await run_sync(with_files, memory, await inputs_without_files(memory, request, ASKER))
    gathering = time.perf_counter() - began
    for budget in BUDGETS:
        began = time.perf_counter()
        compiled = await run_sync(compile_inputs, replace(gathered, budget=budget), memory.tokens.count)
        one.compile_ms.append((gathering + time.perf_counter() - began) * 1000)
        one.contexts[files, budget] = (
            share_inside(one.question, turns, compiled, lines),
            len(whole(gold, compiled.text)) / len(gold),
            share_inside(one.question, turns, compiled),
        )


def scores(asked: Sequence[tuple[Question, Sequence[str]]]) -> Mapping[str, Mapping[str, float]]:
    """Returns each measure: `overall` (mean over the questions), `macro` (over the categories), and by category."""
    by_category: dict[str, list[dict[str, float]]] = {}
    for question, ranked in asked:
        values = {f"recall@{depth}": recall_at(ranked, question.gold, depth) for depth in DEPTHS}
        values[f"ndcg@{NDCG_DEPTH}"] = ndcg_at(ranked, question.gold, NDCG_DEPTH)
        by_category.setdefault(question.category, []).append(values)

    def means(rows: Collection[Mapping[str, float]]) -> dict[str, float]:
        return {measure: mean([row[measure] for row in rows]) for measure in MEASURES}

    found = {name: means(rows) for name, rows in sorted(by_category.items())}
    overall = means([row for rows in by_category.values() for row in rows])
    counted = {name: row | {"questions": len(by_category[name])} for name, row in found.items()}
    return {"overall": overall, "macro": means(found.values()), **counted}


def _means(asked: Sequence[Asked], files: Files, budget: int) -> Mapping[str, float]:
    """Returns `inside`, `whole` and `turns_only` (means over the questions), and `turns` (the share of all gold turns
    together)."""
    shares = [(*one.contexts[files, budget], len(one.question.gold)) for one in asked]
    return {
        "inside": mean([inside for inside, _, _, _ in shares]),
        "turns_only": mean([turns_only for _, _, turns_only, _ in shares]),
        "whole": mean([whole for _, whole, _, _ in shares]),
        "turns": sum(inside * gold for inside, _, _, gold in shares) / sum(gold for _, _, _, gold in shares),
    }


def recall_at(ranked: Sequence[str], gold: Collection[str], k: int) -> float:
    """Returns the share of `gold` among the first `k` of `ranked`. `gold` is not empty."""
    return len(set(ranked[:k]) & set(gold)) / len(set(gold))


def ndcg_at(ranked: Sequence[str], gold: Collection[str], k: int) -> float:
    """Returns NDCG@k with binary gains: `Σ 1/log2(rank+1)` over the gold found, divided by the best possible value."""
    wanted = set(gold)
    gained = sum(1 / math.log2(rank + 1) for rank, item in enumerate(distinct(ranked)[:k], start=1) if item in wanted)
    best = sum(1 / math.log2(rank + 1) for rank in range(1, min(k, len(wanted)) + 1))
    return gained / best


def distinct(ranked: Iterable[str]) -> list[str]:
    """Returns `ranked` with only the first appearance of each id."""
    return list(dict.fromkeys(ranked))


_GUIDANCE = (
    "Answer in short paragraphs and say first what changed.",
    "When something is uncertain, name the assumption and how it could be checked.",
    "Never send a message to anybody without showing it first.",
    "Keep one list of open questions and close each with a date.",
    "Ask before a file outside the working folder is touched.",
    "Prefer plain words to terms of the trade when the reader is a customer.",
    "Every figure has its unit beside it and its source below it.",
    "Changes that cannot be undone wait for a second yes.",
)
_FACTS = (
    "The quarterly report goes to the board on the second Monday.",
    "Invoices are numbered by year and counter, without gaps.",
    "The staging server is restored from the backup of the night before.",
    "Release notes are written before the release, not after it.",
    "The printer on the second floor takes A3 from the lower tray only.",
    "The supplier of cables answers on the phone, never by mail.",
    "Meetings of the works council are in the large room.",
    "Passwords live in the vault; nobody keeps them in notes.",
)


def full_files() -> Mapping[str, str]:
    """Returns path → text of identity and memory files as long as after a year of use, about other subjects. They fill
    every cap at ordinary budgets."""

    def guidance(title: str, rounds: int) -> str:
        sections = (
            f"## {title} {round_}\n\n"
            + "\n".join(f"- {line} (point {round_}.{n})" for n, line in enumerate(_GUIDANCE, 1))
            for round_ in range(1, rounds + 1)
        )
        return f"# {title}\n\n" + "\n\n".join(sections) + "\n"

    entries = (
        f"- 2025-{1 + n // 15 % 12:02d}-{1 + n % 28:02d}: {_FACTS[n % len(_FACTS)]} (note {n})" for n in range(170)
    )
    return {
        "knowledge/identity/SOUL.md": guidance("How to be", 6),
        "knowledge/identity/USER.md": guidance("Who the user is", 8),
        "knowledge/identity/AGENTS.md": guidance("How to work", 6),
        "knowledge/identity/TOOLS.md": guidance("Tools", 4),
        "knowledge/memory/MEMORY.md": "# Memory\n\n## Facts\n\n" + "\n".join(entries) + "\n",
        "knowledge/projects/_active.md": "# Active projects\n\n- Moving the archive to new shelves, until autumn.\n",
    }
