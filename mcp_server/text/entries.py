"""The entries of a knowledge file: bullets under headings. Finds, compares, adds and removes them in a file's body."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from mcp_server.errors import NotFound
from mcp_server.text.derived_lines import Source, sources_of, without_sources
from mcp_server.text.markdown import sections, without_comments, without_lines

_BULLET = re.compile(r"^[-*+] ")
_DATE = re.compile(r"^(?:\d{4}-\d{2}-\d{2})(?:\s*[:—–-]\s*|\s+)")
EARLIER = "earlier: "
"""Begins a line below an entry that has an earlier wording of it."""

_EARLIER = (EARLIER, "also: ")
"""Files of older versions have the second beginning."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One bullet with its continuation lines: lines `start` to `end` of the body, `date` as written or empty. `sources`
    are its turns; an entry that a person continued on further lines has none, because it is the person's own."""

    section: str
    text: str
    start: int
    end: int
    date: str
    sources: tuple[Source, ...] = ()

    @property
    def said(self) -> str:
        """What it says, without its bullet, date, earlier wordings and sources."""
        return without_sources(statement(self.text)).strip()


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
        found.append(Entry(heading_of.get(number, ""), text, number, end, dated[0][:10] if dated else "", sources))
        number = end + 1
    return found


def normalised(entry: str) -> str:
    """Returns the text by which two entries are compared: without date, bullet, case, accents and final punctuation."""
    lines = [line.strip() for line in entry.strip().split("\n")]
    text = _DATE.sub("", _BULLET.sub("", " ".join(lines)))
    folded = "".join(c for c in unicodedata.normalize("NFKD", text.casefold()) if not unicodedata.combining(c))
    return " ".join(folded.split()).rstrip(".!;, ")


def same_entry(body: str, content: str) -> Entry | None:
    """Returns the entry that has the same words as `content` (`normalised`), if any."""
    wanted = normalised(written(content, None))
    return next((entry for entry in entries(body) if normalised(entry.text) == wanted), None)


def statement(entry: str) -> str:
    """Returns what an entry says now, without date, bullet and earlier wordings."""
    lines = [line.strip() for line in entry.strip().split("\n")]
    return _DATE.sub("", _BULLET.sub("", " ".join(line for line in lines if not line.startswith(_EARLIER))))


def similar_entry(body: str, section: str, content: str, alike: Callable[[str, str], bool]) -> Entry | None:
    """Returns the last entry of a section that `alike` finds similar to `content`, if any."""
    wanted = statement(content)
    inside = [entry for entry in entries(body) if entry.section.casefold() == section.casefold()]
    return next((entry for entry in reversed(inside) if alike(statement(entry.text), wanted)), None)


def tells_no_more(entry: str, other: str) -> bool:
    """Returns whether another entry contains all of an entry, word for word."""
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


def appended(body: str, section: str, entry: str, *, level: int = 2) -> str:
    """Returns the body with `entry` as the last one of a section. A missing section is added at the end."""
    lines = body.rstrip("\n").split("\n")
    place = next((s for s in sections(body, 1) if s.title.casefold() == section.casefold()), None)
    if place is None:
        separator = [""] if lines[-1].strip() else []
        return "\n".join([*lines, *separator, f"{'#' * level} {section}", entry]) + "\n"
    end = min(place.end, len(lines))
    while end > place.start and not lines[end - 1].strip():
        end -= 1
    after = lines[end:]
    blank = [] if not after or not after[0].strip() else [""]
    return "\n".join([*lines[:end], *entry.split("\n"), *blank, *after]) + "\n"


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
    """Returns the body without its oldest dated entries, which have at least `lines_to_free` lines together if there
    are enough, and those entries.

    Undated entries and those that begin in a `spared` line stay. Entries of one day go in the order of the file.
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


def without(body: str, leaving: Iterable[Entry]) -> str:
    """Returns the body without these entries."""
    return without_lines(body, {number for entry in leaving for number in range(entry.start, entry.end + 1)})


ENTRY = "entry-"


def entry_id(text: str) -> str:
    """Returns the id of an archived entry, which follows from its text."""
    return ENTRY + hashlib.sha256(text.strip().encode("utf-8", "surrogatepass")).hexdigest()[:8]
