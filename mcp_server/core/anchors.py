"""Anchors: what the user marked as important, as it stands in `anchors.yaml`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, get_args

AnchorKind = Literal["item", "chunk", "file", "passage"]

_CHUNK = re.compile(r"c[0-9a-f]{11}")
_PASSAGE = re.compile(r"(?P<path>.+\.md)#(?P<place>\d+)")


@dataclass(frozen=True, slots=True)
class Anchor:
    """One anchor. `item` is an item's id, a chunk's id, a workspace path, or `path#turn` (`path#line` in a file)."""

    item: str
    kind: AnchorKind
    note: str = ""
    at: str = ""


def kind_of(item: str) -> AnchorKind:
    """What an anchored text names, by its shape."""
    if _CHUNK.fullmatch(item):
        return "chunk"
    if _PASSAGE.fullmatch(item):
        return "passage"
    return "file" if item.endswith(".md") and "/" in item else "item"


def read_anchors(document: dict[str, Any]) -> tuple[list[Anchor], list[str]]:
    """The anchors of a parsed `anchors.yaml`, and a sentence for each entry that is none."""
    anchors, problems = [], []
    listed = document.get("anchors") or []
    if not isinstance(listed, list):
        return [], ["anchors.yaml: `anchors:` must be a list; mend it by hand or from git"]
    for number, entry in enumerate(listed, start=1):
        if isinstance(entry, str):
            entry = {"item": entry}
        item = entry.get("item") if isinstance(entry, dict) else None
        if not isinstance(item, str) or not item.strip():
            problems.append(f"anchors.yaml: entry {number} has no `item:`; it is passed over")
            continue
        kind = entry.get("kind")
        known = kind if kind in get_args(AnchorKind) else kind_of(item)
        note, at = entry.get("note"), entry.get("at")
        anchors.append(Anchor(item.strip(), known, str(note or ""), str(at or "")))
    return anchors, problems


def items_of(anchors: Iterable[Anchor]) -> frozenset[str]:
    """The ids of the anchored items, lower case."""
    return frozenset(anchor.item.lower() for anchor in anchors if anchor.kind == "item")
