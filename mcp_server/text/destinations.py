"""Where a thing that should last belongs: each kind has its file and its section; some files are the user's own."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from mcp_server.errors import Invalid
from mcp_server.project import slugify
from mcp_server.text.yaml_line import yaml_line

Kind = Literal["fact", "decision", "rule", "lesson", "person", "procedure", "project", "journal", "identity", "topic"]

MEMORY = "knowledge/memory/MEMORY.md"
ARCHIVE = "archive/memory/MEMORY.md"
"""Where the oldest entries of MEMORY.md go when it grows over its cap."""

GENERAL_PAGE = "knowledge/reference/general.md"
"""The page of decisions, rules and open items that belong to no project."""

OWN_HAND = ("knowledge/identity/", "topics/")
"""Who the user is, and what an agent is told to do: such a change waits for the user's word."""

DEFAULTS = {
    "fact": "Facts",
    "decision": "Key Decisions",
    "rule": "Rules",
    "lesson": "Lessons Learned",
    "person": "Notes",
    "procedure": "Steps",
    "project": "Notes",
    "journal": "General",
    "identity": "About me",
    "topic": "Notes",
}
"""The section of each kind, in whatever file it lands."""

_NAME = re.compile(r"^((?:[^\W\d_a-z]|[A-ZČĆŠŽĐ])[\w'’.-]*(?:\s+(?:[A-ZČĆŠŽĐ]|[^\W\d_a-z])[\w'’.-]*){0,3})")


def is_for_own_hand(path: str) -> bool:
    """Whether a file is the user's own. In whatever letter case: on many disks `knowledge/Identity/` is the same."""
    return path.casefold().startswith(OWN_HAND)


@dataclass(frozen=True, slots=True)
class Place:
    """A file, a section, what the file begins with if it must be made, and whether its entries carry their date."""

    path: str
    section: str
    template: str
    dated: bool = False
    level: int = 2


def place_for(kind: str, content: str, project: str | None, today: str, section: str | None) -> Place:
    """Returns the default place of `kind`. Facts and lessons are for everybody; a decision or rule belongs to its
    project, or to the general page without one.

    Raises:
        Invalid: if no file follows from it: a person without a name, project notes without a project.
    """
    within = section or DEFAULTS.get(kind, "")
    match kind:
        case "fact" | "lesson":
            return Place(MEMORY, within, _front("memory") + "# Core Memory\n", dated=True)
        case "decision" | "rule":
            if project is None:
                return Place(GENERAL_PAGE, within, _front("reference") + "# Outside any project\n", dated=True)
            return Place(
                f"knowledge/projects/{project}/context.md",
                within,
                _project_head("project_context", project),
                dated=True,
            )
        case "project":
            if project is None:
                raise Invalid(
                    "kind 'project' needs a project: work in its folder, pass project='NAME', or use kind='fact'"
                )
            return Place(
                f"knowledge/projects/{project}/notes.md", within, _project_head("project_notes", project), dated=True
            )
        case "journal":
            head = f"---\ntype: journal\ndate: {today}\nsessions: []\n---\n\n## {today}\n"
            return Place(f"knowledge/journal/{today}.md", section or project or DEFAULTS["journal"], head, level=3)
        case "person":
            name = _person(content)
            head = f"---\ntype: person\nname: {yaml_line(name)}\nupdated: {today}\n---\n\n# {name}\n"
            return Place(f"knowledge/people/{slugify(name)}.md", within, head, dated=True)
        case "procedure":
            title = _title(content)
            return Place(f"knowledge/procedures/{slugify(title)}.md", within, f"{_front('procedure')}# {title}\n")
        case "identity":
            return Place("knowledge/identity/USER.md", within, "---\ntype: identity\nrole: user\n---\n\n# User\n")
        case _:
            title = _title(content)
            return Place(f"topics/{slugify(title)}.md", within, f"---\ntype: topic\n---\n\n# {title}\n")


def _front(kind: str) -> str:
    return f"---\ntype: {kind}\nupdated:\n---\n\n"


def _project_head(kind: str, project: str) -> str:
    return f"---\ntype: {kind}\nproject: {yaml_line(project)}\nupdated:\n---\n\n# {project}\n"


def _person(content: str) -> str:
    """The name that the sentence begins with: the words before a colon, or its leading capitalised words."""
    first = content.strip().splitlines()[0]
    before, colon, _ = first.partition(":")
    match = _NAME.match(first)
    name = before.strip() if colon and len(before.split()) <= 4 else match[1] if match else ""
    name = name.removesuffix("'s").removesuffix("’s").strip(" .-")
    if not slugify(name):
        raise Invalid(
            "whom is it about? begin with the name ('Ana Kovač: likes tea') or pass path='knowledge/people/NAME.md'"
        )
    return name


def _title(content: str) -> str:
    """The words before a colon in the first line, or its first six words."""
    first = re.sub(r"^[#*\-\s]+", "", content.strip().splitlines()[0])
    before, colon, _ = first.partition(":")
    words = (before if colon and len(before.split()) <= 10 else first).split()
    title = " ".join(words[:10] if colon else words[:6]).strip(" .,:;")
    if not slugify(title):
        raise Invalid("it needs a title in letters or digits; begin with it ('Release: first …') or pass a path")
    return title
