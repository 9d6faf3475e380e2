"""Lines that repeat other pages: those of MEMORY.md, of the indexes of people and projects, and of a day's journal.

They are computed from the other pages and replaced as a whole when these change. A line has the source of the line that
it repeats. Lines that a person or an agent wrote are never changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mcp_server.knowledge.duplicates import is_duplicate
from mcp_server.knowledge.extractors import PREFIXES
from mcp_server.knowledge.pages import stripped, without_empty
from mcp_server.text import entries
from mcp_server.text.derived_lines import Source, entry, shortened, without_sources
from mcp_server.text.destinations import DECISIONS, GENERAL_PAGE, GENERAL_SECTIONS, OPEN, RULES, USER_FILE
from mcp_server.text.entries import Entry
from mcp_server.text.markdown import sections
from mcp_server.text.words import content_words

ABOUT_USER, ACTIVE, LESSONS = "About the user", "Active Context", "Lessons Learned"

MOST: Mapping[str, int] = {ABOUT_USER: 12, RULES: 36, ACTIVE: 36, LESSONS: 36}
"""Derived lines of a section, 120 in all."""

LONGEST = 140
"""Characters of what a line says of a project or person."""


@dataclass(frozen=True, slots=True)
class Summary:
    """A line of a summary: it repeats a line about a project or person, and has its day and source."""

    day: str
    text: str
    source: Source


def of_project(bodies: Iterable[str]) -> Summary | None:
    """Returns a project's newest decision or open item; None if its pages have no derived one."""
    items = [one for body in bodies for one in entries.derived(body) if one.section in (DECISIONS, OPEN)]
    newest = max(items, key=lambda one: (one.date, one.sources[0].path, one.sources[0].turn), default=None)
    if newest is None:
        return None
    verb = "decided" if newest.section == DECISIONS else "open"
    return Summary(newest.date, f"{verb}: {shortened(newest.said, LONGEST)}", newest.sources[0])


def derived_lines(pages: Mapping[str, str]) -> dict[str, list[str]]:
    """Returns the derived lines of MEMORY.md by section. `pages` are the bodies of knowledge pages by path."""
    found: dict[str, list[tuple[str, str]]] = {section: [] for section in MOST}
    projects: dict[str, list[str]] = {}
    for path, body in sorted(pages.items()):
        parts = path.split("/")
        slug = parts[2] if path.startswith("knowledge/projects/") and len(parts) == 4 else ""
        if slug:
            projects.setdefault(slug, []).append(body)
        for one in entries.derived(body):
            section = _section(path, slug, one.section)
            if section:
                text = f"{slug}: {one.said}" if slug else one.said
                found[section].append((one.date, entry(one.date, text, one.sources)))
    for slug, bodies in projects.items():
        if (newest := of_project(bodies)) is not None:
            text = f"**{slug}** — {newest.text}"
            found[ACTIVE].append((newest.day, entry(newest.day, text, (newest.source,))))
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
    """Returns the body of MEMORY.md with these derived lines instead of its own. A line that says the same as a
    hand-written line is left out."""
    bare = stripped(body)
    own = [one.text for one in entries.entries(bare.body)]
    new = bare.body
    for section, some in lines.items():
        for line in some:
            if not any(is_duplicate(without_sources(line), one) for one in own):
                new = entries.appended(new, section, line)
    new = without_empty(new, bare.emptied)
    return new.rstrip("\n") + "\n" if bare.removed else new


PEOPLE_INDEX, PROJECT_INDEX = "knowledge/people/_index.md", "knowledge/projects/_active.md"

SECTIONS = ("About", "What happened", "Likes and dislikes", "Plans", "Decisions")
"""Sections of a person's page that say who somebody is, the best first."""


def of_person(body: str) -> Summary | None:
    """Returns the first derived line in the best section of a person's page (SECTIONS); None if it has none."""
    found = [one for one in entries.derived(body) if one.section in SECTIONS]
    if not found:
        return None
    best = min(found, key=lambda one: (SECTIONS.index(one.section), one.start))
    name = next((section.title for section in sections(body) if section.level == 1), "")
    return Summary(best.date, shortened(best.said.removeprefix(f"{name}: "), LONGEST), best.sources[0])


def index_with(body: str, lines: Mapping[str, Summary]) -> str:
    """Returns the body of an index with these lines instead of its derived ones, by the name that each begins with
    (`[[ana]]`, `**atlas**`). A name that a hand-written line has gets no second line."""
    own = entries.without(body.rstrip("\n"), entries.derived(body)).rstrip()
    new = [f"- {name} — {line.text} {line.source.mark}" for name, line in sorted(lines.items()) if name not in own]
    gap = [""] if new and own and not own.rpartition("\n")[2].startswith("- ") else []
    return "\n".join([*([own] if own else []), *gap, *new]) + "\n"


JOURNAL_LINES = 10
"""Derived lines of a day."""

LONGEST_FILE = 300
"""Derived lines of a person's or project's page. Beyond that, what happened longest ago goes to archive/."""
AHEAD, HAPPENED = ("Plans", "Next"), ("What happened", "Done")


def beyond_the_day(body: str, most: int = JOURNAL_LINES) -> list[Entry]:
    """Returns the derived lines that leave a journal so that `most` stay: first those that state nothing settled, then
    those with the fewest content words."""
    prefixes = tuple(f"- {prefix}" for prefix in PREFIXES.values())

    def worth(one: Entry) -> tuple[bool, int, str]:
        return one.text.startswith(prefixes), len(content_words(one.text)), one.text

    return sorted(entries.derived(body), key=worth, reverse=True)[most:]


def outdated(body: str, before: str) -> list[Entry]:
    """Returns the derived lines that leave a person's or project's page: plans of days before `before` (YYYY-MM-DD),
    and of more than LONGEST_FILE lines what happened longest ago."""
    dated = [one for one in entries.derived(body) if one.date]
    plans = [one for one in dated if one.section in AHEAD and one.date < before]
    happened = sorted((one for one in dated if one.section in HAPPENED), key=lambda one: (one.date, one.start))
    return plans + happened[: max(0, len(dated) - len(plans) - LONGEST_FILE)]
