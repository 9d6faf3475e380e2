"""Decides which lines a context leaves out (repeated ones, those of other projects), and which linked pages it adds.

Extractors write a line into several files (a rule into its project's page and MEMORY.md, the beginning of a decision
into the journal), and lines of several projects into one file. A context shows such a line once, and no lines of other
projects. Lines that people wrote are never removed. With a line that answers a message come the first lines of the
people and procedures that it links.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import lru_cache

from mcp_server.context.sections import Filling, passage_text
from mcp_server.knowledge.pages import without_changed_note
from mcp_server.knowledge.summaries import PREFIXES
from mcp_server.model import Hit, Passage, SourceFile, Withheld
from mcp_server.text.destinations import CLOSED, ENDED, GENERAL_PAGE, PROJECT_INDEX, PROJECTS
from mcp_server.text.entries import is_derived, without_sources
from mcp_server.text.fencing import neutralise
from mcp_server.text.markdown import as_shown, link_targets, links, resolve, sections, split_front_matter
from mcp_server.text.passages import of_knowledge
from mcp_server.understanding import cues
from mcp_server.understanding.model import Model

LINKED_SHARE = 0.5
MOST_LINKED, MOST_LINES = 3, 3  # the first hits whose links are followed, and the lines of each linked page
LONGEST = 320  # characters of a linked line: a longer one is not expected to be worth its tokens
FOLLOWED = ("knowledge/people/", "knowledge/procedures/")
"""Folders of pages that are followed. Pages of other projects are not followed, because they are not about this one."""


def linked_hits(
    hits: Sequence[Hit],
    worthwhile: Collection[int],
    paths: Callable[[], Sequence[str]],
    page_of: Callable[[str], SourceFile],
) -> list[Hit]:
    """Returns hits for lines of the pages that the first worthwhile hits link to. `worthwhile` are their positions,
    `paths` lists the pages of FOLLOWED, `page_of` returns the page at a path."""
    first = [hits[place] for place in sorted(worthwhile) if "[[" in hits[place].passage.text][:MOST_LINKED]
    if not first:
        return []
    targets, found = link_targets(paths()), {(hit.passage.path, hit.passage.start): hit for hit in hits}
    new: dict[tuple[str, int], Hit] = {}
    for hit in first:
        for link in links(hit.passage.text):
            path = resolve(link.name, targets)
            if path is None:
                continue
            page = page_of(path)
            lines = [one for one in of_knowledge(path, page.text, page.first_line, {}) if one.part == 0]
            for one in lines[:MOST_LINES]:
                place = (one.path, one.start)
                if place not in found and len(passage_text(one)) <= LONGEST:
                    score = LINKED_SHARE * hit.score
                    new.setdefault(place, Hit(one, score, {"linked": score}))
    return list(new.values())


CACHED_PAGES = 16
"""Number of page versions whose lines are cached: a compilation reads the lines of the same page up to six times."""

NO_LONGER_SO = "no longer so: a newer line says otherwise"
NOT_IN_FORCE = ENDED - {CLOSED}
"""Sections with lines that no longer hold. Closed items are not among them: they stay true."""

_REPLACED = re.compile(r"\(replaced \d{4}-\d{2}-\d{2}(?: on request)?\)$")
ANOTHERS = "another project's: {}"
OPEN_THAT_DAY = "was open on that day; the project's page has the present state"
_OPEN_THAT_DAY = f"- {PREFIXES['open']}"
ONLY_ASKS = "a question or a task, which states nothing"
BY_PROGRAM = "written by a program under the user's name"
SHOWN_ABOVE = "shown above"

_BEGINNING = re.compile(
    r"\s{0,3}(?:> )?[-*+] (?:\d{4}-\d{2}-\d{2}:? )?"
    r"((?:Decision|Lesson|Decided|Learned|Done|Open|Rule|How to|What it is|Last decision|Next): )?"
)
"""The bullet and the day of a line, and in its group the label of a short form."""
_SHORT = re.compile(r"^(?:\*\*[\w-]+\*\*|\[\[[^\[\]\n]+\]\]) — | \[\[[^\[\]\n]+\]\]$")
"""Marks a line that repeats parts of other pages' lines: MEMORY.md's of a project, and a journal's with a link."""
_PARTS = re.compile(r"(?:^|; )(?:decided|open|next): ")  # begins the parts of MEMORY.md's line of a project
_PROJECT = re.compile(r"^(?:[\w-]+|\[\[[^\[\]\n]+\]\]): ")
"""Prefix of a line in MEMORY.md, which has lines of all projects."""

_OF_PROJECT = re.compile(r"- (?:\d{4}-\d{2}-\d{2}: )?\[\[([^/\[\]\n]+)/context\|[^\[\]\n]+\]\](?: —|:) ")
"""Begins such a line, or an index's; its group is the project."""


def _plain(text: str) -> str:
    """Returns an entry's text without bullet, day, the journal's additions, and the note that it was perhaps changed:
    so it is the same in every file. `text` is the entry without its sources."""
    said = _SHORT.sub("", _BEGINNING.sub("", text, count=1).strip()).rstrip("…")
    return without_changed_note(said).casefold()


overtaken_lines = lru_cache(maxsize=CACHED_PAGES)(cues.overtaken_lines)
"""Cached, because it compares each line of a page with all others."""


def said_above(filling: Filling) -> frozenset[str]:
    """Returns the texts of the entries that earlier slots show."""
    shown = [line for section in filling.before.values() for line in section.text.splitlines()]
    found = {_plain(without_sources(line)) for line in shown if _BEGINNING.match(line)}
    return frozenset(found | {_PROJECT.sub("", said) for said in found})


def of_others(body: str, others: AbstractSet[str]) -> dict[int, str]:
    """Returns the derived lines (from 0) of a journal under the headings of other projects, and those of MEMORY.md and
    the index of projects that begin with a link to one, each with the reason."""
    if not others:
        return {}
    of_line = {place: _project_of(row) for place, row in enumerate(body.split("\n")) if is_derived(row)}
    found = {place: other for place, other in of_line.items() if other in others}
    for section in sections(body):
        if (title := as_shown(section.title)) in others:
            found |= dict.fromkeys(of_line.keys() & range(section.start - 1, section.end), title)
    return {place: ANOTHERS.format(other) for place, other in found.items()}


def _project_of(line: str) -> str:
    """Returns the project that a line of MEMORY.md or the index of projects is about, or ""."""
    return begins[1] if (begins := _OF_PROJECT.match(line)) else ""


def as_page(path: str, text: str) -> SourceFile:
    """Returns a file's text without its front matter."""
    split = split_front_matter(text)
    return SourceFile(path, split.body, split.body_line)


def why_out(
    passages: Sequence[Passage],
    others: AbstractSet[str],
    page_of: Callable[[str], SourceFile],
    model: Model,
) -> list[str]:
    """Returns for each passage why it is excluded, or "".

    Excluded are lines in the sections of replaced, corrected and removed items, lines that a newer line of their page
    supersedes, derived lines of a journal, of MEMORY.md or of the index of projects about one of the projects `others`,
    open items of a journal, turns in which the user only asks, and turns that a program wrote. `page_of` returns the
    page at a path.
    """
    overtaken: set[tuple[str, int]] = set()
    pages = {one.path for one in passages if one.path.startswith((PROJECTS, GENERAL_PAGE)) and is_derived(one.text)}
    for path in pages:
        page = page_of(path)
        overtaken.update((path, page.first_line + place) for place in overtaken_lines(page.text))
    reasons = []
    for one in passages:
        section = one.title.rsplit(" › ", 1)[-1]
        is_index = one.category == "memory" or one.path == PROJECT_INDEX
        project = _project_of(one.text) if is_index else section
        another = (is_index or one.category == "journal") and project in others and is_derived(one.text)
        gone = (one.path, one.start) in overtaken or section in NOT_IN_FORCE or _was_replaced(one.text)
        reason = NO_LONGER_SO if gone else ANOTHERS.format(project) if another else ""
        if one.category == "journal" and one.text.startswith(_OPEN_THAT_DAY):
            reason = reason or OPEN_THAT_DAY
        if not reason and one.category == "conversation" and one.role == "user":
            reason = BY_PROGRAM if model.by_program(one.text) else ONLY_ASKS if model.only_asks(one.text) else ""
        reasons.append(reason)
    return reasons


def _was_replaced(text: str) -> bool:
    """Returns whether each line of a text says that it was replaced."""
    rows = [without_sources(row).rstrip() for row in text.split("\n") if row.strip() and not row.startswith("#")]
    return bool(rows) and all(map(_REPLACED.search, rows))


def repeated(lines: Sequence[str], said: AbstractSet[str]) -> list[int]:
    """Returns the positions of the lines that an extractor wrote and that are already shown; `said` is `said_above`. A
    short form is already shown if lines that were shown contain each of its parts."""
    if not said:
        return []
    places = [place for place, line in enumerate(lines) if is_derived(line)]
    safe = list(map(neutralise, [lines[place] for place in places]))
    found = []
    for place, shown in zip(places, safe, strict=True):
        original, text = without_sources(lines[place]), _plain(without_sources(shown))
        beginning = _BEGINNING.match(original)
        if (beginning and beginning[1]) or _SHORT.search(_BEGINNING.sub("", original, count=1)):
            parts = [part.rstrip("…") for part in _PARTS.split(text) if part]
            again = all(any(part in one for one in said) for part in parts)
        else:
            again = text in said or _PROJECT.sub("", text) in said
        found += [place] if again else []
    return found


def without(source: SourceFile, out: Mapping[int, str]) -> SourceFile:
    """Returns a file with these lines (from 0 → reason) blanked and listed in `withheld`. Line numbers stay."""
    if not out:
        return source
    lines = ["" if place in out else line for place, line in enumerate(source.text.split("\n"))]
    runs: list[Withheld] = []  # of adjacent lines that are out for the same reason
    start: int | None = None
    for place in sorted(out):
        start = place if start is None else start
        if out.get(place + 1) != out[place]:
            runs.append(Withheld(out[place], source.first_line + start, source.first_line + place))
            start = None
    return replace(source, text="\n".join(lines), withheld=(*source.withheld, *runs))
