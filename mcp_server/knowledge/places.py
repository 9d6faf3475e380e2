"""Where a line goes: the file and section in which a person would look for it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from mcp_server.project import slugify
from mcp_server.text.derived_lines import Line
from mcp_server.text.destinations import GENERAL_PAGE as GENERAL_PAGE
from mcp_server.text.destinations import Place
from mcp_server.text.prose import clipped
from mcp_server.text.yaml_line import yaml_line

USER_FILE = "knowledge/people/user.md"
"""Of conversations in which nobody has a name, the one who asks."""

PEOPLE_SECTIONS = {
    "about": "About",
    "preference": "Likes and dislikes",
    "plan": "Plans",
    "event": "What happened",
    "decision": "Decisions",
    "lesson": "Lessons",
}
DECISIONS, REPLACED = "Key Decisions", "Replaced decisions"
OPEN, CLOSED = "Open items", "Closed items"
RULES, FACTS, OLD_FACTS = "Rules", "Facts", "Replaced facts"
"""Sections of a project's page. The section that an item is in is its state."""

ENDED = frozenset((REPLACED, OLD_FACTS, CLOSED))
"""Sections of items that are replaced or closed."""

PROJECT_FILES = {
    "decision": ("context", DECISIONS),
    "rule": ("context", RULES),
    "open": ("context", OPEN),
    "lesson": ("notes", "Lessons Learned"),
    "fact": ("context", FACTS),
    "plan": ("progress", "Next"),
    "event": ("progress", "Done"),
}
GENERAL_SECTIONS = {"decision": DECISIONS, "rule": RULES, "lesson": "Lessons", "fact": FACTS, "open": OPEN}
LONGEST_HEADING = 60


def place_of(line: Line, title: str = "") -> Place:
    """Returns the file and section of a line. A journal groups lines by person, project or `title`, which is
    the conversation's."""
    if line.file == "journal":
        head = f"---\ntype: journal\ndate: {line.said}\nsessions: []\n---\n\n## {line.said}\n"
        section = line.person or line.project or heading(title) or "General"
        return Place(f"knowledge/journal/{line.said}.md", section, head, level=3)
    if line.kind == "procedure":
        name = heading(line.file) or "Procedure"
        return Place(
            f"knowledge/procedures/{slugify(name)[:60].strip('-') or 'procedure'}.md",
            "Steps",
            f"---\ntype: procedure\nupdated:\n---\n\n# {name}\n",
        )
    if line.person is None and line.project is not None and line.kind in PROJECT_FILES:
        name, section = PROJECT_FILES[line.kind]
        head = f"---\ntype: project_{name}\nproject: {yaml_line(line.project)}\nupdated:\n---\n\n# {line.project}\n"
        return Place(f"knowledge/projects/{line.project}/{name}.md", section, head, dated=True)
    if line.person is None and line.kind in GENERAL_SECTIONS:
        head = "---\ntype: reference\nupdated:\n---\n\n# Outside any project\n"
        return Place(GENERAL_PAGE, GENERAL_SECTIONS[line.kind], head, dated=True)
    return _person(line)


def _person(line: Line) -> Place:
    section = PEOPLE_SECTIONS.get(line.kind, "Notes")
    if line.person is None:
        return Place(USER_FILE, section, "---\ntype: person\nname: The user\nupdated:\n---\n\n# The user\n", dated=True)
    name = " ".join(line.person.split())
    slug = slugify(name) or "somebody"
    slug = f"{slug}-person" if slug == "user" else slug
    head = f"---\ntype: person\nname: {yaml_line(name)}\nupdated:\n---\n\n# {heading(name)}\n"
    return Place(f"knowledge/people/{slug}.md", section, head, dated=True)


def heading(text: str) -> str:
    """A text as a heading: one line of plain words, which reads back as it was written."""
    return clipped(re.sub(r"[^\w\s,.'()&+-]+", " ", text), LONGEST_HEADING).rstrip("…").strip(" ,.'(&+-")


def link_to(line: Line) -> str:
    """Returns a wiki link to the page of a line: `[[atlas/context]]`, `[[general]]`."""
    parts = place_of(replace(line, file=line.file if line.kind == "procedure" else "")).path.split("/")
    name = parts[-1].removesuffix(".md")
    return f"[[{parts[-2]}/{name}]]" if len(parts) == 4 else f"[[{name}]]"


def by_file(lines: Iterable[tuple[Line, str]]) -> dict[str, list[tuple[Place, Line]]]:
    """Lines, each with its conversation's title, by the file that they go to, in their order."""
    files: dict[str, list[tuple[Place, Line]]] = {}
    for line, title in lines:
        place = place_of(line, title)
        files.setdefault(place.path, []).append((place, line))
    return files


def is_page(path: str) -> bool:
    """Whether a file is a page that holds items: a project's context or the page of what belongs to no project."""
    return path == GENERAL_PAGE or (path.startswith("knowledge/projects/") and path.endswith("/context.md"))
