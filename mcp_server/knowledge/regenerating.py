"""Regenerating: a file without what extractors wrote, so that they can write it anew; and what two versions of a memory
have in common.

A person's or an agent's own lines are untouched: only bullets with a mark of provenance are taken out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from mcp_server.text import entries
from mcp_server.text.derived_lines import is_derived, without_sources
from mcp_server.text.markdown import sections


@dataclass(frozen=True, slots=True)
class Stripped:
    """A body without its derived bullets; `emptied` are the headings under which nothing is left."""

    body: str
    removed: int
    emptied: frozenset[str]


def stripped(body: str, kept: Collection[str] = ()) -> Stripped:
    """The body without the derived bullets, but for those that begin with one of `kept` (after their date)."""
    going = [entry for entry in entries.entries(body) if is_derived(entry.text) and not _begins(entry, kept)]
    gone = {number for entry in going for number in range(entry.start, entry.end + 1)}
    lines = [line for number, line in enumerate(body.split("\n"), start=1) if number not in gone]
    without = "\n".join(lines)
    headings = {entry.section for entry in going if entry.section}
    return Stripped(without, len(going), frozenset(headings & _empty(without)))


def without_empty(body: str, headings: Collection[str]) -> str:
    """The body without those of these headings that nothing stands under."""
    gone: set[int] = set()
    empty = _empty(body) & set(headings)
    for section in sections(body):
        if section.title in empty and _is_bare(section.text):
            gone |= set(range(section.start, section.end + 1))
    return "\n".join(line for number, line in enumerate(body.split("\n"), start=1) if number not in gone)


def holds_nothing(body: str) -> bool:
    """Whether only headings, and no text of anybody, are left of a file."""
    return all(_is_bare(section.text) for section in sections(body))


@dataclass(frozen=True, slots=True)
class FileDelta:
    """A file in two versions of a memory: derived lines that only one of them has, by what they say."""

    path: str
    only_first: int
    only_second: int


@dataclass(frozen=True, slots=True)
class Delta:
    """Two versions beside each other. `own_lost` are lines of a person or an agent that the second lacks; `own_since`
    counts those that it cannot have, because they were written since it was begun: a merge keeps them."""

    second_lines: int
    common: int
    files: tuple[FileDelta, ...]
    own_lost: tuple[str, ...]
    own_since: int = 0


def delta(first: Mapping[str, str], second: Mapping[str, str], begun: Mapping[str, str] | None = None) -> Delta:
    """Compares two versions, each as path → text below the front matter. `begun` is the first as it was when the second
    was made of it; without it, it was as it is now."""
    files: list[FileDelta] = []
    second_lines = common_lines = 0
    lost: list[str] = []
    since = 0
    for path in sorted({*first, *second}):
        (ours, own), (theirs, other) = _said(first.get(path, "")), _said(second.get(path, ""))
        common = (ours & theirs).total()
        second_lines, common_lines = second_lines + theirs.total(), common_lines + common
        if ours != theirs:
            files.append(FileDelta(path, ours.total() - common, theirs.total() - common))
        missing = own - other
        carried = missing if begun is None else missing & _said(begun.get(path, ""))[1]
        lost += [f"{path}: {line}" for line in carried.elements()]
        since += (missing - carried).total()
    return Delta(second_lines, common_lines, tuple(files), tuple(lost), since)


def _said(body: str) -> tuple[Counter[str], Counter[str]]:
    """What derived lines say, and the lines that are somebody's own, headings left out."""
    derived: Counter[str] = Counter()
    own: Counter[str] = Counter()
    for line in body.split("\n"):
        if is_derived(line):
            derived[without_sources(line).strip()] += 1
        elif line.strip() and not line.startswith("#"):
            own[line.strip()] += 1
    return derived, own


def _begins(entry: entries.Entry, kept: Collection[str]) -> bool:
    text = entry.text[2:].lstrip()
    text = text[len(entry.date) :].lstrip(" :—–-") if entry.date else text
    return text.startswith(tuple(kept)) if kept else False


def _empty(body: str) -> set[str]:
    """Headings with nothing under them, neither text nor further headings."""
    found = sections(body)
    return {
        section.title
        for number, section in enumerate(found)
        if section.title
        and _is_bare(section.text)
        and not any(section.title in below.trail for below in found[number + 1 :])
    }


def _is_bare(text: str) -> bool:
    return not any(_has_text(text.split("\n")))


def _has_text(lines: Iterable[str]) -> Iterable[bool]:
    return (bool(line.strip()) and not line.lstrip().startswith("#") for line in lines)
