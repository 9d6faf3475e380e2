"""Links between pages: which people, projects and procedures a derived line names, and which pages link to a page."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mcp_server.knowledge.summaries import with_backlinks
from mcp_server.text import entries
from mcp_server.text.derived_lines import apart, entry
from mcp_server.text.destinations import USER_FILE
from mcp_server.text.markdown import linked, links, sections

PEOPLE, PROCEDURES, PROJECTS = "knowledge/people/", "knowledge/procedures/", "knowledge/projects/"

SHORTEST = 3
"""Characters of a name that is looked for in lines."""

MOST = 4
"""Links of one line."""


@dataclass(frozen=True, slots=True)
class Named:
    """A page that lines can name: its path, the link to it, and a pattern of its names."""

    path: str
    link: str
    pattern: re.Pattern[str]


def named_pages(bodies: Mapping[str, str]) -> list[Named]:
    """Returns the pages of people, procedures and projects. A person is also named by the first name if no other person
    has the same."""
    people = {path: _title(body) for path, body in bodies.items() if path.startswith(PEOPLE) and path != USER_FILE}
    first = Counter(name.split()[0] for name in people.values() if name)
    found: list[Named] = []
    for path, body in sorted(bodies.items()):
        stem = path.rsplit("/", 1)[-1].removesuffix(".md")
        if stem.startswith("_"):
            continue
        if people.get(path):
            name = people[path]
            names = {name, name.split()[0]} if first[name.split()[0]] == 1 else {name}
            found.append(Named(path, f"[[{stem}]]", _pattern(names)))
        elif path.startswith(PROCEDURES) and (title := _title(body)):
            found.append(Named(path, f"[[{stem}]]", _pattern({title}, re.IGNORECASE)))
        elif path.startswith(PROJECTS) and path.endswith("/context.md"):
            slug = path.split("/")[2]
            found.append(Named(path, f"[[{slug}/context|{slug}]]", _pattern({slug}, re.IGNORECASE)))
    return found


def relinked(bodies: Mapping[str, str]) -> dict[str, str]:
    """Returns the bodies that change if each derived line links the pages that it names, and each page lists the pages
    that link to it. `bodies` are those of all pages by path."""
    named = named_pages(bodies)
    after = {path: with_links(path, body, named) for path, body in bodies.items()}
    link_of = {one.path: one.link for one in named}
    sources: dict[str, list[str]] = {path: [] for path in link_of}
    for path, body in sorted(after.items()):
        if path not in link_of:
            continue
        said = with_backlinks(body, ())
        for target in linked((link.name for link in links(said)), bodies):
            if target != path and target in sources:
                sources[target].append(link_of[path])
    after |= {path: with_backlinks(after[path], found) for path, found in sources.items()}
    return {path: body for path, body in after.items() if body != bodies[path]}


def with_links(path: str, body: str, named: Sequence[Named]) -> str:
    """Returns the body of a page in which each derived line ends with links to the other pages that it names."""
    rows = body.split("\n")
    for one in entries.derived(body):
        said = one.said
        places = ((place, page) for page in named if page.path != path for place in _places(page, said))
        names = list(dict.fromkeys(page.link for _, page in sorted(places, key=lambda found: found[0])))[:MOST]
        wanted = " ".join(name for name in names if name not in said)
        if wanted != apart(one.text)[1]:
            rows[one.start - 1] = entry(one.date, said, one.sources, wanted)
    return "\n".join(rows)


def _places(page: Named, said: str) -> Iterable[int]:
    found = page.pattern.search(said)
    return (found.start(),) if found else ()


def _pattern(names: Iterable[str], flags: int = 0) -> re.Pattern[str]:
    long = sorted((name for name in names if len(name) >= SHORTEST), key=len, reverse=True)
    return re.compile(rf"(?<![\w/-])(?:{'|'.join(map(re.escape, long)) or '(?!)'})(?![\w/-])", flags)


def _title(body: str) -> str:
    return next((one.title.strip() for one in sections(body, 1) if one.level == 1), "")
