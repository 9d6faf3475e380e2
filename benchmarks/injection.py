"""`injection`: does the gate keep passages that have nothing to do with a message out of a compiled context?

Prompts that are unrelated to a memory, and questions of other conversations, should bring in no token of scored
knowledge; questions that the memory can answer should find their evidence with the gate as without it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from anyio.to_thread import run_sync

from benchmarks.datasets import Conversation, conversations, import_conversation, known_turns, share_inside
from benchmarks.push import shipped_prompts
from benchmarks.workbench import ASKER, Workbench, mean, percentile
from mcp_server.context.compile import CompileRequest, compile_context
from mcp_server.context.compiler import Compiled
from mcp_server.memory import Memory

BUDGET = 2048
LEAST_SILENT = 0.90
MOST_FALL = 2.0
"""Percentage points of evidence that the gate may cost."""

FROM_OTHERS = 100
"""Questions of other conversations that are asked of each conversation, taken evenly from all of them."""

WRONG = "questions of another conversation"
WRONG_KIND = "questions of another kind of conversation"
ALWAYS_OPEN = {"CONTEXT_MANAGER_SEARCH__GATE_THRESHOLD": "-1"}
"""The setting of a gate that lets everything in."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A message, the gate's value (None if there was none), and the tokens of scored knowledge. `kind` is empty for a
    question that the memory can answer."""

    kind: str
    value: float | None
    tokens: int


@dataclass(frozen=True, slots=True)
class InjectionReport:
    """`silent` has the number of prompts of each set, and the share that brought nothing in.

    `evidence` has the mean share of gold turns inside a context of BUDGET tokens, with the gate and without it.
    `auc` says how well the gate's value separates answerable questions from the others; `thresholds` are candidates for
    its constant, with the share of answerable questions shut out and of others let in.
    """

    embedder: str
    conversations: int
    threshold: float
    silent: Mapping[str, Mapping[str, float]]
    evidence: Mapping[str, float]
    auc: float
    thresholds: Sequence[Mapping[str, float]]


async def measure_injection(bench: Workbench, paths: Sequence[Path]) -> InjectionReport:
    """Measures the conversations of LoCoMo files and BEAM folders.

    Raises:
        NotFound, Invalid: a path holds no conversation with questions.
    """
    todo = await run_sync(lambda: [one for path in paths for one in conversations(path)])
    prompts = shipped_prompts()
    asked: list[Asked] = []
    with_gate: list[float] = []
    without: list[float] = []
    name, threshold = "none", 0.0
    for place, conversation in enumerate(todo):
        async with bench.temporary() as (memory, workspace):
            await import_conversation(memory, conversation)
            turns = await known_turns(memory)
            others = _of_others(todo, conversation)
            for kind, texts in (prompts | others).items():
                asked += [_asked(kind, await _compiled(memory, text)) for text in texts]
            for question in conversation.questions:
                compiled = await _compiled(memory, question.text)
                asked.append(_asked("", compiled))
                if compiled.receipt.gate is not None:
                    threshold = compiled.receipt.gate.threshold
                with_gate.append(share_inside(question, turns, compiled))
            async with bench.open(workspace, ALWAYS_OPEN) as ungated:
                for question in conversation.questions:
                    without.append(share_inside(question, turns, await _compiled(ungated, question.text)))
            name = memory.embedder.name if memory.embedder else "none"
        bench.show(place + 1, len(todo), conversation.name)
    answerable = [one.value for one in asked if one.value is not None and not one.kind]
    unrelated = [one.value for one in asked if one.value is not None and one.kind]
    return InjectionReport(
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
        auc=area_under_curve(answerable, unrelated),
        thresholds=candidate_thresholds(answerable, unrelated),
    )


def candidate_thresholds(
    answerable: Sequence[float], others: Sequence[float], shut_out: Sequence[float] = (0.002, 0.005, 0.01, 0.02, 0.05)
) -> list[Mapping[str, float]]:
    """Returns for each share of answerable questions that may be shut out the constant that does so, and what it lets
    in."""
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


def area_under_curve(positive: Sequence[float], negative: Sequence[float]) -> float:
    """Returns the AUC: the probability that a positive value exceeds a negative one, where a tie counts half; 0.5 if
    either side is empty."""
    if not positive or not negative:
        return 0.5
    ordered = sorted(negative)
    exceeded = sum(bisect_left(ordered, value) + bisect_right(ordered, value) for value in positive) / 2
    return exceeded / (len(positive) * len(negative))


def _of_others(todo: Sequence[Conversation], this: Conversation) -> dict[str, list[str]]:
    """Returns questions of all other conversations. Those of the other data set are easier, so they count apart."""
    found: dict[str, list[str]] = {}
    for one in todo:
        if one is not this:
            kind = WRONG if one.kind == this.kind else WRONG_KIND
            found.setdefault(kind, []).extend(question.text for question in one.questions)
    return {kind: texts[:: max(1, len(texts) // FROM_OTHERS)][:FROM_OTHERS] for kind, texts in found.items()}


async def _compiled(memory: Memory, text: str) -> Compiled:
    return await compile_context(memory, CompileRequest(message=text, budget=BUDGET), ASKER)


def _asked(kind: str, compiled: Compiled) -> Asked:
    gate = compiled.receipt.gate
    tokens = sum(slot.tokens for slot in compiled.receipt.slots if slot.name == "knowledge")
    return Asked(kind, gate.value if gate else None, tokens)
