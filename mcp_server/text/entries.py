"""Knowledge files as people write them: bullets under headings. Pure edits of what stands below the front matter."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass

from mcp_server.errors import NotFound
from mcp_server.text.markdown import sections, without_comments

_BULLET = re.compile(r"^[-*+] ")
_DATE = re.compile(r"^(?:\d{4}-\d{2}-\d{2})(?:\s*[:—–-]\s*|\s+)")
EARLIER = "earlier: "
"""Begins a line below an entry: how the same, or nearly the same, was put before."""

_EARLIER = (EARLIER, "also: ")
"""The second is how files of before say it."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One bullet with its continuation lines: lines `start` to `end` of the body, `date` as written or ''."""

    section: str
    text: str
    start: int
    end: int
    date: str


def written(content: str, date: str | None) -> str:
    """`content` as one bullet, dated if a date is given; further lines are indented, and none becomes a heading or
    begins a comment that would hide what follows."""
    first, *rest = content.strip().splitlines()
    first = _BULLET.sub("", first.strip())
    if date and not _DATE.match(first):
        first = f"{date}: {first}"
    lines = [f"- {first}"] + [f"  {_plain(line.rstrip())}".rstrip() for line in rest]
    return "\n".join(lines)


def _plain(line: str) -> str:
    return re.sub(r"^(\s*)(#{1,6}\s|=+\s*$|-+\s*$|```|~~~|<!--)", r"\1\\\2", line)


def entries(body: str) -> list[Entry]:
    """Every top-level bullet of the body, in order. Comments are no entries: templates explain themselves in them."""
    lines, written_lines = without_comments(body).split("\n"), body.split("\n")
    heading_of = {
        number: section.title for section in sections(body, 1) for number in range(section.start, section.end + 1)
    }
    headings = {section.start for section in sections(body, 1) if section.title}
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
        found.append(Entry(heading_of.get(number, ""), text, number, end, dated[0][:10] if dated else ""))
        number = end + 1
    return found


def normalised(entry: str) -> str:
    """What two entries must share to be the same: words, without date, bullet, case, accents and final punctuation."""
    lines = [line.strip() for line in entry.strip().split("\n")]
    text = _DATE.sub("", _BULLET.sub("", " ".join(lines)))
    folded = "".join(c for c in unicodedata.normalize("NFKD", text.casefold()) if not unicodedata.combining(c))
    return " ".join(folded.split()).rstrip(".!;, ")


def same_entry(body: str, content: str) -> Entry | None:
    """The entry that says the same as `content`, if there is one."""
    wanted = normalised(written(content, None))
    return next((entry for entry in entries(body) if normalised(entry.text) == wanted), None)


def statement(entry: str) -> str:
    """What an entry says now: without date, bullet and other wordings."""
    lines = [line.strip() for line in entry.strip().split("\n")]
    return _DATE.sub("", _BULLET.sub("", " ".join(line for line in lines if not line.startswith(_EARLIER))))


def similar_entry(body: str, section: str, content: str, alike: Callable[[str, str], bool]) -> Entry | None:
    """The last entry of a section that says the same as `content` in other words, as `alike` judges."""
    wanted = statement(content)
    inside = [entry for entry in entries(body) if entry.section.casefold() == section.casefold()]
    return next((entry for entry in reversed(inside) if alike(statement(entry.text), wanted)), None)


def tells_no_more(entry: str, other: str) -> bool:
    """Whether all that an entry says stands, word for word, in another."""
    return re.search(rf"(?<!\S){re.escape(normalised(entry))}(?![^\s.,;:!?])", normalised(other)) is not None


def reworded(body: str, entry: Entry, new: str, keep: bool) -> str:
    """The body with `new`, a bullet, in an entry's place; with `keep` the old words stay below it."""
    first, *rest = (line.strip() for line in entry.text.split("\n"))
    wordings = [line for line in rest if line.startswith(_EARLIER)]
    if keep:
        said = " ".join([_BULLET.sub("", first), *(line for line in rest if not line.startswith(_EARLIER))])
        wordings.insert(0, f"{EARLIER}{said}")
    lines = body.split("\n")
    return "\n".join([*lines[: entry.start - 1], new, *(f"  {line}" for line in wordings), *lines[entry.end :]])


def appended(body: str, section: str, entry: str, *, level: int = 2) -> str:
    """The body with `entry` as the last of its section; the section is made at the end if it is missing."""
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
    """The body with `content` as all that stands under the heading `section`, subsections included.

    Raises:
        NotFound: if there is no such heading; the message lists those there are.
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
    """The body without its oldest dated entries, at least `lines_to_free` lines fewer if it has that many; and those
    entries.

    Undated entries stay: nobody knows their age; and so do those that begin in a `spared` line. Entries of one day go
    in the order in which they were written.
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
    drop = {number for entry in leaving for number in range(entry.start, entry.end + 1)}
    kept = [line for number, line in enumerate(body.split("\n"), start=1) if number not in drop]
    return "\n".join(kept), leaving


ENTRY = "entry-"


def entry_id(text: str) -> str:
    """Returns the id of an archived entry, which follows from its text."""
    return ENTRY + hashlib.sha256(text.strip().encode("utf-8", "surrogatepass")).hexdigest()[:8]
