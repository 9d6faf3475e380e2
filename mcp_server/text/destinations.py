"""Decides which file and section a text belongs to: facts of each kind, lines of a conversation, and archived files."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from mcp_server.errors import Invalid
from mcp_server.model import slugify
from mcp_server.text.entries import Line
from mcp_server.text.markdown import yaml_line
from mcp_server.text.prose import clipped

Kind = Literal[
    "fact", "decision", "rule", "open", "lesson", "person", "procedure", "project", "journal", "identity", "topic"
]

MEMORY = "knowledge/memory/MEMORY.md"
ARCHIVE = "archive/memory/MEMORY.md"
"""Gets the oldest entries of MEMORY.md when it exceeds its cap."""

GENERAL_PAGE = "knowledge/reference/general.md"
"""The page of decisions, rules and open items that belong to no project."""

USER_FILE = "knowledge/people/user.md"
"""The page of the user, who has no name in conversations with an agent."""

OWN = "~/"
"""Begins the paths of a user's own memory that is used together with a shared one."""

OWN_HAND = ("knowledge/identity/", "topics/")
"""Folders of the user's identity and of instructions for agents: changes there wait for the user's approval."""

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
RULES, OLD_RULES = "Rules", "Replaced rules"
FACTS, OLD_FACTS = "Facts", "Replaced facts"
"""Sections of a project's page. The section of an item is its state."""

REMOVED = "Removed"
"""Section of a page's archive with the lines that the user removed from the page."""

CORRECTED = "Corrected"
"""Section of a page's archive with the lines, as they were recognized, that the user moved or reworded on the page."""

ENDED = frozenset((REPLACED, OLD_RULES, OLD_FACTS, CLOSED, REMOVED, CORRECTED))
"""Sections of replaced, closed, removed and corrected items: they are no longer valid and are not pushed."""

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
DEFAULTS = {
    "fact": FACTS,
    "decision": DECISIONS,
    "rule": RULES,
    "open": OPEN,
    "lesson": "Lessons Learned",
    "person": "Notes",
    "procedure": "Steps",
    "project": "Notes",
    "journal": "General",
    "identity": "About me",
    "topic": "Notes",
}
"""The section for each kind of fact."""

LONGEST_HEADING = 60
_NAME = re.compile(r"^((?:[^\W\d_a-z]|[A-ZČĆŠŽĐ])[\w'’.-]*(?:\s+(?:[A-ZČĆŠŽĐ]|[^\W\d_a-z])[\w'’.-]*){0,3})")


class NeedsProject(Invalid):
    """Raised for project notes if no project is known. Each client adds to the message how its user can name one."""


@dataclass(frozen=True, slots=True)
class Place:
    """A section of a file. `template` is the beginning of the file if it does not exist yet; `dated` entries begin with
    their date."""

    path: str
    section: str
    template: str
    dated: bool = False


def is_for_own_hand(path: str) -> bool:
    """Returns whether changes of a file need the user's approval. Ignores case, as many file systems do."""
    return path.casefold().startswith(OWN_HAND)


JOURNALS, PROJECTS = "knowledge/journal/", "knowledge/projects/"
PEOPLE_INDEX, PROJECT_INDEX = "knowledge/people/_index.md", "knowledge/projects/_active.md"


def is_page(path: str) -> bool:
    """Returns whether a file is a page of items: a project's context, or the general page."""
    return path == GENERAL_PAGE or (path.startswith(PROJECTS) and path.endswith("/context.md"))


def archived_path(path: str) -> str:
    """Returns the path of a knowledge file in the archive: knowledge/people/ana.md becomes archive/people/ana.md."""
    return "archive/" + path.removeprefix("knowledge/")


def _head(title: str, kind: str, *fields: str) -> str:
    """Returns the beginning of a new file: front matter of this type with a tag for it, and a heading."""
    tags = f"tags: [{kind.partition('_')[0]}]"
    return "\n".join(("---", f"type: {kind}", tags, *fields, "updated:", "---", "", f"# {title}", ""))


def _of_project(project: str, name: str, section: str) -> Place:
    head = _head(project, f"project_{name}", f"project: {yaml_line(project)}")
    return Place(f"knowledge/projects/{project}/{name}.md", section, head, dated=True)


def _general(section: str) -> Place:
    return Place(GENERAL_PAGE, section, _head("Outside any project", "reference"), dated=True)


def _journal(day: str, section: str) -> Place:
    head = f"---\ntype: journal\ntags: [journal]\ndate: {day}\nsessions: []\n---\n\n# {day}\n"
    return Place(f"{JOURNALS}{day}.md", section, head)


def _person(slug: str, name: str, title: str, section: str) -> Place:
    return Place(f"knowledge/people/{slug}.md", section, _head(title, "person", f"name: {yaml_line(name)}"), dated=True)


def _procedure(slug: str, title: str, section: str) -> Place:
    return Place(f"knowledge/procedures/{slug}.md", section, _head(title, "procedure"))


# ---------------------------------------------------------------- facts that a person or agent asks to keep


def place_for(kind: str, content: str, project: str | None, today: str, section: str | None) -> Place:
    """Returns the default place of a fact. A project's facts, decisions, rules and open items belong on its page, its
    lessons in its notes. Without a project, facts and lessons belong in MEMORY.md, and decisions, rules and open items
    on the general page.

    Raises:
        Invalid: the file is not determined: a person without a name, or project notes without a project.
    """
    within = section or DEFAULTS.get(kind, "")
    match kind:
        case "fact" | "lesson" | "decision" | "rule" | "open" if project is not None:
            return _of_project(project, PROJECT_FILES[kind][0], within)
        case "fact" | "lesson":
            return Place(MEMORY, within, _head("Core Memory", "memory"), dated=True)
        case "decision" | "rule" | "open":
            return _general(within)
        case "project":
            if project is None:
                raise NeedsProject(
                    "kind 'project' needs a project, and there is none here: "
                    "use kind 'open' for work that is left to do, or kind 'fact' for a state of things"
                )
            return _of_project(project, "notes", within)
        case "journal":
            return _journal(today, section or (link_to_project(project) if project else DEFAULTS["journal"]))
        case "person":
            name = _name_in(content)
            return _person(slugify(name), name, name, within)
        case "procedure":
            title = _title_of(content)
            return _procedure(slugify(title), title, within)
        case "identity":
            return Place("knowledge/identity/USER.md", within, "---\ntype: identity\nrole: user\n---\n\n# User\n")
        case _:
            title = _title_of(content)
            return Place(f"topics/{slugify(title)}.md", within, f"---\ntype: topic\n---\n\n# {title}\n")


def _name_in(content: str) -> str:
    """Returns the name at the beginning of a text: the words before a colon, or its leading capitalized words."""
    first = content.strip().splitlines()[0]
    before, colon, _ = first.partition(":")
    match = _NAME.match(first)
    name = before.strip() if colon and len(before.split()) <= 4 else match[1] if match else ""
    name = name.removesuffix("'s").removesuffix("’s").strip(" .-")
    if not slugify(name):
        raise Invalid(
            "it names no person: begin with the name ('Ana Kovač: likes tea') or pass path='knowledge/people/NAME.md'"
        )
    return name


def _title_of(content: str) -> str:
    """Returns the words before a colon in the first line, or its first six words."""
    first = re.sub(r"^[#*\-\s]+", "", content.strip().splitlines()[0])
    before, colon, _ = first.partition(":")
    words = (before if colon and len(before.split()) <= 10 else first).split()
    title = " ".join(words[:10] if colon else words[:6]).strip(" .,:;")
    if not slugify(title):
        raise Invalid(
            "the text needs a title with letters or digits: begin with it ('Release: first …') or pass a path"
        )
    return title


# ---------------------------------------------------------------- lines of conversations


def place_of(line: Line, title: str = "") -> Place:
    """Returns the place of a line. The journal groups lines by person, project or `title`, the conversation's title.
    The heading of a project links to its page."""
    if line.file == "journal":
        project = link_to_project(line.project) if line.project and not line.person else ""
        return _journal(line.said, line.person or project or heading(title) or "General")
    if line.kind == "procedure":
        name = heading(line.file) or "Procedure"
        return _procedure(slugify(name)[:60].strip("-") or "procedure", name, "Steps")
    if line.person is None and line.project is not None and line.kind in PROJECT_FILES:
        return _of_project(line.project, *PROJECT_FILES[line.kind])
    if line.person is None and line.kind in GENERAL_SECTIONS:
        return _general(GENERAL_SECTIONS[line.kind])
    section = PEOPLE_SECTIONS.get(line.kind, "Notes")
    if line.person is None:
        return _person("user", "The user", "The user", section)
    name = " ".join(line.person.split())
    slug = slugify(name) or "somebody"
    return _person(f"{slug}-person" if slug == "user" else slug, name, heading(name), section)


def heading(text: str) -> str:
    """Returns a text as a heading: one line of plain words, which parsing does not change."""
    return clipped(re.sub(r"[^\w\s,.'()&+-]+", " ", text), LONGEST_HEADING).rstrip("…").strip(" ,.'(&+-")


def link_to(line: Line) -> str:
    """Returns a wiki link to the page of a line: `[[atlas/context]]`, `[[general]]`."""
    parts = place_of(replace(line, file=line.file if line.kind == "procedure" else "")).path.split("/")
    name = parts[-1].removesuffix(".md")
    return f"[[{parts[-2]}/{name}]]" if len(parts) == 4 else f"[[{name}]]"


def link_to_project(slug: str) -> str:
    """Returns a wiki link to a project's page that shows the project's name."""
    return f"[[{slug}/context|{slug}]]"
