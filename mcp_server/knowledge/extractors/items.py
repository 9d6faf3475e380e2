"""Decisions, rules, facts, open items and reports of a conversation with an agent, as the recognizer finds them.

A page takes only items that are worth a line. On 881 sentences of our own conversations that were labeled by reading
(`benchmarks/worth.jsonl`), the item's probability by kind and role tells useful from trivial nearly as well as a model
with 200 features (AUC .757 and .770, whole conversations left out), so these few numbers are the rule.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import get_args

from mcp_server.knowledge.extractors.extractor import TAKEN_OUT, Context, Extractor
from mcp_server.knowledge.extractors.people import tells_of_self
from mcp_server.model import Turn
from mcp_server.text.derived_lines import Line, LineKind
from mcp_server.understanding.features import subject_stems
from mcp_server.understanding.recognizer import Item, ItemKind

VERSION = 4

KINDS: frozenset[LineKind] = frozenset(get_args(ItemKind))
"""Kinds of lines that are made of recognized items."""

LEAST: Mapping[tuple[ItemKind, str], float] = {
    ("fact", "user"): 0.2,
    ("fact", "agent"): 0.25,
}
"""The probability from which on an item is worth a line, by kind and role; for other items the recognizer's own."""

LEAST_SUBJECTS: Mapping[ItemKind, int] = {"decision": 3, "fact": 3}
"""Words that say what the item is about: of decisions of users with fewer, four of ten were useful, else eight."""

_PROGRESS = re.compile(
    r"(?:(?:and|so|but|plus|also|well|ok|hmm|hi|hello)[, ]+)*"
    r"(?:I(?:['’]m| am) (?:\w+ly |also |just |still )?(?:trying|having (?:trouble|issues|problems)|struggling"
    r"|getting an?|looking for|wondering|stuck|confused|not sure|working on|starting)\b"
    r"|I(?:['’]ve| have) (?:\w+ly |also |just )?(?:tried|heard|checked)\b|I need (?:some )?(?:help|advice)\b"
    r"|how (?:can|do|would|should) I\b|do I (?:need|have)\b"
    r"|(?:including|considering|especially|given|which|like|similar to)\b)"
    r"|.*\b(?:can|could) you (?:please |also )?(?:explain|help|show|verify|give|walk|provide|review|suggest)\b"
    r"|.*\b(?:let me know|I need (?:some )?help|how (?:can|should|would) I|I(?:['’]m| am) not sure)\b",
    re.IGNORECASE | re.DOTALL,
)
"""Sentences in which a user describes the current task or asks for help, and fragments of them: they do not last."""

_PASSED_OVER = re.compile(
    r"\balternatives? (?:I|we) (?:looked|considered)|\b(?:considered|looked at) \w.* and (?:rejected|wouldn['’]t)\b"
    r"|\b(?:wouldn['’]t (?:take|choose)|would not (?:take|choose))\b",
    re.IGNORECASE,
)
"""An option that the agent names as one that it did not take."""

_FORMULA = re.compile(r"\\[(\[]|\\(?:frac|text|times|sqrt)\b")
"""TeX: a line of an exercise."""

LABELED = 1.0
"""The probability of an item that its author labeled ("Decision: …"): it always counts."""


def is_worth_a_line(item: Item) -> bool:
    """Returns whether an item belongs on a page."""
    if item.probability >= LABELED:
        return True
    if item.text.rstrip().endswith("?") or _FORMULA.search(item.text):
        return False
    if (_PROGRESS.match if item.role == "user" else _PASSED_OVER.search)(item.text):
        return False
    if item.probability < LEAST.get((item.kind, item.role), 0.0):
        return False
    return len(subject_stems(item.text)) >= LEAST_SUBJECTS.get(item.kind, 0)


def _of(kind: LineKind, found: ItemKind) -> Callable[[Sequence[Turn], Context], list[Line]]:
    def extract(turns: Sequence[Turn], context: Context) -> list[Line]:
        by_number = {turn.number: turn for turn in turns}

        def settled(item: Item) -> tuple[int, str] | None:
            number = context.settled.get(item)
            return (number, context.day_of(by_number[number].at)) if number in by_number else None

        return [
            context.line(
                kind,
                item.text,
                by_number[item.sources[0]],
                weight=round(item.probability, 3),
                changes=item.changes,
                heard=item.heard,
                settled_by=settled(item),
            )
            for item in context.items
            if item.kind == found and not any(mark in item.text for mark in TAKEN_OUT)
            if found == "report" or is_worth_a_line(item)
            if not (found == "fact" and item.role == "user" and tells_of_self(item.text))
        ]

    return extract


DECISIONS = Extractor("decisions", VERSION + 3, _of("decision", "decision"), ("decision",))
EXTRACTORS = (
    DECISIONS,
    Extractor("rules", VERSION, _of("rule", "rule")),
    Extractor("facts", VERSION + 3, _of("fact", "fact"), ("fact",)),
    Extractor("open items", VERSION, _of("open", "open")),
    Extractor("reports", VERSION, _of("report", "report")),
)
