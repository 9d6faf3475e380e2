"""Anchors: items that the user marked as important, read from `anchors.yaml`."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from mcp_server.errors import Invalid
from mcp_server.text.entries import Entry
from mcp_server.text.prose import TOOL, extract
from mcp_server.text.words import fold, words

KEY = "anchors"
HEADER = "# What must not be forgotten: items, chunks, files, passages. `context-manager anchor` edits this too.\n"
NO_LIST = "anchors.yaml: `anchors:` must be a list; repair it by hand or restore it from git"


def with_entries(text: str, anchors: Iterable[Anchor]) -> str:
    """Returns the file's text with more entries at the end. `text` is a YAML mapping, or empty."""
    from ruamel.yaml.comments import CommentedMap
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString

    def quoted(value: object) -> object:
        """Quotes a text that begins with `?`: without quotes, ruamel.yaml cannot read it back on one line."""
        return DoubleQuotedScalarString(value) if isinstance(value, str) and value.startswith("?") else value

    def add(entries: list[Any]) -> None:
        for anchor in anchors:
            fields = {"item": anchor.item, "kind": anchor.kind, "note": anchor.note, "at": anchor.at}
            entry = CommentedMap((name, quoted(value)) for name, value in fields.items() if value)
            entry.fa.set_flow_style()  # one line for each anchor: two versions of the file are merged by line
            entries.append(entry)

    return _edited(text or HEADER, add)


def without_entries(text: str, places: Iterable[int]) -> str:
    """Returns the file's text without the entries at these positions, from 0, and without the comments after them."""

    def remove(entries: list[Any]) -> None:
        for place in sorted(places, reverse=True):
            del entries[place]

    return _edited(text, remove)


def _edited(text: str, edit: Callable[[list[Any]], None]) -> str:
    """Returns the file's text after `edit` has changed the list of anchors. Other comments stay; the layout may change.
    Raises Invalid if `anchors` is not a list."""
    from ruamel.yaml import YAML
    from ruamel.yaml.comments import CommentedSeq

    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 10_000
    yaml.indent(mapping=2, sequence=4, offset=2)
    document = yaml.load(text)
    if document is None:  # only comments
        document = yaml.load(f"{text.rstrip()}\n{KEY}:\n")
    entries = document.get(KEY) or CommentedSeq()
    if not isinstance(entries, list):
        raise Invalid(NO_LIST)
    edit(entries)
    document[KEY] = entries or None  # an empty list after a comment would be written as invalid YAML
    out = io.StringIO(newline="\r\n" if "\r\n" in text else "\n")
    yaml.dump(document, out)
    return out.getvalue()


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
        return [], [NO_LIST]
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
    """Returns whether a text mentions one of these items. `extract` must find an item of one word in the text; the
    words of a longer item must follow each other in the text."""
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
