"""The derived lines of MEMORY.md: who the user is, rules that hold everywhere, where each project is, lessons.

They are computed from the other pages and replaced as a whole whenever these change, so nothing has to be chosen or
condensed by the week. A line carries the source of the line that it repeats. Every other line of MEMORY.md is a
person's or an agent's own and is never touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mcp_server.knowledge.duplicates import is_duplicate
from mcp_server.knowledge.places import DECISIONS, GENERAL_PAGE, GENERAL_SECTIONS, OPEN, RULES, USER_FILE
from mcp_server.knowledge.regenerating import stripped, without_empty
from mcp_server.text import entries
from mcp_server.text.derived_lines import Source, entry, is_derived, shortened, sources_of, without_sources

ABOUT_USER, ACTIVE, LESSONS = "About the user", "Active Context", "Lessons Learned"

MOST: Mapping[str, int] = {ABOUT_USER: 12, RULES: 36, ACTIVE: 36, LESSONS: 36}
"""Derived lines of a section, 120 in all."""

LONGEST = 140
"""Characters of what is said of a project."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a project is: its newest decision or open item, with its day and source."""

    slug: str
    day: str
    text: str
    source: Source

    @property
    def label(self) -> str:
        return f"**{self.slug}**"

    @property
    def said(self) -> str:
        return f"{self.label} — {self.text}"


def standing_of(slug: str, bodies: Iterable[str]) -> Standing | None:
    """Returns where a project is by its pages; None if they hold no derived decision or open item."""
    found = [
        (one.date, sources_of(one.text)[0].path, sources_of(one.text)[0].turn, one)
        for body in bodies
        for one in _derived(body)
        if one.section in (DECISIONS, OPEN)
    ]
    if not found:
        return None
    day, path, turn, newest = max(found, key=lambda one: one[:3])
    verb = "decided" if newest.section == DECISIONS else "open"
    return Standing(slug, day, f"{verb}: {shortened(_said(newest), LONGEST)}", Source(path, turn))


def derived_lines(pages: Mapping[str, str]) -> dict[str, list[str]]:
    """Returns the derived lines of MEMORY.md by section. `pages` are the bodies of knowledge pages by path."""
    found: dict[str, list[tuple[str, str]]] = {section: [] for section in MOST}
    projects: dict[str, list[str]] = {}
    for path, body in sorted(pages.items()):
        parts = path.split("/")
        slug = parts[2] if path.startswith("knowledge/projects/") and len(parts) == 4 else ""
        if slug:
            projects.setdefault(slug, []).append(body)
        for one in _derived(body):
            section = _section(path, slug, one.section)
            if section:
                text = f"{slug}: {_said(one)}" if slug else _said(one)
                found[section].append((one.date, entry(one.date, text, sources_of(one.text))))
    for slug, bodies in projects.items():
        if (standing := standing_of(slug, bodies)) is not None:
            found[ACTIVE].append((standing.day, entry(standing.day, standing.said, (standing.source,))))
    return {
        section: [text for _, text in sorted(lines, key=lambda line: line[0])[-MOST[section] :]]
        for section, lines in found.items()
    }


def _section(path: str, slug: str, section: str) -> str:
    """Returns the section of MEMORY.md that repeats the lines of a section of a page; "" if none does."""
    if path == USER_FILE and section in ("About", "Likes and dislikes"):
        return ABOUT_USER
    if path == GENERAL_PAGE and section == RULES:
        return RULES
    is_lesson = (path == GENERAL_PAGE and section == GENERAL_SECTIONS["lesson"]) or (slug and section == LESSONS)
    return LESSONS if is_lesson else ""


def renewed(body: str, lines: Mapping[str, Iterable[str]]) -> str:
    """Returns the body of MEMORY.md with these derived lines instead of those that it has. A line that says the same as
    a line of somebody's own is left out."""
    bare = stripped(body)
    own = [one.text for one in entries.entries(bare.body)]
    new = bare.body
    for section, some in lines.items():
        for line in some:
            if not any(is_duplicate(without_sources(line), one) for one in own):
                new = entries.appended(new, section, line)
    new = without_empty(new, bare.emptied)
    return new.rstrip("\n") + "\n" if bare.removed else new


def _derived(body: str) -> list[entries.Entry]:
    return [one for one in entries.entries(body) if one.start == one.end and is_derived(one.text)]


def _said(one: entries.Entry) -> str:
    text = without_sources(one.text).removeprefix("- ").strip()
    return text[len(one.date) :].lstrip(":— ") if one.date else text
