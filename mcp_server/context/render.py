"""Renders stored text as data: under labels that it cannot forge, marked with its origin.

<!-- slot: where it comes from -->  begins a block; `neutralise` leaves no such opener in stored text
[2026-05-02 · Title]                begins what was found in one conversation or file
Name: what was said                 one turn; its further lines are indented, so that they forge neither
"""

from __future__ import annotations

import re
from datetime import date
from functools import lru_cache

from mcp_server.model import Passage, Turn
from mcp_server.text.dates import written
from mcp_server.text.derived_lines import is_derived, without_sources
from mcp_server.text.fencing import neutralise
from mcp_server.text.markdown import without_comments

SEPARATOR = "\n\n"

_EMPTY_HEADING = re.compile(r"^(#{1,6}) [^\n]*(?:\n\s*(?=(?!\1#)#{1,6} )|\s*\Z)", re.MULTILINE)
"""A heading, followed by nothing but a heading that is no deeper, or by the end."""

_DAY = re.compile(r"(\d{4}-\d{2}-\d{2}): ")
_LOOSE = re.compile(r"^([ \t]*[-*+] [^\n]*)\n\n(?=[ \t]*[-*+] )", re.MULTILINE)
"""A bullet and a blank line before the next one."""
_BLANK_LINES = re.compile(r"\n(?:[ \t]*\n)+")
_LONGEST_NAME = 80
_LONGEST_TITLE = 48
_LONGEST_PATH = 300


def one_line(text: str, longest: int) -> str:
    """Returns stored text for a label or a header: neutralized, on one line, cut at a word with an ellipsis."""
    return _one_line(text[: 4 * longest], longest)


@lru_cache(maxsize=1024)  # titles, paths and names are repeated
def _one_line(text: str, longest: int) -> str:
    line = " ".join(neutralise(text).split())
    if len(line) <= longest:
        return line
    return line[:longest].rsplit(" ", 1)[0].rstrip(",;:.-– ") + "…"


def label(slot: str, source: str) -> str:
    """Returns the comment that begins a section and names its source."""
    return f"<!-- {slot}: {one_line(source, 400).replace('>', '›')} -->"


def file_text(text: str) -> str:
    """Returns a workspace file's text, neutralized, with blanked comments and without marks of sources.

    Line numbers stay the same.
    """
    return neutralise(without_sources(without_comments(text))).rstrip()


def tight(text: str) -> str:
    """Returns the text without empty sections, repeated blank lines, and blank lines between bullets."""
    return _LOOSE.sub(r"\1\n", _BLANK_LINES.sub("\n\n", _EMPTY_HEADING.sub("", text))).strip("\n")


def without_blank_lines(text: str) -> str:
    return _BLANK_LINES.sub("\n", text.strip("\n"))


def indented(text: str) -> str:
    """Text whose further lines cannot be mistaken for a header or another speaker's turn."""
    return without_blank_lines(text).replace("\n", "\n ")


def speaker(role: str, name: str | None) -> str:
    """Who a turn is by: the name where people have names, else the role."""
    return one_line(name, _LONGEST_NAME) if name else role


def said(who: str, text: str) -> str:
    """Returns a turn as a line of a section. It is neutralized as a whole, because a person may be called "System"."""
    return neutralise(f"{who}: {indented(neutralise(text))}")


def turn_text(turn: Turn) -> str:
    """Returns a turn's text, and one line for each tool call."""
    calls = [
        f"> [tool:{call.name}] {call.summary}" + (f" → {call.result}" if call.result else "")
        for call in turn.tool_calls
    ]
    return "\n".join([turn.content, *calls] if turn.content else calls)


def group_header(passage: Passage, *, cut: bool, short: bool = False) -> str:
    """Returns the line above what was found in one conversation or file on one day; with `cut`, it also says how to
    read the rest. With `short`, the header of a conversation is its day, and that of a project's page its project."""
    date = passage.at.date().isoformat() if passage.at and not is_derived(passage.text) else ""
    if short and passage.category == "project" and passage.path.endswith("/context.md"):
        return _header(f"project {one_line(passage.path.split('/')[-2], _LONGEST_PATH)}", date)
    if passage.category != "conversation":
        return _header(one_line(passage.path, _LONGEST_PATH), date)
    if short and date:
        return _header(date)
    return _header(
        date, one_line(passage.title, _LONGEST_TITLE), f"read {one_line(passage.path, _LONGEST_PATH)}" if cut else ""
    )


def _header(*parts: str) -> str:
    return f"[{' · '.join(part for part in parts if part)}]"


def passage_text(passage: Passage) -> str:
    """Returns a passage's text without marks of sources and without a section's heading, which is in its title."""
    if passage.category == "conversation":
        return passage.text
    if passage.text.startswith("#"):
        return passage.text.partition("\n")[2] or passage.text
    return _line_text(passage.text) if is_derived(passage.text) else passage.text


def _line_text(line: str) -> str:
    """Returns a derived line's text, without its day if the text names the day."""
    text = without_sources(line).removeprefix("- ")
    dated = _DAY.match(text)
    if dated is None:
        return text
    try:
        day = written(date.fromisoformat(dated[1]))
    except ValueError:
        return text
    return text[dated.end() :] if day in text else text


def passage_line(passage: Passage, text: str, *, cut: bool) -> str:
    """Returns a passage as a line under its header: with its speaker, or with its lines in the file and its title."""
    lines = f"{passage.start}-{passage.end}"
    if passage.category == "conversation":
        return said(speaker(passage.role or "user", passage.speaker), text) + (f" (lines {lines})" if cut else "")
    if is_derived(passage.text):  # it contains who and when
        return neutralise(indented(neutralise(text)))
    return said(f"{lines} {one_line(passage.title, 2 * _LONGEST_TITLE)}".rstrip(), text)
