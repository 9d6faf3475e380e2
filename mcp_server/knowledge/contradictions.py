"""Contradictions: current lines of a page that give one thing two values, where time does not say which one holds.

Two lines contradict each other if they share most of their content words, and either both give a number of the same
unit and no such number is the same, or only one of them is negated. Lines of several sentences are not compared: they
share words by chance. On the pages of eleven conversations no pair is named, and none is one.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

from mcp_server.knowledge.duplicates import NEGATIONS
from mcp_server.knowledge.pages import ITEMS
from mcp_server.memory import Memory
from mcp_server.text import entries
from mcp_server.text.derived_lines import shortened
from mcp_server.text.destinations import GENERAL_PAGE, OPEN, is_page
from mcp_server.text.entries import Entry
from mcp_server.text.markdown import split_front_matter
from mcp_server.understanding.features import content_stems, word_list

LEAST_SHARED, LEAST_SHARE = 2, 0.6
"""Content words without numbers that both lines have, in number and as a share of the words of both."""

LONGEST, QUOTED = 200, 100
"""Characters of a line that is compared, and of its quotation."""

LATEST = "9999"
"""The day of a line without one: somebody wrote it by hand, after reading the page."""

_QUANTITY = re.compile(r"(\d+(?:[.,:]\d+)*)\s*(%|€|\$|[^\W\d_]+)")
_SENTENCE_END = re.compile(r"[.!?]\s+\S")


@dataclass(frozen=True, slots=True)
class _Statement:
    entry: Entry
    stems: frozenset[str]
    numbers: frozenset[tuple[str, str]]
    negated: bool

    @classmethod
    def of(cls, one: Entry) -> _Statement:
        words = word_list(one.said)
        stems = frozenset(stem for stem in content_stems(words) if not any(map(str.isdigit, stem)))
        numbers = frozenset((unit.casefold(), number) for number, unit in _QUANTITY.findall(one.said))
        return cls(one, stems - NEGATIONS, numbers, not NEGATIONS.isdisjoint(words))


def contradictions(body: str) -> list[tuple[Entry, Entry]]:
    """Returns the pairs of current rules, decisions and facts of a page that contradict each other, in order."""
    current = (one for one in entries.entries(body) if one.section in ITEMS and one.section != OPEN)
    short = [_Statement.of(one) for one in current if len(one.said) <= LONGEST and not _SENTENCE_END.search(one.said)]
    return [(one.entry, other.entry) for one, other in combinations(short, 2) if _contradict(one, other)]


def _contradict(one: _Statement, other: _Statement) -> bool:
    shared = one.stems & other.stems
    if len(shared) < LEAST_SHARED or len(shared) < LEAST_SHARE * len(one.stems | other.stems):
        return False
    units = {unit for unit, _ in one.numbers} & {unit for unit, _ in other.numbers}
    return one.negated != other.negated or bool(units and not one.numbers & other.numbers)


def sentences(memory: Memory) -> list[str]:
    """Returns a sentence for each contradiction on the pages, with both sources and a command that settles it."""
    stats = [*memory.files.walk("knowledge/projects/"), *memory.files.walk("knowledge/reference/")]
    return [sentence for stat in stats if is_page(stat.path) for sentence in _of_page(memory, stat.path)]


def _of_page(memory: Memory, path: str) -> Iterator[str]:
    text = memory.files.readable(path)
    if text is None:
        return
    start = split_front_matter(text)
    project = "global" if path == GENERAL_PAGE else path.split("/")[2]
    for pair in contradictions(start.body):
        one, other = sorted(pair, key=lambda entry: (entry.date or LATEST, entry.start))
        said = [f"{shortened(entry.said, QUOTED)!r} ({_source(entry)})" for entry in (one, other)]
        line = start.body_line - 1 + one.start
        command = f"remember {shlex.quote(other.said)} --kind {ITEMS[other.section]} --project {project}"
        yield (
            f"{path}: two lines contradict each other: {said[0]} and {said[1]}; to keep the second one: "
            f"context-manager {command} --supersedes {path}:{line}, or delete the wrong line"
        )


def _source(entry: Entry) -> str:
    return f"{entry.date} {entry.sources[0]}".lstrip() if entry.sources else f"{entry.date} written by hand".lstrip()
