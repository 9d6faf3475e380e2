"""Splits a message into sentences and keeps where each one stands: paragraph, list, table, heading."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from mcp_server.text.prose import sentences as whole_sentences

Layout = Literal["paragraph", "bullet", "row", "heading"]

MAX_LINE = 4_000
"""Characters. A longer line is data, not prose, and is skipped."""

MAX_MESSAGE = 20_000
"""Characters of a message that are read."""

LONG = 220
"""Characters. A longer sentence, as dictation gives it, is cut where a new clause begins."""

_FENCE = re.compile(r"^\s*(?:>\s*)*(`{3,}|~{3,})")
_RULE = re.compile(r"[|:\-\s=*_]+")
_BULLET = re.compile(r"(?:[-*+•]|\(?\d{1,2}[.)]|\(?[a-fA-F][.)])\s+(?:\[([ xX])\]\s+)?")
_HEADING = re.compile(r"#{1,6}\s+")
_OPTION = re.compile(
    r"\s*(?:#{1,6}\s+)?[-*+•|]*\s*\**\s*\(?"
    r"(?:option|variant|variante|plan|opcija|nr\.?|no\.?|#)?\s*([1-9]|[A-Fa-f])\s*[.):|–-]\**\s",
    re.IGNORECASE,
)
_LISTED = re.compile(r"(?<![^\s(])\(?(?:option\s+)?([1-9A-Fa-f])([.):,])\s+(?=\S)", re.IGNORECASE)
"""The mark of an option within a line."""

_CLAUSE = re.compile(
    r"(?<=[,;])\s+|\s+(?=(?:and|but|so|because|well|ok|also|then|listen)\s+"
    r"(?:i|we|he|she|they|the|you|if|it|when|please|that|there|my|no)\b)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of a message. `option` is the number of the listed option that it belongs to (A counts as 1), or 0.
    If one list has letters and another one numbers, only the first list has options. `point` is the number of its point
    in a list without numbers, or of its row in a table (0 for the first one, which names the columns), else 0. `box` is
    "open" or "ticked" for the first sentence behind a task box."""

    text: str
    layout: Layout
    option: int = 0
    box: str = ""
    point: int = 0


def sentences(message: str) -> list[Sentence]:
    """Returns the sentences of a message in order, without code blocks, table rules and list marks."""
    found: list[Sentence] = []
    fence = ""
    option = point = 0
    lettered: bool | None = None
    for line in message[:MAX_MESSAGE].split("\n"):
        mark = _FENCE.match(line)
        if fence:
            fence = "" if mark and mark[1].startswith(fence) else fence
            continue
        if mark:
            fence = mark[1]
            continue
        text = line.strip()
        if not text or _RULE.fullmatch(text) or len(text) > MAX_LINE:
            continue
        layout: Layout = "paragraph"
        box = ""
        numbered = _OPTION.match(line)
        if numbered and lettered is None:
            lettered = numbered[1].isalpha()
        if numbered and lettered == numbered[1].isalpha():
            option = _number(numbered[1])
        elif not numbered and not line[0].isspace() and not text.startswith(("|", "-", "*")):
            option = 0
        if text.startswith("|"):
            cells = [cell.strip() for cell in text.strip("|").split("|")]
            row = found[-1].point + 1 if found and found[-1].layout == "row" else 0
            found.append(Sentence(" | ".join(cell for cell in cells if cell), "row", option, point=row))
            point = 0
            continue
        if heading := _HEADING.match(text):
            layout, text = "heading", text[heading.end() :]
        elif bullet := _BULLET.match(text):
            layout, text = "bullet", text[bullet.end() :]
            box = "" if bullet[1] is None else "open" if bullet[1] == " " else "ticked"
            point += not (option or line[0].isspace())
        if layout != "bullet" and not line[0].isspace():
            point = 0
        parts = _with_options(split(text), option)
        found += [Sentence(part, layout, of, "" if place else box, point) for place, (part, of) in enumerate(parts)]
    return found


def _with_options(parts: Sequence[str], option: int) -> list[tuple[str, int]]:
    """Returns the sentences of a line, each with its option. A line may list several: "1: arrows. 2: mouse."."""
    marks = [_LISTED.match(part) for part in parts]
    numbers = {_number(mark[1]) for mark in marks if mark}
    found: list[tuple[str, int]] = []
    for part, mark in zip(parts, marks, strict=True):
        if mark and _number(mark[1]) == option + 1 and numbers & {option, option + 2}:
            option, part = option + 1, part[mark.end() :]
        found.append((part, option))
    return found


def options_in(sentence: str) -> dict[int, tuple[int, int, int]]:
    """Returns where the options of a sentence stand that lists at least two of them ("a) dawn, b) dusk"): each with the
    place of its mark, of its text, and of its end."""
    marks: list[re.Match[str]] = []
    for mark in _LISTED.finditer(sentence):
        if _number(mark[1]) == len(marks) + 1 and (not marks or mark[2] == marks[0][2]):
            marks.append(mark)
    ends = [*(mark.start() for mark in marks[1:]), len(sentence)]
    places = [(mark.start(), mark.end(), end) for mark, end in zip(marks, ends, strict=False)]
    return dict(enumerate(places, 1)) if len(marks) > 1 else {}


def only_options(sentence: str, chosen: Collection[int]) -> str:
    """Returns a sentence without the options that it lists and that were not chosen."""
    places = options_in(sentence)
    if not places or not places.keys() & set(chosen):
        return sentence
    kept = [sentence[start:end].strip(" (,;.!?") for number, (_, start, end) in places.items() if number in chosen]
    return f"{sentence[: places[1][0]].rstrip(' (')} {', '.join(kept)}.".lstrip()


def split(text: str) -> list[str]:
    """Returns the sentences of a line; a long one is cut at clause borders."""
    return [clause for part in whole_sentences(text) for clause in (_clauses(part) if len(part) > LONG else [part])]


def _clauses(text: str) -> list[str]:
    """Cuts a long sentence at clause borders into parts of at least LONG / 3 characters."""
    parts: list[str] = []
    for clause in _CLAUSE.split(text):
        if parts and len(parts[-1]) < LONG // 3:
            parts[-1] += " " + clause
        else:
            parts.append(clause)
    if len(parts) > 1 and len(parts[-1]) < LONG // 6:
        last = parts.pop()
        parts[-1] += " " + last
    return parts


def _number(mark: str) -> int:
    return int(mark) if mark.isdigit() else ord(mark.lower()) - ord("a") + 1
