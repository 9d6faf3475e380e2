"""`bench retrieval`: does search find the turns that answer a question, and does a compiled context hold them?

Every conversation is imported by the ordinary importer into a workspace of its own; every question goes through the
ordinary search and the ordinary compiler, without a session. Beside it, in the same run, plain BM25 over the turns.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import anyio

from mcp_server.bench.baseline import Bm25
from mcp_server.bench.evidence import DerivedLine, KnownTurn, derived_lines, inside, known_turns, units_of, whole
from mcp_server.bench.full_files import full_files
from mcp_server.bench.metrics import distinct, macro, mean, ndcg_at, percentile, recall_at
from mcp_server.bench.questions import Conversation, Question, conversations
from mcp_server.bench.workbench import ASKER, Workbench, temporary_folder
from mcp_server.clients.importers.run import import_path
from mcp_server.context.compile import CompileRequest, compile_gathered, gather
from mcp_server.errors import Invalid
from mcp_server.knowledge.condense import condense
from mcp_server.knowledge.extract import extract
from mcp_server.memory import Memory
from mcp_server.project import Project
from mcp_server.search.search import SearchRequest, find
from mcp_server.text.derived_lines import sources_of

BUDGETS = (512, 1024, 2048, 4096, 8192)
DEPTHS = (5, 10, 20)
NDCG_DEPTH = 10
Files = Literal["template", "full"]
FILES: tuple[Files, ...] = ("template", "full")
MEASURES = (*(f"recall@{depth}" for depth in DEPTHS), f"ndcg@{NDCG_DEPTH}")


@dataclass(slots=True)
class Asked:
    """What came back for one question. Times in milliseconds; `contexts`: files and budget → (inside, whole) shares."""

    question: Question
    ranked: list[str]
    plain: list[str]
    search_ms: float
    contexts: dict[tuple[Files, int], tuple[float, float]] = field(default_factory=dict)
    compile_ms: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class RetrievalReport:
    """The outcome: `scores` and `baseline` hold `overall`, `macro` and each category; shares and scores are 0..1."""

    path: str
    format: str
    embedder: str
    conversations: int
    questions: int
    scores: Mapping[str, Mapping[str, float]]
    baseline: Mapping[str, Mapping[str, float]]
    contexts: Mapping[str, Mapping[str, Mapping[str, float]]]
    latency_ms: Mapping[str, Mapping[str, float]]
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


async def measure_retrieval(
    bench: Workbench,
    path: Path,
    kind: Literal["locomo", "beam"],
    embedder: str | None = None,
    with_files: Sequence[Files] = FILES,
    knowledge: bool = False,
) -> RetrievalReport:
    """Runs the whole measurement on `path`; `with_files` says with which identity and memory files to compile.

    `knowledge`: what the lifecycle makes of each conversation lies beside its transcripts, and a line of it counts as
    the turns that it names as its sources.

    Raises:
        NotFound, Invalid: the data set is not there or not of that format.
    """
    began = time.perf_counter()
    todo = await anyio.to_thread.run_sync(lambda: list(conversations(path, kind)))
    total = sum(len(conversation.questions) for conversation in todo)
    if not total:
        raise Invalid(f"{path}: no question with evidence in it; give a data set that has some")
    asked: list[Asked] = []
    overrides = {"CONTEXT_MANAGER_SEARCH__EMBEDDER": embedder} if embedder else {}
    name = ""
    for conversation in todo:
        async with bench.temporary(overrides) as (memory, workspace):
            await import_conversation(bench, memory, conversation)
            lines = await _with_knowledge(bench, memory) if knowledge else {}
            turns = await known_turns(memory)
            here = await _search_all(memory, conversation, turns)
            for place, files in enumerate(with_files):
                if files == "full":
                    await anyio.to_thread.run_sync(_fill_files, workspace)
                    await bench.catch_up(memory)
                for number, one in enumerate(here, start=1):
                    await _compile_for(memory, one, files, turns, lines)
                    done = len(asked) + (place * len(here) + number) / len(with_files)
                    bench.show(done, total, conversation.name)
            asked += here
            name = memory.embedder.name if memory.embedder else "none"
    return RetrievalReport(
        path=str(path),
        format=kind,
        embedder=name,
        conversations=len(todo),
        questions=total,
        scores=scores([(one.question, one.ranked) for one in asked]),
        baseline=scores([(one.question, one.plain) for one in asked]),
        contexts=_contexts(asked, with_files),
        latency_ms={
            "search": _latency([one.search_ms for one in asked]),
            "compile": _latency([ms for one in asked for ms in one.compile_ms]),
        },
        seconds=round(time.perf_counter() - began, 1),
    )


async def import_conversation(bench: Workbench, memory: Memory, conversation: Conversation) -> None:
    """Imports one conversation by itself, as `context-manager import` would, and indexes it."""
    if conversation.document is None:
        await import_path(memory, conversation.path, kind="beam")
    else:
        with temporary_folder() as folder:
            alone = folder / "conversation.json"
            alone.write_text(json.dumps([conversation.document]), encoding="utf-8")
            await import_path(memory, alone, kind="locomo")
    await bench.catch_up(memory)


async def _with_knowledge(bench: Workbench, memory: Memory) -> Mapping[str, DerivedLine]:
    """Extracts and condenses what was imported, as the schedule would; returns the lines, by their units."""
    await extract(memory)
    await condense(memory, "weekly")
    await bench.catch_up(memory)
    return await derived_lines(memory)


async def ranked_turns(
    memory: Memory, text: str, limit: int = max(DEPTHS), turns: Mapping[str, KnownTurn] | None = None
) -> list[str]:
    """What the ordinary search finds for `text`, best first: turn ids; what is no turn keeps its place as its unit. A
    derived line counts as the turns that it names."""
    found = await find(memory, SearchRequest(query=text, limit=limit, scope="project", project=Project()))
    by_unit = {turn.unit: turn.turn_id for turn in (turns or {}).values()}
    ranked: list[str] = []
    for hit in found.hits:
        sources = () if hit.passage.turn is not None else sources_of(hit.passage.text)
        named = [by_unit[str(source)] for source in sources if str(source) in by_unit]
        ranked += named or [hit.passage.turn_id or hit.passage.unit]
    return distinct(ranked)


async def _search_all(memory: Memory, conversation: Conversation, turns: Mapping[str, KnownTurn]) -> list[Asked]:
    """Searches for every question, by the product and by the plain ranking beside it."""
    plain = Bm25({turn.turn_id: turn.shown for turn in turns.values()})
    asked: list[Asked] = []
    await ranked_turns(memory, "warm up")
    for question in conversation.questions:
        began = time.perf_counter()
        ranked = await ranked_turns(memory, question.text, turns=turns)
        took = (time.perf_counter() - began) * 1000
        asked.append(Asked(question, ranked, plain.ranked(question.text, max(DEPTHS)), took))
    return asked


async def _compile_for(
    memory: Memory, one: Asked, files: Files, turns: Mapping[str, KnownTurn], lines: Mapping[str, DerivedLine]
) -> None:
    """Compiles for one question at every budget, and looks which of its gold turns are inside. What a compilation sees
    is gathered once: of its inputs only the budget differs."""
    gold = [turns[turn_id] for turn_id in sorted(one.question.gold)]
    began = time.perf_counter()
    gathered = await gather(memory, CompileRequest(message=one.question.text, budget=max(BUDGETS)), ASKER)
    gathering = time.perf_counter() - began
    for budget in BUDGETS:
        began = time.perf_counter()
        compiled = await compile_gathered(memory, replace(gathered, inputs=replace(gathered.inputs, budget=budget)))
        one.compile_ms.append((gathering + time.perf_counter() - began) * 1000)
        found = inside(gold, compiled.text, units_of(compiled.receipt), lines), whole(gold, compiled.text)
        one.contexts[files, budget] = (len(found[0]) / len(gold), len(found[1]) / len(gold))


def _fill_files(workspace: Path) -> None:
    for path, text in full_files().items():
        (workspace / path).write_text(text, encoding="utf-8")


def scores(asked: Sequence[tuple[Question, Sequence[str]]]) -> Mapping[str, Mapping[str, float]]:
    """`overall` (mean over the questions), `macro` (over the categories) and every category, each with its measures."""
    by_category: dict[str, list[dict[str, float]]] = {}
    for question, ranked in asked:
        values = {f"recall@{depth}": recall_at(ranked, question.gold, depth) for depth in DEPTHS}
        values[f"ndcg@{NDCG_DEPTH}"] = ndcg_at(ranked, question.gold, NDCG_DEPTH)
        by_category.setdefault(question.category, []).append(values)
    everything = [values for category in by_category.values() for values in category]
    rows: dict[str, dict[str, float]] = {
        "overall": {measure: mean([values[measure] for values in everything]) for measure in MEASURES},
        "macro": {
            measure: macro({name: [values[measure] for values in found] for name, found in by_category.items()})
            for measure in MEASURES
        },
    }
    for name in sorted(by_category):
        found = by_category[name]
        rows[name] = {measure: mean([values[measure] for values in found]) for measure in MEASURES}
        rows[name]["questions"] = len(found)
    return rows


def _contexts(asked: Sequence[Asked], with_files: Sequence[Files]) -> Mapping[str, Mapping[str, Mapping[str, float]]]:
    """Files → budget → `inside`, `whole` (means over the questions) and `turns` (share of all gold turns together)."""
    table: dict[str, dict[str, Mapping[str, float]]] = {}
    gold = sum(len(one.question.gold) for one in asked)
    for files in with_files:
        for budget in BUDGETS:
            shares = [one.contexts[files, budget] for one in asked]
            found = sum(one.contexts[files, budget][0] * len(one.question.gold) for one in asked)
            table.setdefault(files, {})[str(budget)] = {
                "inside": mean([share for share, _ in shares]),
                "whole": mean([share for _, share in shares]),
                "turns": found / gold,
            }
    return table


def _latency(times: Sequence[float]) -> Mapping[str, float]:
    return {"p50": percentile(times, 0.5), "p95": percentile(times, 0.95)}
