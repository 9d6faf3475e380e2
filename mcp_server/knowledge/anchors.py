"""Anchors: items that the user marked as important, read from `anchors.yaml`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from mcp_server.text.markdown import yaml_line

if TYPE_CHECKING:
    from ruamel.yaml.nodes import Node


from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, get_args

from mcp_server.text.entries import Entry
from mcp_server.text.prose import TOOL, extract
from mcp_server.text.words import fold, words

KEY = "anchors"
HEADER = "# What must not be forgotten: items, chunks, files, passages. `context-manager anchor` edits this too.\n"


def entry(anchor: Anchor) -> str:
    """Returns an anchor as one line of YAML, without its dash."""
    fields = {"item": anchor.item, "kind": anchor.kind, "note": anchor.note, "at": anchor.at}
    return "{" + ", ".join(f"{name}: {yaml_line(value)}" for name, value in fields.items() if value) + "}"


def with_entry(text: str, anchor: Anchor) -> str:
    """Returns the file's text with one more entry at the end. `text` is a YAML mapping, or empty."""
    end = "\r\n" if "\r\n" in text else "\n"
    if not text:
        text = HEADER
    lines = _lines(text)
    key, value = _pair(text)
    if key is None:
        return _ended(text, end) + f"{KEY}:{end}  - {entry(anchor)}{end}"
    if value.id == "scalar":  # nothing stands under it
        return _spliced(lines, key.start_mark.line + 1, f"  - {entry(anchor)}{end}", end)
    if value.flow_style:
        return _as_block(text, value, [*_entries(text), entry(anchor)], end)
    last = value.value[-1]
    first, behind = _range(lines, last)
    dash = lines[first][: len(lines[first]) - len(lines[first].lstrip())]
    return _spliced(lines, behind, f"{dash}- {entry(anchor)}{end}", end)


def without_entries(text: str, places: Sequence[int]) -> str:
    """Returns the file's text without the entries at these positions, from 0. Their comments become lines of their
    own."""
    key, value = _pair(text)
    if key is None or value.id == "scalar":
        return text
    end = "\r\n" if "\r\n" in text else "\n"
    if value.flow_style:
        left = [one for place, one in enumerate(_entries(text)) if place not in places]
        return _as_block(text, value, left, end)
    lines = _lines(text)
    for place in sorted(places, reverse=True):
        node = value.value[place]
        first, behind = _range(lines, node)
        dash = lines[first][: len(lines[first]) - len(lines[first].lstrip())]
        kept = [f"{dash}{comment}{end}" for comment in _comments(text, lines, first, behind, list(_scalars(node)))]
        lines[first:behind] = kept
    return "".join(lines)


def _pair(text: str) -> tuple[Any, Any]:
    """Returns the nodes of the key `anchors` and of its value; None for both if there is no such key."""
    from ruamel.yaml import YAML

    root = YAML(typ="safe", pure=True).compose(text)
    pairs = root.value if root is not None and root.id == "mapping" else []
    return next(((key, value) for key, value in pairs if key.value == KEY), (None, None))


def _lines(text: str) -> list[str]:
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _ended(text: str, end: str) -> str:
    return text if not text or text.endswith("\n") else text + end


def _spliced(lines: list[str], place: int, written: str, end: str) -> str:
    before = _ended("".join(lines[:place]), end)
    return before + written + "".join(lines[place:])


def _scalars(node: Any) -> Iterator[Node]:
    if node.id == "scalar":
        yield node
    for inner in node.value if node.id != "scalar" else ():
        for part in inner if isinstance(inner, tuple) else (inner,):
            yield from _scalars(part)


def _range(lines: list[str], node: Any) -> tuple[int, int]:
    """Returns the first line of an entry of a block list, which has its dash, and the line after its last one."""
    first = node.start_mark.line
    while not lines[first].lstrip().startswith("-"):
        first -= 1
    ends = (
        [node.end_mark] if node.id != "scalar" and node.flow_style else [scalar.end_mark for scalar in _scalars(node)]
    )
    behind = max(mark.line + (mark.column > 0) for mark in ends)
    return first, max(behind, first + 1)


def _comments(text: str, lines: list[str], first: int, behind: int, scalars: list[Any]) -> list[str]:
    """Returns the comments within these lines."""
    begin = sum(map(len, lines[:first]))
    within = text[begin : begin + sum(map(len, lines[first:behind]))]
    found = []
    place = 0
    while (place := within.find("#", place)) >= 0:
        inside = any(one.start_mark.index <= begin + place < one.end_mark.index for one in scalars)
        if inside or (place and within[place - 1] not in " \t\n"):
            place += 1
            continue
        comment = within[place:].split("\n", 1)[0]
        found.append(comment.rstrip())
        place += len(comment)
    return found


def _entries(text: str) -> list[str]:
    """Returns the entries of a list in brackets, each on one line."""
    from ruamel.yaml import YAML

    written = YAML(typ="safe", pure=True).load(text)[KEY]
    return [yaml_line(one) for one in written]


def _as_block(text: str, value: Any, entries: Sequence[str], end: str) -> str:
    """Returns the text with a list in brackets written as lines with dashes, and its comments above them."""
    start, behind = value.start_mark.index, value.end_mark.index
    lines = _lines(text)
    comments = _comments(text, lines, value.start_mark.line, value.end_mark.line + 1, list(_scalars(value)))
    before = text[:start].rstrip(" \t")
    rest = text[behind:].split("\n", 1)
    after = rest[1] if len(rest) > 1 else ""
    body = "".join(f"  {comment}{end}" for comment in comments) + "".join(f"  - {one}{end}" for one in entries)
    return f"{before}{end}{body}{after}"


AnchorKind = Literal["item", "chunk", "file", "passage"]

_CHUNK = re.compile(r"c[0-9a-f]{11}")
_PASSAGE = re.compile(r"(?P<path>.+\.md)#(?P<place>\d+)")


@dataclass(frozen=True, slots=True)
class Anchor:
    """An anchor. `item` is an item's id, a chunk's id, a workspace path, or `path#turn` (`path#line` in a file).

    `place` is the position of its entry in `anchors.yaml`, from 0.
    """

    item: str
    kind: AnchorKind
    note: str = ""
    at: str = ""
    place: int = -1


def kind_of(item: str) -> AnchorKind:
    """Returns the kind of an anchored text, by its form."""
    if _CHUNK.fullmatch(item):
        return "chunk"
    if _PASSAGE.fullmatch(item):
        return "passage"
    return "file" if item.endswith(".md") and "/" in item else "item"


def read_anchors(document: dict[str, Any]) -> tuple[list[Anchor], list[str]]:
    """Returns the anchors of a parsed `anchors.yaml`, and a sentence for each invalid entry."""
    anchors, problems = [], []
    listed = document.get("anchors") or []
    if not isinstance(listed, list):
        return [], ["anchors.yaml: `anchors:` must be a list; mend it by hand or from git"]
    for number, entry in enumerate(listed, start=1):
        if isinstance(entry, str):
            entry = {"item": entry}
        item = entry.get("item") if isinstance(entry, dict) else None
        if not isinstance(item, str) or not item.strip():
            problems.append(f"anchors.yaml: entry {number} has no `item:`; it is ignored")
            continue
        kind = entry.get("kind")
        known = kind if kind in get_args(AnchorKind) else kind_of(item)
        note, at = entry.get("note"), entry.get("at")
        anchors.append(Anchor(item.strip(), known, str(note or ""), str(at or ""), number - 1))
    return anchors, problems


def anchored_since(anchors: Iterable[Anchor], otherwise: datetime) -> dict[str, datetime]:
    """Returns the anchored items' lower-case ids, each with its date; `otherwise` if the file has no date."""
    return {anchor.item.lower(): _day(anchor.at) or otherwise for anchor in anchors if anchor.kind == "item"}


def _day(text: str) -> datetime | None:
    try:
        day = datetime.fromisoformat(text)
    except ValueError:
        return None
    return day.replace(tzinfo=UTC) if day.tzinfo is None else day.astimezone(UTC)


def names_one_of(text: str, items: Iterable[str]) -> bool:
    """Returns whether a text mentions one of these items: a single word as extraction finds names, several words in
    this order."""
    folded = fold(text)
    single = [item for item in items if " " not in item and fold(item.removeprefix(TOOL)) in folded]
    if single and not extract(text).keys().isdisjoint(single):
        return True
    phrases = [words(item) for item in items if " " in item]
    if not phrases:
        return False
    said = f" {' '.join(words(text))} "
    return any(phrase and f" {' '.join(phrase)} " in said for phrase in phrases)


def items_of(anchors: Iterable[Anchor]) -> frozenset[str]:
    """Returns the lower-case ids of the anchored items."""
    return frozenset(anchor.item.lower() for anchor in anchors if anchor.kind == "item")


def anchored_entries(items: Iterable[str], path: str, entries: Iterable[Entry], above: int) -> frozenset[int]:
    """Returns the first lines (in the body) of a file's entries that anchors protect.

    An anchor protects an entry if it names the file, a line of the entry, or an item that the entry mentions. `above`
    is the number of lines above the body.
    """
    listed = list(entries)
    of_kind: dict[AnchorKind, set[str]] = {"item": set(), "chunk": set(), "file": set(), "passage": set()}
    for item in items:
        of_kind[kind_of(item)].add(item)
    if path in of_kind["file"]:
        return frozenset(entry.start for entry in listed)
    places = (item.partition("#") for item in of_kind["passage"])
    lines = {int(place) for of, _, place in places if of == path}
    named = {item.lower() for item in of_kind["item"]}
    return frozenset(
        entry.start
        for entry in listed
        if not lines.isdisjoint(range(entry.start + above, entry.end + above + 1))
        or (named and not named.isdisjoint(extract(entry.text)))
    )
