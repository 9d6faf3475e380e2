"""Merges two versions of a file without losing anything of either, and without conflict markers.

A change by only one side is applied. If both sides changed the same place, the lines that either side added are kept
under their headings. A line that both edited is kept twice, each version with its day. Front matter is merged by field,
machine-readable lists (`anchors.yaml`, `*.jsonl`) by entry.

`git merge-file` cannot replace the comparison of the three versions: it needs git and files, while knowledge is also
merged where git is missing, and its conflicts come back as marked text that would have to be parsed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher, get_close_matches

from mcp_server.text.entries import MARK, remarked


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of lines in the three versions. `settled` is its result; None if both sides changed it differently."""

    base: tuple[str, ...]
    ours: tuple[str, ...]
    theirs: tuple[str, ...]

    @property
    def settled(self) -> tuple[str, ...] | None:
        """The version of the side that changed it, or of both if they agree."""
        if self.ours == self.theirs or self.theirs == self.base:
            return self.ours
        return self.theirs if self.ours == self.base else None


def pieces(base: Sequence[str], ours: Sequence[str], theirs: Sequence[str]) -> Iterator[Piece]:
    """Yields the three versions in runs, in order; lines that all three share are runs of their own. (diff3: Khanna,
    Kunal, Pierce, "A Formal Investigation of Diff3", 2007)"""
    at_base = at_ours = at_theirs = 0
    for start, end, in_ours, in_theirs in _runs_in_all(base, ours, theirs):
        between = Piece(tuple(base[at_base:start]), tuple(ours[at_ours:in_ours]), tuple(theirs[at_theirs:in_theirs]))
        if between.base or between.ours or between.theirs:
            yield between
        if same := tuple(base[start:end]):
            yield Piece(same, same, same)
        at_base, at_ours, at_theirs = end, in_ours + end - start, in_theirs + end - start


def common(ours: Sequence[str], theirs: Sequence[str]) -> list[str]:
    """Returns the lines that two versions share, in order. They serve as the base if there is no common ancestor."""
    matcher = SequenceMatcher(None, ours, theirs, autojunk=False)
    return [line for block in matcher.get_matching_blocks() for line in ours[block.a : block.a + block.size]]


def _runs_in_all(
    base: Sequence[str], ours: Sequence[str], theirs: Sequence[str]
) -> Iterator[tuple[int, int, int, int]]:
    """Yields (start, end, start in ours, start in theirs) of each run of the base that both sides kept, and of the
    end."""
    kept = SequenceMatcher(None, base, ours, autojunk=False).get_matching_blocks()
    also = SequenceMatcher(None, base, theirs, autojunk=False).get_matching_blocks()
    i = j = 0
    while i < len(kept) and j < len(also):
        a, b = kept[i], also[j]
        start, end = max(a.a, b.a), min(a.a + a.size, b.a + b.size)
        if start < end:
            yield start, end, a.b + start - a.a, b.b + start - b.a
        if a.a + a.size < b.a + b.size:
            i += 1
        else:
            j += 1
    yield len(base), len(base), len(ours), len(theirs)


ALIKE = 0.5
"""Minimum `difflib` ratio at which a line counts as an edit of another line."""

_HEADING = re.compile(r"#{1,6}\s")
_BULLET = re.compile(r"(\s*(?:[-*+]|\d+[.)])\s+(?:\[[ xX]\]\s+)?)(.*)", re.DOTALL)
_DATED = re.compile(r"\d{4}-\d\d-\d\d")
_UNDATED = re.compile(r"\s*(?:$|[|#>`~<]|---|===)")
_SOURCES = re.compile(rf"((?:\s*{MARK})+\s*)$")
_FIELD = re.compile(r"([A-Za-z_][\w-]*):")
_LIST = re.compile(r"\[(.*)\]\s*")
_ITEM = re.compile(r"item:\s*(\"[^\"]*\"|'[^']*'|[^,}\s][^,}]*)")


def merged(path: str, base: str | None, ours: str, theirs: str, days: tuple[str, str]) -> tuple[str, int]:
    """Merges two versions of a text. Returns the text, and the number of places that both sides edited.

    `base` is their common ancestor, if any; `days` are the dates of ours and theirs (YYYY-MM-DD).
    """
    if ours == theirs or theirs == base:
        return ours, 0
    if ours == base:
        return theirs, 0
    end = "\r\n" if "\r\n" in ours and "\r\n" in theirs else "\n"
    texts = [None if text is None else text.replace("\r\n", "\n") for text in (base, ours, theirs)]
    if path.startswith(("knowledge/", "archive/")):  # one side may have been written by an older version
        texts = [None if text is None else remarked(text) for text in texts]
    before, one, other = ([] if text is None else text.split("\n") for text in texts)
    if not path.endswith(".md"):
        lines, contested = _merged_lines(path, before if base is not None else common(one, other), one, other, days)
    else:
        cuts = [(text, _head_lines(text)) for text in (before, one, other)]
        heads, (before, one, other) = [text[:cut] for text, cut in cuts], (text[cut:] for text, cut in cuts)
        start = before if base is not None else common(one, other)
        lines, contested = _merged_lines(path, start, one, _without_added_twice(start, one, other), days)
        lines = [*_merged_head(heads[0], heads[1], heads[2], days), *lines]
    return end.join(lines), contested


def _merged_lines(
    path: str, base: Sequence[str], ours: Sequence[str], theirs: Sequence[str], days: tuple[str, str]
) -> tuple[list[str], int]:
    """Returns the merged lines, and the number of places that both sides edited."""
    lines: list[str] = []
    contested = 0
    for piece in pieces(base, ours, theirs):
        if piece.settled is not None:
            lines += piece.settled
            continue
        gone, came, other = _changes(piece)
        edits = _edits(gone, came, other)
        contested += len(edits)
        if path.endswith((".yaml", ".yml")) and path != "anchors.yaml":
            lines += _as_comments(piece, days[1])
            continue
        dated: dict[str, str] = {}
        if path.endswith(".md") and not path.startswith("knowledge/journal/"):
            for pair in edits:
                dated |= {line: _dated(line, day) for line, day in zip(pair, days, strict=True)}
        lines += _joined_changes(piece, came, other, dated)
    return _each_item_once(lines) if path == "anchors.yaml" else lines, contested


def _without_added_twice(base: Sequence[str], ours: Sequence[str], theirs: Sequence[str]) -> list[str]:
    """Returns the lines of `theirs` without those that `ours` has added too, even in another place."""
    started = Counter(base)
    twice = (Counter(ours) - started) & (Counter(theirs) - started)
    kept: list[str] = []
    for line in reversed(theirs):  # of equal lines the last ones were added
        if twice[line] > 0 and not _UNDATED.match(line):
            twice[line] -= 1
        else:
            kept.append(line)
    return kept[::-1]


def _changes(piece: Piece) -> tuple[list[str], list[str], list[str]]:
    """Returns lines of the base that neither side kept, lines that are new in ours only, and in theirs only."""
    base, ours, theirs = set(piece.base), set(piece.ours), set(piece.theirs)
    gone = [line for line in piece.base if line.strip() and line not in ours and line not in theirs]
    came = [line for line in piece.ours if line.strip() and line not in base and line not in theirs]
    other = [line for line in piece.theirs if line.strip() and line not in base and line not in ours]
    return gone, came, other


def _edits(gone: Sequence[str], came: Sequence[str], other: Sequence[str]) -> list[tuple[str, str]]:
    """Returns (ours, theirs) for each line that both sides replaced by another line."""
    if len(gone) == len(came) == len(other) == 1:
        return [(came[0], other[0])]
    similar = [[get_close_matches(line, new, n=1, cutoff=ALIKE) for new in (came, other)] for line in gone]
    return [(one[0], two[0]) for one, two in similar if one and two]


def _joined_changes(piece: Piece, came: Sequence[str], other: Sequence[str], dated: Mapping[str, str]) -> list[str]:
    """Returns our lines without those that the other side removed, and with those that it added, each under its
    heading."""
    base, theirs = set(piece.base), set(piece.theirs)
    lines = [line for line in piece.ours if not line.strip() or line not in base or line in theirs]
    added, heading = set(other), ""
    blocks: dict[str, list[str]] = {}
    for line in piece.theirs:
        if _HEADING.match(line):
            heading = line
        if line in added:
            blocks.setdefault(heading, []).append(line)
    lines = [dated.get(line, line) if line in set(came) else line for line in lines]
    for heading, block in blocks.items():
        block = [dated.get(line, line) for line in block]
        place = _end_of(lines, heading)
        lines[place:place] = block
    return lines


def _end_of(lines: Sequence[str], heading: str) -> int:
    """Returns the place after the last line with text under a heading; without that heading, after all text."""
    start, stop = 0, len(lines)
    if heading in lines:
        start = lines.index(heading) + 1
        level = len(heading) - len(heading.lstrip("#"))
        ends = (
            place
            for place in range(start, len(lines))
            if _HEADING.match(lines[place]) and len(lines[place]) - len(lines[place].lstrip("#")) <= level
        )
        stop = next(ends, len(lines))
    elif not heading:
        stop = next((place for place, line in enumerate(lines) if _HEADING.match(line)), len(lines))
    while stop > start and not lines[stop - 1].strip():
        stop -= 1
    return stop


def _dated(line: str, day: str) -> str:
    """Returns the line with the day of its version. Headings, quotations and code stay as they are."""
    if _UNDATED.match(line):
        return line
    source = "".join(_SOURCES.findall(line)[:1])
    text = line.removesuffix(source) if source else line
    bullet = _BULLET.fullmatch(text)
    if bullet is None:
        return f"- {day}: {text.strip()}{source}"
    if _DATED.match(bullet[2]):
        return f"{text} (as of {day}){source}"
    return f"{bullet[1]}{day}: {bullet[2]}{source}"


# ------------------------------------------------------------ files for programs


def _as_comments(piece: Piece, day: str) -> list[str]:
    """Returns our lines of settings, with the other side's values of the same keys as comments. Keys that only the
    other side has are added."""
    gone, _, other = _changes(piece)
    keys = {_key(line) for line in piece.ours}
    removed = {line for line in piece.base if line not in piece.theirs}
    kept = [line for line in piece.ours if line not in removed or _key(line) in {_key(one) for one in gone}]
    added = [line if _key(line) not in keys else f"# {day}, another copy: {line.strip()}" for line in other]
    return [*kept, *added]


def _key(line: str) -> str:
    return line.split(":", 1)[0].strip()


def _each_item_once(lines: Sequence[str]) -> list[str]:
    seen: set[str] = set()
    kept: list[str] = []
    for line in lines:
        item = _ITEM.search(line)
        if item and item[1].strip() in seen:
            continue
        seen.update([item[1].strip()] if item else [])
        kept.append(line)
    return kept


def _head_lines(lines: Sequence[str]) -> int:
    """Returns the number of lines of the front matter including its fences; 0 without one."""
    if not lines or lines[0].rstrip() != "---":
        return 0
    return next((place + 1 for place in range(1, len(lines)) if lines[place].rstrip() == "---"), 0)


def _merged_head(base: Sequence[str], ours: Sequence[str], theirs: Sequence[str], days: tuple[str, str]) -> list[str]:
    """Merges front matter by field. If both sides changed a field: the union of a list, else the later value."""
    if not ours or not theirs:
        return [*(ours or theirs)]
    before, one, other = _fields(base), _fields(ours), _fields(theirs)
    lines: list[str] = []
    for name in [*one, *(name for name in other if name not in one)]:
        versions = Piece(before.get(name, ()), one.get(name, ()), other.get(name, ()))
        settled = versions.settled
        lines += settled if settled is not None else _one_field(versions, days)
    return [ours[0], *lines, ours[-1]]


def _one_field(versions: Piece, days: tuple[str, str]) -> tuple[str, ...]:
    if not versions.ours or not versions.theirs:
        return versions.ours or versions.theirs
    first, second = (_LIST.fullmatch(lines[0].partition(":")[2].strip()) for lines in (versions.ours, versions.theirs))
    if first and second and len(versions.ours) == len(versions.theirs) == 1:
        items = dict.fromkeys(item.strip() for found in (first, second) for item in found[1].split(",") if item.strip())
        return (f"{versions.ours[0].partition(':')[0]}: [{', '.join(items)}]",)
    if versions.ours[0].startswith("updated:"):
        return max(versions.ours, versions.theirs)
    return versions.theirs if days[1] > days[0] else versions.ours


def _fields(lines: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Returns the lines of each field by name. Comments and continuation lines belong to the field before."""
    fields: dict[str, tuple[str, ...]] = {}
    name = ""
    for line in lines[1:-1]:
        found = _FIELD.match(line)
        name = found[1] if found else name
        fields[name] = (*fields.get(name, ()), line)
    return fields
