"""`anchors.yaml` changed only where it must be: comments, order, blank lines and line ends of a person stay.

Our own entries are one line each, so that two machines' additions merge line by line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from mcp_server.knowledge.anchors import Anchor
from mcp_server.text.yaml import dump_line

if TYPE_CHECKING:
    from ruamel.yaml.nodes import Node

KEY = "anchors"
HEADER = "# What must not be forgotten: items, chunks, files, passages. `context-manager anchor` edits this too.\n"


def entry(anchor: Anchor) -> str:
    """An anchor as one line of YAML, without its dash."""
    fields = {"item": anchor.item, "kind": anchor.kind, "note": anchor.note, "at": anchor.at}
    return "{" + ", ".join(f"{name}: {dump_line(value)}" for name, value in fields.items() if value) + "}"


def with_entry(text: str, anchor: Anchor) -> str:
    """The file's text with one more entry, behind the last. `text` is valid YAML: a mapping, or nothing."""
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
    """The file's text without the entries at these places (from 0); comments in and beside them become lines of their
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
    """The nodes of `anchors:` and of what stands under it; None for both without any."""
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
    """The lines of an entry of a block list: from its dash to the last of its words; the second number is behind it."""
    first = node.start_mark.line
    while not lines[first].lstrip().startswith("-"):
        first -= 1
    ends = (
        [node.end_mark] if node.id != "scalar" and node.flow_style else [scalar.end_mark for scalar in _scalars(node)]
    )
    behind = max(mark.line + (mark.column > 0) for mark in ends)
    return first, max(behind, first + 1)


def _comments(text: str, lines: list[str], first: int, behind: int, scalars: list[Any]) -> list[str]:
    """The comments within these lines."""
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
    """The entries of a list in brackets, as they are written, each on one line."""
    from ruamel.yaml import YAML

    written = YAML(typ="safe", pure=True).load(text)[KEY]
    return [dump_line(one) for one in written]


def _as_block(text: str, value: Any, entries: Sequence[str], end: str) -> str:
    """A list in brackets as one with dashes, which can be added to line by line; comments in it stand above it."""
    start, behind = value.start_mark.index, value.end_mark.index
    lines = _lines(text)
    comments = _comments(text, lines, value.start_mark.line, value.end_mark.line + 1, list(_scalars(value)))
    before = text[:start].rstrip(" \t")
    rest = text[behind:].split("\n", 1)
    after = rest[1] if len(rest) > 1 else ""
    body = "".join(f"  {comment}{end}" for comment in comments) + "".join(f"  - {one}{end}" for one in entries)
    return f"{before}{end}{body}{after}"
