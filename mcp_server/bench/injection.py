"""`bench injection`: does the gate keep a compiled context free of passages that have nothing to do with the message?

Prompts that have nothing to do with a memory, and questions asked of the wrong conversation, should bring in no token
of scored knowledge; questions that the memory can answer should find their evidence with the gate as without it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from mcp_server.bench.evidence import KnownTurn, inside, known_turns, units_of
from mcp_server.bench.metrics import area_under_curve, mean, percentile
from mcp_server.bench.push import shipped_prompts
from mcp_server.bench.questions import Conversation, Question, conversations
from mcp_server.bench.retrieval import import_conversation
from mcp_server.bench.workbench import ASKER, Workbench
from mcp_server.clients.importers.detect import detect
from mcp_server.context.compile import CompileRequest, compile_context
from mcp_server.context.compiler import Compiled
from mcp_server.errors import Invalid
from mcp_server.memory import Memory

BUDGET = 2048
LEAST_SILENT = 0.90
MOST_FALL = 2.0
"""Points of evidence that the gate may cost."""

FROM_OTHERS = 100
"""So many questions of other conversations are asked of each, taken evenly from all of them."""

WRONG = "questions of another conversation"
WRONG_KIND = "questions of another kind of conversation"
ALWAYS_OPEN = {"CONTEXT_MANAGER_SEARCH__GATE_THRESHOLD": "-1"}
"""A gate that lets everything in."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One message and what came of it: the gate's value (None if there was none), the tokens of scored knowledge."""

    kind: str
    value: float | None
    tokens: int


@dataclass(frozen=True, slots=True)
class InjectionReport:
    """The outcome. `silent` maps each set of prompts to how many were asked and the share that brought nothing in.

    `evidence` holds the mean share of gold turns inside a context of `budget` tokens, with the gate and without it.
    `auc` tells answerable questions from the others by the gate's value; `thresholds` are candidates for its constant:
    the share of answerable questions shut out and of others let in.
    """

    budget: int
    embedder: str
    conversations: int
    threshold: float
    silent: Mapping[str, Mapping[str, float]]
    evidence: Mapping[str, float]
    auc: float
    thresholds: Sequence[Mapping[str, float]]

    @property
    def met(self) -> bool:
        """Are both bars of SPEC §7 met, for every set of prompts?"""
        silent = all(row["silent"] >= LEAST_SILENT for row in self.silent.values())
        return silent and self.evidence["fall_points"] <= MOST_FALL

    def as_dict(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "met": self.met}


async def measure_injection(
    bench: Workbench, paths: Sequence[Path], *, embedder: str | None = None, budget: int = BUDGET
) -> InjectionReport:
    """Runs the measurement over every conversation under `paths` (LoCoMo files, BEAM folders).

    Raises:
        NotFound, Invalid: a path holds no conversation with questions.
    """
    todo = await anyio.to_thread.run_sync(lambda: [one for path in paths for one in _conversations(path)])
    overrides = {"CONTEXT_MANAGER_SEARCH__EMBEDDER": embedder} if embedder else {}
    prompts = shipped_prompts()
    asked: list[Asked] = []
    with_gate: list[float] = []
    without: list[float] = []
    name, threshold = "none", 0.0
    for place, conversation in enumerate(todo):
        async with bench.temporary(overrides) as (memory, workspace):
            await import_conversation(bench, memory, conversation)
            turns = await known_turns(memory)
            others = _of_others(todo, conversation)
            messages = [(kind, text) for kind, texts in (prompts | others).items() for text in texts]
            for kind, text in messages:
                asked.append(_asked(kind, await _compiled(memory, text, budget)))
            for question in conversation.questions:
                compiled = await _compiled(memory, question.text, budget)
                asked.append(_asked("", compiled))
                if compiled.receipt.gate is not None:
                    threshold = compiled.receipt.gate.threshold
                with_gate.append(_share(question, turns, compiled))
            async with bench.open(workspace, overrides | ALWAYS_OPEN) as ungated:
                for question in conversation.questions:
                    without.append(_share(question, turns, await _compiled(ungated, question.text, budget)))
            name = memory.embedder.name if memory.embedder else "none"
        bench.show(place + 1, len(todo), conversation.name)
    return InjectionReport(
        budget=budget,
        embedder=name,
        conversations=len(todo),
        threshold=threshold,
        silent={
            kind: {"asked": len(tokens), "silent": sum(not count for count in tokens) / len(tokens)}
            for kind in dict.fromkeys(one.kind for one in asked if one.kind)
            if (tokens := [one.tokens for one in asked if one.kind == kind])
        },
        evidence={
            "with_gate": mean(with_gate),
            "without_gate": mean(without),
            "fall_points": round((mean(without) - mean(with_gate)) * 100, 3),
        },
        auc=area_under_curve(_values(asked, answerable=True), _values(asked, answerable=False)),
        thresholds=candidate_thresholds(_values(asked, answerable=True), _values(asked, answerable=False)),
    )


def candidate_thresholds(
    answerable: Sequence[float], others: Sequence[float], shut_out: Sequence[float] = (0.002, 0.005, 0.01, 0.02, 0.05)
) -> list[Mapping[str, float]]:
    """For each share of answerable questions that may be shut out: the constant that does so, and what it lets in."""
    rows: list[Mapping[str, float]] = []
    for share in shut_out if answerable else ():
        constant = percentile(answerable, share)
        rows.append(
            {
                "threshold": round(constant, 4),
                "answerable_shut_out": mean([value < constant for value in answerable]),
                "others_let_in": mean([value >= constant for value in others]),
            }
        )
    return rows


def _conversations(path: Path) -> list[Conversation]:
    kind = detect(path)
    if kind not in ("locomo", "beam"):
        raise Invalid(f"{path} holds no conversations with questions; give LoCoMo or BEAM files")
    return list(conversations(path, kind))


def _of_others(todo: Sequence[Conversation], this: Conversation) -> dict[str, list[str]]:
    """Questions of all other conversations, evenly taken; those of another format are easier, so they stand apart."""
    found: dict[str, list[str]] = {}
    for one in todo:
        if one is not this:
            kind = WRONG if (one.document is None) == (this.document is None) else WRONG_KIND
            found.setdefault(kind, []).extend(question.text for question in one.questions)
    return {kind: texts[:: max(1, len(texts) // FROM_OTHERS)][:FROM_OTHERS] for kind, texts in found.items()}


async def _compiled(memory: Memory, text: str, budget: int) -> Compiled:
    return await compile_context(memory, CompileRequest(message=text, budget=budget), ASKER)


def _asked(kind: str, compiled: Compiled) -> Asked:
    gate = compiled.receipt.gate
    tokens = sum(slot.tokens for slot in compiled.receipt.slots if slot.name == "knowledge")
    return Asked(kind, gate.value if gate else None, tokens)


def _share(question: Question, turns: Mapping[str, KnownTurn], compiled: Compiled) -> float:
    gold = [turns[turn_id] for turn_id in sorted(question.gold)]
    return len(inside(gold, compiled.text, units_of(compiled.receipt))) / len(gold)


def _values(asked: Iterable[Asked], *, answerable: bool) -> list[float]:
    return [one.value for one in asked if one.value is not None and (not one.kind) == answerable]
