"""Anchors: items that the user marked as important, read from `anchors.yaml`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from mcp_server.text.entries import Entry
from mcp_server.text.markdown import yaml_line
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
    text = text or HEADER
    key, value = _pair(text)
    lines = text.splitlines(keepends=True)
    if key is None:
        behind, added = len(lines), f"{KEY}:{end}  - {entry(anchor)}"
    elif value.id == "scalar":  # nothing is below the key
        behind, added = key.start_mark.line + 1, f"  - {entry(anchor)}"
    elif value.flow_style:
        place = value.value[-1].end_mark.index if value.value else value.start_mark.index + 1
        return text[:place] + (", " if value.value else "") + entry(anchor) + text[place:]
    else:
        first, behind = _range(lines, value.value[-1])
        added = f"{lines[first].partition('-')[0]}- {entry(anchor)}"
    above = "".join(lines[:behind])
    return above + ("" if above.endswith("\n") else end) + added + end + "".join(lines[behind:])


def without_entries(text: str, places: Iterable[int]) -> str:
    """Returns the file's text without the entries at these positions, from 0, and without the comments in them."""
    key, value = _pair(text)
    if key is None or value.id == "scalar":
        return text
    leaving = [value.value[place] for place in sorted(places, reverse=True)]
    if value.flow_style:
        for node in leaving:
            rest = text[node.end_mark.index :]
            text = text[: node.start_mark.index] + (rest.lstrip().removeprefix(",").lstrip(" ") if rest else "")
        return text
    lines = text.splitlines(keepends=True)
    for node in leaving:
        first, behind = _range(lines, node)
        del lines[first:behind]
    return "".join(lines)


def _pair(text: str) -> tuple[Any, Any]:
    """Returns the nodes of the key `anchors` and of its value; None for both if there is no such key."""
    from ruamel.yaml import YAML

    root = YAML(typ="safe", pure=True).compose(text)
    pairs = root.value if root is not None and root.id == "mapping" else []
    return next(((key, value) for key, value in pairs if key.value == KEY), (None, None))


def _range(lines: Sequence[str], node: Any) -> tuple[int, int]:
    """Returns the first line of an entry of a block list, which has its dash, and the line after its last one."""
    first = node.start_mark.line
    while not lines[first].lstrip().startswith("-"):
        first -= 1
    while node.id != "scalar" and not node.flow_style:  # the mark of a block includes the comments after it
        node = node.value[-1][1] if node.id == "mapping" else node.value[-1]
    return first, max(node.end_mark.line + (node.end_mark.column > 0), first + 1)


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
