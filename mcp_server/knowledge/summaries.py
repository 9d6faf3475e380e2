"""Lines that repeat other pages: those of MEMORY.md, of the indexes of people and projects, and of a day's journal.

They are computed from the other pages, and all of them are replaced when those pages change. A line has the source of
the line that it repeats. Lines that a person or an agent wrote are never changed. Links name the people, projects and
procedures of a derived line, and list on each page the pages that link to it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

from mcp_server.knowledge.duplicates import is_duplicate
from mcp_server.knowledge.pages import KINDS, stripped, with_entry, without_emptied, without_empty, without_state
from mcp_server.model import slugify
from mcp_server.text import entries
from mcp_server.text.destinations import (
    DECISIONS,
    FACTS,
    GENERAL_PAGE,
    GENERAL_SECTIONS,
    OPEN,
    RULES,
    USER_FILE,
    link_to_project,
)
from mcp_server.text.entries import Entry, LineKind, Source
from mcp_server.text.markdown import link_targets, links, resolve, sections, without_comments
from mcp_server.text.prose import sentences
from mcp_server.text.words import content_words
from mcp_server.understanding.cues import cues, subject_stems
from mcp_server.understanding.model import recognizer
from mcp_server.understanding.sentences import clipped_at_clause

PEOPLE, PROCEDURES, PROJECT_PAGES = "knowledge/people/", "knowledge/procedures/", "knowledge/projects/"

_QUALIFIED = re.compile(r" \([^()]+\)$")

SHORTEST = 3
"""Minimum number of characters of a name that is searched for in lines."""

MOST_LINKED = 4
"""Maximum number of links in one line."""


@dataclass(frozen=True, slots=True)
class Named:
    """A page that lines can name: its path, the link to it, and a pattern of its names. `only` is set for a person who
    shares the name with another person: the project or company without which a line, or the path of its page, does not
    mean this person."""

    path: str
    link: str
    pattern: re.Pattern[str]
    only: str = ""

    def place_in(self, path: str, said: str) -> int | None:
        """Returns the position at which a line of the page `path` first names this page, or None."""
        around = f"{path} {said}".casefold()
        found = self.pattern.search(said) if self.only.casefold() in around or slugify(self.only) in around else None
        return found.start() if found else None


def named_pages(bodies: Mapping[str, str]) -> list[Named]:
    """Returns the pages of people, procedures and projects. A person is also named by the first name if no other person
    has the same. Two people of one name have their project or company in their titles: "Ana Kovač (Atlas)"."""
    titles = {path: _title(body) for path, body in bodies.items() if path.startswith(PEOPLE) and path != USER_FILE}
    people = {path: _QUALIFIED.sub("", title) for path, title in titles.items()}
    first = Counter(name.split()[0] for name in people.values() if name)
    full = Counter(people.values())
    found: list[Named] = []
    for path, body in sorted(bodies.items()):
        stem = path.rsplit("/", 1)[-1].removesuffix(".md")
        if stem.startswith("_"):
            continue
        if people.get(path):
            name = people[path]
            names = {name, name.split()[0]} if first[name.split()[0]] == full[name] else {name}
            only = titles[path][len(name) :].strip(" ()") if full[name] > 1 else ""
            found.append(Named(path, f"[[{stem}]]", _pattern(names), only))
        elif path.startswith(PROCEDURES) and (title := _title(body)):
            found.append(Named(path, f"[[{stem}]]", _pattern({title}, re.IGNORECASE)))
        elif path.startswith(PROJECT_PAGES) and path.endswith("/context.md"):
            slug = path.split("/")[2]
            found.append(Named(path, link_to_project(slug), _pattern({slug}, re.IGNORECASE)))
    return found


def relinked(bodies: Mapping[str, str]) -> dict[str, str]:
    """Returns the bodies that change if each derived line links the pages that it names, and each page lists the pages
    that link to it. `bodies` are those of all pages by path."""
    named = named_pages(bodies)
    after = {path: with_links(path, body, named) for path, body in bodies.items()}
    link_of = {one.path: one.link for one in named}
    targets = link_targets(bodies)
    sources: dict[str, list[str]] = {path: [] for path in link_of}
    for path, body in sorted(after.items()):
        if path not in link_of:
            continue
        for target in {resolve(link.name, targets) for link in links(with_backlinks(body, ()))}:
            if target is not None and target != path and target in sources:
                sources[target].append(link_of[path])
    after |= {path: with_backlinks(after[path], found) for path, found in sources.items()}
    return {path: body for path, body in after.items() if body != bodies[path]}


def with_links(path: str, body: str, named: Sequence[Named]) -> str:
    """Returns the body of a page in which each derived line ends with links to the other pages that it names."""
    rows = body.split("\n")
    for one in entries.derived(body):
        said = one.said
        places = {page.link: page.place_in(path, said) for page in named if page.path != path}
        found = sorted((place, link) for link, place in places.items() if place is not None)
        names = [link for _, link in found][:MOST_LINKED]
        wanted = " ".join(name for name in names if name not in said)
        if wanted != entries.apart(one.text)[1] or entries.remarked(one.text) != one.text:
            rows[one.start - 1] = entries.entry(one.date, said, one.sources, wanted)
    return "\n".join(rows)


def _pattern(names: Iterable[str], flags: int = 0) -> re.Pattern[str]:
    long = sorted((name for name in names if len(name) >= SHORTEST), key=len, reverse=True)
    return re.compile(rf"(?<![\w/-])(?:{'|'.join(map(re.escape, long)) or '(?!)'})(?![\w/-])", flags)


def _title(body: str) -> str:
    return next((one.title.strip() for one in sections(body, 1) if one.level == 1), "")


QUOTED = re.compile(r"(.*\S)\s+\((agreed|amended|answer|refused): (.*)\)", re.DOTALL)
"""A decision with the other speaker's words in parentheses."""

TELLING: Mapping[str, frozenset[str]] = {
    "decision": frozenset({"propose"}),
    "rule": frozenset({"must", "no"}),
    "open": frozenset({"later", "must"}),
    "report": frozenset({"done"}),
}
"""By kind of line, the cues of the sentence that states it. Sentences without these cues give reasons."""

TELLS = 3
"""The weight of the words of a sentence with such a cue; other words have the weight 1. With 2 instead of 3, a date or
a price in a reason still outweighs a short rule."""

LEAST_ALONE = 6
"""A user's answer with at least this number of content words can be understood without the proposal."""


SLACK = 4 / 3
"""A line is shortened only if it is longer than this factor times the limit."""


def shortened(text: str, longest: int, kind: str = "decision", core: str = "", slack: float = SLACK) -> str:
    """Returns neighboring sentences of a line of this kind that fit into `longest` characters and include `core`, the
    sentence that states the line. If the core is not known, chooses the sentences with the most content words; words of
    a sentence with a cue of the kind count TELLS times. A line of at most `slack` times `longest` characters stays
    whole. A sentence that is longer is cut at the end of a clause.

    For a proposal with an answer, keeps the user's words. The agent's words are added if there is room, or if the
    user's words are too few to be understood alone ("20 minutes, please"). The words of an agreement are left out if
    the proposal has one sentence; otherwise they may choose one of several options."""
    telling, most = TELLING.get(kind, frozenset()), int(longest * slack)

    def says(part: str) -> tuple[bool, bool, int]:
        return bool(core) and core in part, *_says(part, telling)

    if quoted := QUOTED.fullmatch(text):
        stated, verb, said = quoted.groups()
        if verb == "agreed" and (len(sentences(stated)) < 2 or not subject_stems(said)):
            return shortened(stated, longest, kind, core, slack)
        own, other = (stated, said) if verb == "refused" else (said, stated)
        has_room = len(own) + len(verb) + 5 + longest // 2 <= most
        if len(set(content_words(own))) >= LEAST_ALONE and not has_room:
            return shortened(own, longest, kind, core, slack)
        own = entries.OPENING.sub("", own).rstrip(".;, ")
        rest = shortened(other, max(longest - len(own) - len(verb) - 5, longest // 2), kind, core, slack)
        text = f"{own} ({verb}: {rest})" if verb == "refused" else f"{rest} ({verb}: {own})"
        clipped = clipped_at_clause(entries.with_capital(text), most)
        return clipped if clipped.endswith(")") else f"{clipped})"
    best = text if len(text) <= most else max(runs_of(text, longest), key=says)
    if len(best) > most:
        best = max(re.split(r"(?<=;)\s+", best), key=says)
    if len(best) > most and core in best:
        best = best[best.index(core) :]
    best = entries.OPENING.sub("", best).rstrip(".;, ")
    return clipped_at_clause(entries.with_capital(best), most)


def runs_of(text: str, longest: int) -> list[str]:
    """Returns for each sentence of a text the longest run of sentences that begins with it and has at most `longest`
    characters; a longer sentence is a run by itself."""
    parts = sentences(text)
    runs: list[str] = []
    for place, run in enumerate(parts):
        for part in parts[place + 1 :]:
            if len(run) + 1 + len(part) > longest:
                break
            run = f"{run} {part}"
        runs.append(run)
    return runs


def _says(text: str, telling: Container[str]) -> tuple[bool, int]:
    """Returns a sort key for the information in a run of sentences: its content words, weighted. A row of a table ranks
    lowest. Words in sentences with a cue in `telling` count `TELLS` times."""
    told = [part for part in sentences(text) if any(cue in telling for cue in cues(part))]
    words = set(content_words(text))
    return " | " not in text, len(words) + (TELLS - 1) * len(words.intersection(content_words(" ".join(told))))


JOURNAL_LINES, LEAST_DERIVED = 10, 3
"""Maximum number of lines in a day's journal, and the number of derived lines that are kept even if lines of people and
agents fill the journal."""

PREFIXES: Mapping[LineKind, str] = {
    "decision": "Decided: ",
    "report": "Done: ",
    "open": "Open: ",
    "lesson": "Learned: ",
    "rule": "Rule: ",
    "procedure": "How to: ",
}
"""The beginning of a journal line by kind. Facts and statements of people about themselves have none."""

_WORTH = (
    ("Decided: ", "Decision: "),
    ("Done: ",),
    ("Open: ", "To-do: "),
    ("Learned: ", "Lesson: "),
    ("Rule: ",),
    ("How to: ",),
)
"""The beginnings of journal lines, the most important kind first, including those that earlier versions wrote
(`FLUSHED`)."""


def within_the_day(body: str) -> str:
    """Returns the body of a journal with at most JOURNAL_LINES lines. Removes the least important derived lines, and
    headings that become empty. Lines that people and agents wrote stay.

    Lines without a prefix, such as facts, are the least important. Otherwise the newest line of each kind under a
    heading ranks before the second newest; lines of equal rank are sorted by kind as in `_WORTH`, then newer ones
    first. A removed line would also be removed if more lines were added. So the journal is the same whether
    conversations are read one by one or together."""
    found = entries.entries(body)
    derived = sorted((one for one in found if one.sources), key=lambda one: (one.sources[0].order, one.text))
    most = max(LEAST_DERIVED, JOURNAL_LINES - (len(found) - len(derived)))
    newer: Counter[tuple[str, int]] = Counter()
    ranked: list[tuple[bool, int, int, Entry]] = []
    for one in reversed(derived):
        kind = next((place for place, some in enumerate(_WORTH) if one.said.startswith(some)), len(_WORTH))
        ranked.append((kind == len(_WORTH), newer[one.section, kind], kind, one))
        newer[one.section, kind] += 1
    leaving = [one for *_, one in sorted(ranked, key=lambda rank: rank[:3])[most:]]
    return without_emptied(body, entries.without(body, leaving)) if leaving else body


ABOUT_USER, PROJECTS, LESSONS = "About the user", "Projects", "Lessons Learned"

MOST: Mapping[str, int] = {ABOUT_USER: 10, RULES: 20, PROJECTS: 20, DECISIONS: 17, LESSONS: 15}
"""Maximum number of derived lines by section, 82 in total: with its headings, MEMORY.md has at most 120 lines."""

LONGEST = 140
"""Maximum number of characters of the text of a line about a project or person."""

LONGEST_PART = 100
"""Maximum number of characters of each part of a project's line in MEMORY.md: what the project is, its last decision,
its next step. Briefs contain the line: with 140 characters, 2 of 461 prompts fewer get everything they need (`bench
push`, 2026-11)."""

LEAST_OPENING = 5
"""Number of content words from which a sentence can say what a project is. A greeting or an apology has fewer."""

FIRST_TURNS = 3
"""Number of turns at the start of a project's first conversation in which the user may say what the project is."""


@dataclass(frozen=True, slots=True)
class Summary:
    """A line of a summary: it repeats a line about a project or person, and has its day and source."""

    day: str
    text: str
    source: Source


def of_project(bodies: Iterable[str]) -> Summary | None:
    """Returns a line with a project's purpose, last decision and next step, as far as its pages have derived lines
    about them; None if the pages have no derived decision or open item."""
    purpose, decided, still_open = _state([one for body in bodies for one in entries.derived(body)])
    newest = _newest(one for one in (decided, still_open) if one is not None)
    if newest is None:
        return None
    labeled = (("", purpose), ("decided: ", decided), ("next: ", still_open))
    parts = [f"{label}{_said(one, LONGEST_PART, slack=1)}" for label, one in labeled if one is not None]
    return Summary(newest.date, "; ".join(parts), newest.sources[0])


def with_state(body: str) -> str:
    """Returns the body of a project's page with the project's state under its title: what it is, its last decision, its
    next step. The lines of the state name the sources of the lines that they shorten."""
    bare = without_state(body)
    purpose, decided, still_open = _state(entries.derived(bare))
    linked = [row for row in body.split("\n") if row.startswith(entries.LINKED_FROM)][:1]
    if decided is None and still_open is None:
        return _headed(bare, linked)
    labeled = (("What it is", purpose), ("Last decision", decided), ("Next", still_open))
    state = [
        f"{entries.STATE}{label}: {_said(one, LONGEST)} {one.sources[0].mark}"
        for label, one in labeled
        if one is not None
    ]
    return _headed(bare, [*state, *linked])


def with_backlinks(body: str, links: Sequence[str]) -> str:
    """Returns the body of a page with the pages that link to it in the block under its title."""
    state = [row for row in body.split("\n") if entries.is_state(row) and not row.startswith(entries.LINKED_FROM)]
    linked = [f"{entries.LINKED_FROM.removesuffix('[[')}{', '.join(links)}"] if links else []
    return _headed(without_state(body), [*state, *linked])


def _headed(body: str, block: Sequence[str]) -> str:
    """Returns the body with `block` under its title. The body must not have such a block yet."""
    title = next((one for one in sections(body, 1) if one.level == 1), None)
    if title is None or not block:
        return body
    rows = body.split("\n")
    return "\n".join([*rows[: title.start], "", *block, *rows[title.start :]])


def _said(one: Entry, longest: int, slack: float = SLACK) -> str:
    """Returns a line's short form, with the sentence that states the item most likely. The short form of a fact, which
    says what a project is, begins with the first sentence of at least LEAST_OPENING content words, or else with the
    sentence that has the most."""
    kind, said, core = KINDS.get(one.section, ""), one.said, ""
    if one.section == FACTS:
        runs = runs_of(said, longest)
        said = max(runs, key=lambda run: min(LEAST_OPENING, len(set(content_words(sentences(run)[0])))), default=said)
    elif len(said) > longest:
        core = max(sentences(said), key=lambda sentence: recognizer().states(kind, sentence))
    return _NEXT.sub("", shortened(said, longest, kind, core, slack))


def _state(lines: Sequence[Entry]) -> tuple[Entry | None, Entry | None, Entry | None]:
    """Returns the lines of a project's page that say what the project is, its last decision, and its next step."""
    newest = [_newest(one for one in lines if one.section == section) for section in (DECISIONS, OPEN)]
    return _purpose(lines), newest[0], newest[1]


_NEXT = re.compile(r"^(?:next(?: steps?)?|to-?do|open):\s+", re.IGNORECASE)
_OWN = re.compile(r"\b(?:I|we|my|our)\b", re.IGNORECASE)


def _newest(lines: Iterable[Entry]) -> Entry | None:
    return max(lines, key=lambda one: (one.date, *one.sources[0].order), default=None)


def _purpose(lines: Iterable[Entry]) -> Entry | None:
    """Returns the fact at the start of a project's first conversation in which the user says what the project is ("I'm
    starting a service …"); None if there is none."""
    ordered = sorted(lines, key=lambda one: one.sources[0].order)
    first = [one for one in ordered if one.sources[0].path == ordered[0].sources[0].path]
    facts = [one for one in first if one.section == FACTS and one.sources[0].turn <= FIRST_TURNS]
    return next((one for one in facts if one.sources[0].turn == 1 or _OWN.search(one.said)), None)


def derived_lines(pages: Mapping[str, str]) -> dict[str, list[str]]:
    """Returns the derived lines of MEMORY.md by section: projects newest first, other lines oldest first. `pages` are
    the bodies of knowledge pages by path."""
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
                text = f"{link_to_project(slug)}: {one.said}" if slug else one.said
                found[section].append((one.date, entries.entry(one.date, text, one.sources)))
    for slug, bodies in projects.items():
        if (newest := of_project(bodies)) is not None:
            text = f"{link_to_project(slug)} — {newest.text}"
            found[PROJECTS].append((newest.day, entries.entry(newest.day, text, (newest.source,))))
    shown: dict[str, list[str]] = {}
    for section, lines in found.items():
        texts = [text for _, text in sorted(lines, key=lambda line: line[0])[-MOST[section] :]]
        shown[section] = texts[::-1] if section == PROJECTS else texts  # the newest project first
    return shown


def _section(path: str, slug: str, section: str) -> str:
    """Returns the section of MEMORY.md that repeats the lines of a section of a page; "" if none does."""
    if path == USER_FILE and section in ("About", "Likes and dislikes"):
        return ABOUT_USER
    if path == GENERAL_PAGE and section in (RULES, DECISIONS):
        return section
    is_lesson = (path == GENERAL_PAGE and section == GENERAL_SECTIONS["lesson"]) or (slug and section == LESSONS)
    return LESSONS if is_lesson else ""


def renewed(body: str, lines: Mapping[str, Iterable[str]]) -> str:
    """Returns the body of MEMORY.md with these derived lines instead of its old ones. A line with the meaning of a
    hand-written line is left out."""
    bare = stripped(body)
    own = [one.text for one in entries.entries(bare.body)]
    new = bare.body
    for section, some in lines.items():
        for line in some:
            if not any(is_duplicate(entries.without_sources(line), one) for one in own):
                new = with_entry(new, section, line)
    new = without_empty(new, bare.emptied)
    return new.rstrip("\n") + "\n" if bare.removed else new


SECTIONS = ("About", "What happened", "Likes and dislikes", "Plans", "Decisions")
"""Sections of a person's page that say who the person is, the best first."""


def of_person(body: str) -> Summary | None:
    """Returns the first derived line in the best section of a person's page (SECTIONS); None if it has none."""
    found = [one for one in entries.derived(body) if one.section in SECTIONS]
    if not found:
        return None
    best = min(found, key=lambda one: (SECTIONS.index(one.section), one.start))
    return Summary(best.date, shortened(best.said.removeprefix(f"{_title(body)}: "), LONGEST), best.sources[0])


def index_with(body: str, lines: Mapping[str, Summary]) -> str:
    """Returns the body of an index with these lines instead of its derived ones, by the name that each begins with
    (`[[ana]]`, `[[atlas/context|atlas]]`). A name that a hand-written line has, also as `**atlas**`, gets no second
    line."""
    own = entries.without(body.rstrip("\n"), entries.derived(body)).rstrip()
    named = without_comments(own)  # the example in a comment names nothing
    new = [
        f"- {name} — {line.text} {line.source.mark}"
        for name, line in sorted(lines.items())
        if name not in named and f"**{name.rpartition('|')[2].rstrip(']')}**" not in named
    ]
    gap = [""] if new and own and not own.rpartition("\n")[2].startswith("- ") else []
    return "\n".join([*([own] if own else []), *gap, *new]) + "\n"


LONGEST_FILE = 300
"""Maximum number of derived lines of a person's or project's page. Above it, the oldest events move to archive/."""
AHEAD, HAPPENED = ("Plans", "Next"), ("What happened", "Done")


def outdated(body: str, before: str) -> list[Entry]:
    """Returns the derived lines to archive from a person's or project's page: plans for days before `before`
    (YYYY-MM-DD), and the oldest events if the page has more than LONGEST_FILE lines."""
    dated = [one for one in entries.derived(body) if one.date]
    plans = [one for one in dated if one.section in AHEAD and one.date < before]
    happened = sorted((one for one in dated if one.section in HAPPENED), key=lambda one: (one.date, one.start))
    return plans + happened[: max(0, len(dated) - len(plans) - LONGEST_FILE)]
