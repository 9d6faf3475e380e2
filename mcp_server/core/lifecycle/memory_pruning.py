"""Pruning MEMORY.md, in four steps and no further than it must                                    (S4 §8.5)

    1  what a more specific file says already (a project's, a person's)
    2  what another entry says already
    3  what is stale, and what a model says matters least, where there is one
    4  the oldest

Everything that goes, goes to the archive. Steps 1 to 3 take derived lines only; what a person or an agent wrote goes in
step 4 alone, by its date.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from mcp_server.core.checkpoints.duplicates import is_duplicate, keywords
from mcp_server.core.lifecycle.condense import Left, stale
from mcp_server.core.lifecycle.lines import sources_of, without_sources
from mcp_server.core.text import entries


def leaving(
    body: str,
    lines_to_free: int,
    specific: Sequence[str],
    today: date,
    spared: frozenset[int] = frozenset(),
    least: Sequence[str] = (),
) -> list[Left]:
    """The entries that leave, in the order of the steps, until `lines_to_free` lines are free or nothing may go.

    `specific` are the lines of more specific files, `least` the texts of derived entries that a model lets go, the
    least missed first; entries that begin in a `spared` line stay.
    """
    found: dict[int, Left] = {}

    def enough() -> bool:
        return sum(left.entry.end - left.entry.start + 1 for left in found.values()) >= lines_to_free

    listed = [one for one in entries.entries(body) if one.start not in spared]
    derived = sorted((one for one in listed if sources_of(one.text)), key=lambda one: (one.date, one.start))
    known = _ByWord(specific)
    steps: list[Left] = []
    steps += [Left(one, "a more specific file says it") for one in derived if known.has(one.text)] if derived else []
    steps += [Left(one, "another entry says it") for one in derived if _repeats(one, listed)]
    steps += [left for left in stale(body, today) if left.entry.start not in spared]
    chosen = {text: place for place, text in enumerate(least)}
    let_go = sorted((one for one in derived if one.text in chosen), key=lambda one: chosen[one.text])
    steps += [Left(one, "of what is left, a model misses it least") for one in let_go]
    for left in steps:
        if enough():
            break
        found.setdefault(left.entry.start, left)
    for one in sorted((one for one in listed if one.date), key=lambda one: (one.date, one.start)):
        if enough():
            break
        found.setdefault(one.start, Left(one, ""))
    return list(found.values())


def _repeats(one: entries.Entry, listed: Sequence[entries.Entry]) -> bool:
    """Whether an entry that is newer, or written by hand, says the same."""
    text = _plain(one)
    return any(
        other.start != one.start
        and (not sources_of(other.text) or (other.date, other.start) > (one.date, one.start))
        and is_duplicate(text, _plain(other))
        for other in listed
    )


class _ByWord:
    """Lines by their words: of thousands, few have one in common with an entry."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines: dict[str, list[str]] = {}
        for line in lines:
            for word in keywords(line):
                self._lines.setdefault(word, []).append(line)

    def has(self, entry: str) -> bool:
        text = without_sources(entry)
        near = {line for word in keywords(text) for line in self._lines.get(word, ())}
        return any(is_duplicate(text, line) for line in near)


def _plain(one: entries.Entry) -> str:
    return entries.normalised(without_sources(one.text))
