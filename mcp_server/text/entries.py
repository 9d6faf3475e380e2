"""The entries of pages: bullets under headings, and derived lines, `- DAY: TEXT [src: TURN](/TRANSCRIPT)`.

Extractors may rewrite derived lines. All other lines were written by a person or an agent.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from mcp_server.errors import NotFound
from mcp_server.text.markdown import Section, sections, without_comments, without_lines
from mcp_server.text.prose import sentences
from mcp_server.text.words import content_words, fold

_BULLET = re.compile(r"^[-*+] ")
_DATE = re.compile(r"^(?:\d{4}-\d{2}-\d{2})(?:\s*[:—–-]\s*|\s+)")
EARLIER = "earlier: "
"""Begins a line below an entry; the line has an earlier wording of the entry."""

_EARLIER = (EARLIER, "also: ")
"""Older versions wrote the second one."""

CACHED_LINES = 1024
"""Number of lines whose source marks are cached: one search or compilation reads those of the same lines up to ten
times."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A bullet and its further lines. `start` and `end` are its lines in the body; `date` is as written, or empty.

    `said` is its text without bullet, date, earlier wordings and sources. `sources` are the turns that it was derived
    from; an entry with further lines has none, because a person continued it, so it counts as the person's own.
    """

    section: str
    text: str
    start: int
    end: int
    date: str
    said: str
    sources: tuple[Source, ...] = ()


def written(content: str, date: str | None) -> str:
    """Returns `content` as one bullet, with `date` if given. Further lines are indented, and escaped if they would be
    headings, fences or comments."""
    first, *rest = content.strip().splitlines()
    first = _BULLET.sub("", first.strip())
    if date and not _DATE.match(first):
        first = f"{date}: {first}"
    lines = [f"- {first}"] + [f"  {_plain(line.rstrip())}".rstrip() for line in rest]
    return "\n".join(lines)


def _plain(line: str) -> str:
    return re.sub(r"^(\s*)(#{1,6}\s|=+\s*$|-+\s*$|```|~~~|<!--)", r"\1\\\2", line)


def entries(body: str) -> list[Entry]:
    """Returns every top-level bullet of the body, in order. Bullets in comments do not count: templates have some."""
    return list(_entries(body))


@lru_cache(maxsize=16)
def _entries(body: str) -> tuple[Entry, ...]:
    lines, written_lines = without_comments(body).split("\n"), body.split("\n")
    inside = sections(body, 1)
    heading_of = {number: one.title for one in inside for number in range(one.start, one.end + 1)}
    headings = {one.start for one in inside if one.title}
    found: list[Entry] = []
    number = 1
    while number <= len(lines):
        if not _BULLET.match(lines[number - 1]) or number in headings:
            number += 1
            continue
        end = number
        while end < len(lines) and lines[end].startswith(("  ", "\t")) and end + 1 not in headings:
            end += 1
        text = "\n".join(written_lines[number - 1 : end])
        dated = _DATE.match(_BULLET.sub("", lines[number - 1]))
        sources = sources_of(text) if number == end and "[src: " in text else ()
        date, said = dated[0][:10] if dated else "", without_sources(statement(text)).strip()
        found.append(Entry(heading_of.get(number, ""), text, number, end, date, said, sources))
        number = end + 1
    return tuple(found)


def normalised(entry: str) -> str:
    """Returns the text by which two entries are compared: without date, bullet, case, accents and final punctuation."""
    lines = [line.strip() for line in entry.strip().split("\n")]
    text = _DATE.sub("", _BULLET.sub("", " ".join(lines)))
    return " ".join(fold(text).split()).rstrip(".!;, ")


def same_entry(body: str, content: str) -> Entry | None:
    """Returns the entry that has the same words as `content` (`normalised`), if any."""
    wanted = normalised(written(content, None))
    return next((entry for entry in entries(body) if normalised(entry.text) == wanted), None)


def statement(entry: str) -> str:
    """Returns the present wording of an entry, without date and bullet."""
    lines = [line.strip() for line in entry.strip().split("\n")]
    return _DATE.sub("", _BULLET.sub("", " ".join(line for line in lines if not line.startswith(_EARLIER))))


def statements(body: str, section: str) -> list[tuple[Entry, str]]:
    """Returns the entries of a section, the last one first, each with its `statement`."""
    inside = [entry for entry in entries(body) if entry.section.casefold() == section.casefold()]
    return [(entry, statement(entry.text)) for entry in reversed(inside)]


def tells_no_more(entry: str, other: str) -> bool:
    """Returns whether the entry `other` contains all of `entry`, word for word."""
    return re.search(rf"(?<!\S){re.escape(normalised(entry))}(?![^\s.,;:!?])", normalised(other)) is not None


def reworded(body: str, entry: Entry, new: str, keep: bool) -> str:
    """Returns the body with the bullet `new` in an entry's place. With `keep`, the old wording stays below it."""
    first, *rest = (line.strip() for line in entry.text.split("\n"))
    wordings = [line for line in rest if line.startswith(_EARLIER)]
    if keep:
        said = " ".join([_BULLET.sub("", first), *(line for line in rest if not line.startswith(_EARLIER))])
        wordings.insert(0, f"{EARLIER}{said}")
    lines = body.split("\n")
    return "\n".join([*lines[: entry.start - 1], new, *(f"  {line}" for line in wordings), *lines[entry.end :]])


def appended(body: str, section: str, entry: str) -> str:
    """Returns the body with `entry` as the last one of a section. A missing section is added at the end."""
    lines = body.rstrip("\n").split("\n")
    place = next((s for s in sections(body, 1) if s.title.casefold() == section.casefold()), None)
    if place is None:
        separator = [""] if lines[-1].strip() else []
        return "\n".join([*lines, *separator, f"## {section}", "", entry]) + "\n"
    end = min(place.end, len(lines))
    while end > place.start and not lines[end - 1].strip():
        end -= 1
    above = [""] if end == place.start or lines[end - 1].endswith("-->") else []
    after = "\n".join(lines[end:]).strip("\n").split("\n")
    return "\n".join([*lines[:end], *above, *entry.split("\n"), *(["", *after] if any(after) else [])]) + "\n"


def section_replaced(body: str, section: str, content: str) -> str:
    """Returns the body with `content` in place of all text under the heading `section`, subsections included.

    Raises:
        NotFound: there is no such heading. The message lists the headings.
    """
    found = sections(body, 1)
    place = next((s for s in found if s.title and s.title.casefold() == section.casefold()), None)
    if place is None:
        raise NotFound(f"no section {section!r}; there are: {', '.join(s.title for s in found if s.title) or 'none'}")
    following = (s.start for s in found if s.start > place.start and s.level <= place.level)
    lines = body.split("\n")
    after = lines[next(following, len(lines) + 1) - 1 :]
    kept = [*lines[: place.start], "", *content.strip("\n").split("\n"), *(["", *after] if any(after) else [])]
    return "\n".join(kept).rstrip("\n") + "\n"


def without_oldest(body: str, lines_to_free: int, spared: frozenset[int] = frozenset()) -> tuple[str, list[Entry]]:
    """Returns the body without its oldest dated entries, and these entries. Together they have at least `lines_to_free`
    lines, if there are enough.

    Undated entries and those that begin in a `spared` line stay. Entries of one day are removed in the order of the
    file.
    """
    dated = sorted(
        (entry for entry in entries(body) if entry.date and entry.start not in spared),
        key=lambda entry: (entry.date, entry.start),
    )
    leaving: list[Entry] = []
    for entry in dated:
        if sum(gone.end - gone.start + 1 for gone in leaving) >= lines_to_free:
            break
        leaving.append(entry)
    return without(body, leaving), leaving


def derived(body: str) -> list[Entry]:
    """Returns the entries that extractors wrote."""
    return [entry for entry in entries(body) if entry.sources]


def without(body: str, leaving: Iterable[Entry | Section]) -> str:
    """Returns the body without these entries or sections."""
    return without_lines(body, {number for entry in leaving for number in range(entry.start, entry.end + 1)})


ENTRY = "entry-"


def entry_id(text: str) -> str:
    """Returns the id of an archived entry, which is computed from its text."""
    return ENTRY + hashlib.sha256(text.strip().encode("utf-8", "surrogatepass")).hexdigest()[:8]


LineKind = Literal[
    "decision", "rule", "lesson", "about", "preference", "plan", "event", "fact", "procedure", "open", "report"
]
"""A report says that work is done: it closes open items, and is written only to the journal."""

MOST_SOURCES = 3
"""Most turns that a line names as its sources; they are the first ones."""

MARK = r"\[src: (?:raw/conversations/[^\]#\n]+#\d{1,15}\]|\d{1,15}\]\(/raw/conversations/[^()\s]+\))"
"""Matches the mark of a source, which is a link to its transcript: `[src: TURN](/TRANSCRIPT)`. Lines of older versions
have `[src: TRANSCRIPT#TURN]` until they are rewritten."""

DERIVED = re.compile(rf"\s{{0,3}}[-*+] (?:(\d{{4}}-\d{{2}}-\d{{2}}):? )?.*{MARK}\s*$")
"""Matches a bullet that an extractor wrote. Its group is the day at the beginning."""

OPENING = re.compile(
    r"^(?:(?:and|n|but|so|ok|okay|well|also|then|oh|ach|hmm|hi|hey|hello|yo|yeah|haha"
    r"|good (?:morning|afternoon|evening)|thank you|thanks|by the way|btw)\b[,.!:;]* "
    r"|(?:right|anyway|guess what|(?:good|bad) news|fyi|context|found it"
    r"|one (?:last|more) thing|(?:one|another) thing before i forget)[,.!:;]+ )+(?=[\w`'\"])",
    re.IGNORECASE,
)
"""Conjunctions, greetings, interjections and announcements at the beginning of a text."""

_DECIDES = re.compile(
    r"\b(?:no|not|never|none|nothing|only|yes|option|always|ever\w*|any\w+|the|my|our|his|her|their)\b|n['’]t\b|[\d`]",
    re.IGNORECASE,
)
"""Words with which even a short sentence may change the meaning of the next one, or name its subject: "The lift!"."""

_REPORTS = re.compile(r"\w \w*(?:ed|came|left|lost|paid|sent|sold|won)\b", re.IGNORECASE)
"""A verb in the past after another word: "We signed."."""

SHORT_FILLER = 3
"""Most words of a sentence that may be only a reaction: "Nice.", "Yes please.", "Remind me." """

STATE = "> - "
"""Begins a line of the state at the top of a project's page."""

LINKED_FROM = f"{STATE}Linked from: [["
"""Begins the line at the top of a page that lists the pages that link to it."""

_SOURCE = re.compile(
    r"\[src: (?:(?P<old>raw/conversations/[^\]#\n]+)#(?P<at>\d{1,15})\]"
    r"|(?P<turn>\d{1,15})\]\(/(?P<path>raw/conversations/[^()\s]+)\))"
)
_LINKS = re.compile(rf"((?:\s*\[\[[^\[\]\n]+\]\])+)(?=\s*(?:$|{MARK}))")
_MARKS = re.compile(rf"(?:{_LINKS.pattern})?\s*{MARK}")

ID_LENGTH = 12
"""Characters of a session's id in a transcript's name, `HHMM-ID-NAME.md`, that are enough to distinguish two
conversations."""


@dataclass(frozen=True, slots=True)
class Source:
    """The turn that a line was derived from."""

    path: str
    turn: int

    def __str__(self) -> str:
        return f"{self.path}#{self.turn}"

    @property
    def order(self) -> tuple[str, int]:
        """The key that sorts turns by time: the folder, the minute in which the transcript began, and the beginning of
        its session's id; then the turn, because the transcripts of a session continue its numbers."""
        folder, _, name = self.path.rpartition("/")
        began, _, rest = name.partition("-")
        return f"{folder}/{began}-{rest[:ID_LENGTH]}", self.turn

    @property
    def mark(self) -> str:
        """The mark at the end of a line: Obsidian and GitHub show `src: TURN`, a link to the transcript."""
        return f"[src: {self.turn}](/{self.path})"


@dataclass(frozen=True, slots=True)
class Line:
    """A line that an extractor found.

    `text` is one sentence or two that can be understood alone; `day` (YYYY-MM-DD) is when it happened, or else was
    said; `said` is when it was said; `person` is the name of the person it is about; `turn` and `path` are its turn and
    transcript. If not all lines fit, those with a higher `weight` are kept. `file` is the extractor's file for the line
    if it does not follow from the kind.
    """

    kind: LineKind
    text: str
    day: str
    turn: int
    path: str
    person: str | None = None
    said: str = ""
    weight: float = 0.0
    project: str | None = None
    file: str = ""
    changes: float = 0.0
    """The probability that its turn revises something or, for a report, that something is done."""
    heard: tuple[str, ...] = ()
    """Content stems of the message that are not in the text."""
    settled_by: tuple[int, str] | None = None
    """Number and day of the turn of the same conversation that replaced or closed it, according to a review."""
    core: str = ""
    """The sentence of the text that states the fact; shortened forms of the text keep it."""

    @property
    def source(self) -> Source:
        return Source(self.path, self.turn)

    @property
    def entry(self) -> str:
        """The line in a file."""
        return entry(self.day, self.text, (self.source,))


def entry(day: str, text: str, sources: Sequence[Source], links: str = "") -> str:
    """Returns a bullet with its date, its links to other pages and its sources."""
    dated = f"{day}: {text}" if day else text
    return " ".join((f"- {dated}", *([links] if links else []), *(source.mark for source in sources)))


@lru_cache(maxsize=CACHED_LINES)
def sources_of(text: str) -> tuple[Source, ...]:
    """Returns the turns that a line names as its sources; none for a line that is not derived."""
    if "[src: " not in text:
        return ()
    return tuple(Source(one["path"] or one["old"], int(one["turn"] or one["at"])) for one in _SOURCE.finditer(text))


def remarked(text: str) -> str:
    """Returns a text with its source marks of older versions in the present form."""
    return _SOURCE.sub(lambda one: Source(one["path"] or one["old"], int(one["turn"] or one["at"])).mark, text)


@lru_cache(maxsize=CACHED_LINES)
def without_sources(text: str) -> str:
    """Returns a text without its source marks and the links before them."""
    return _MARKS.sub("", text) if "[src: " in text else text


def apart(text: str) -> tuple[str, str]:
    """Returns the text of a line and the links to other pages that follow it."""
    found = _LINKS.search(text)
    return (text[: found.start()].rstrip(), found[1].strip()) if found else (text, "")


def tidied(text: str, *, is_whole: bool = True, is_topic: Callable[[str], bool] = lambda sentence: False) -> str:
    """Returns a quoted text as a line of a page: without reactions and greetings at its beginning. A short sentence
    there stays if it `is_topic`: "Logs! Never write a number in one." If the text `is_whole`, it also loses a reaction
    at its end, and a sentence there that announces text which is not quoted ("Here is my code:")."""
    parts = sentences(text) or [""]
    while len(parts) > 1 and _is_filler(parts[0]) and not is_topic(parts[0]):
        if parts[1].startswith("("):
            break  # its answer
        parts.pop(0)
    while is_whole and len(parts) > 1 and (_is_filler(parts[-1]) or parts[-1].endswith(":")):
        parts.pop()
    kept = " ".join(parts).rstrip(" ,;")
    bare = OPENING.sub("", kept)
    return (with_capital(bare) if bare != kept else bare) or text


def with_capital(text: str) -> str:
    """Returns a text with its first letter in upper case, unless it begins with a path or a name: "db/schema.sql"."""
    return text[:1].upper() + text[1:] if re.match(r"[^\W\d_]+(?![\w/(]|\.\w)", text) else text


def _is_filler(sentence: str) -> bool:
    """Returns whether a sentence is only a reaction that does not change the meaning of the others. "One thing:
    secrets." is not: it names their subject. "We signed." is not: it tells something."""
    few = len(sentence.split()) <= SHORT_FILLER and len(content_words(sentence)) <= 1
    return few and not _REPORTS.search(sentence) and ": " not in sentence and not _DECIDES.search(sentence)


def disowned(text: str) -> str:
    """Returns a text with its source marks in parentheses, so that a person's or agent's text does not count as
    derived."""
    return re.sub(r"\[(src:[^\]\n]*)\]", r"(\1)", text)


def is_state(line: str) -> bool:
    """Returns whether a line belongs to the block at the top of a page: a project's state, which repeats lines of the
    page, or the pages that link to it."""
    return line.startswith(STATE) and (is_derived(line) or line.startswith(LINKED_FROM))


@lru_cache(maxsize=CACHED_LINES)
def is_derived(text: str) -> bool:
    """Returns whether an extractor wrote the line."""
    return bool(sources_of(text))
