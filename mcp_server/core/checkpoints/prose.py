"""Prose: what of a message is words and no code, and how an entry made of it is kept."""

from __future__ import annotations

import re
from collections.abc import Iterator

LONGEST = 200
"""Characters of an entry (S3: decisions; here open items too)."""

_FENCE = re.compile(r"\s*(?:>\s*)*(?:(?:[-*+]|\d+[.)])\s+)?(`{3,}|~{3,})(.*)")
_BULLET = re.compile(r"^(?:[-*+]|\d+[.)])\s+(?:\[[ xX]\]\s+)?")
_HEADING = re.compile(r"^#{1,6}\s+")


def prose(text: str) -> Iterator[str]:
    """The lines of a text that are neither blank nor code, stripped. A fence that is never closed runs to the end."""
    fence = ""
    for line in text.splitlines():
        code = _FENCE.match(line)
        if fence:
            if code and code[1].startswith(fence) and not code[2].strip():
                fence = ""
        elif code and "`" not in code[2]:
            fence = code[1]
        elif line.strip():
            yield line.strip()


def bare(line: str) -> str:
    """A line without its heading marks, bullet, number or task box."""
    return _BULLET.sub("", _HEADING.sub("", line.strip(), count=1), count=1).strip()


def entry(text: str) -> str:
    """A text as an entry is kept: on one line, without bullet and bold marks, cut at a word after 200 characters."""
    return clipped(bare(text).replace("**", ""), LONGEST)


def clipped(text: str, longest: int) -> str:
    """A text on one line, of at most `longest` characters, cut at a word where there is one, with an ellipsis."""
    plain = " ".join(text.split())
    if len(plain) <= longest:
        return plain
    head = plain[: longest - 1]
    return (head.rsplit(" ", 1)[0] if " " in head else head) + "…"
