"""Prose: the lines of a message that are not code, and the form of an entry."""

from __future__ import annotations

import re
from collections.abc import Iterator

LONGEST = 200
"""Characters of an entry."""

_FENCE = re.compile(r"\s*(?:>\s*)*(?:(?:[-*+]|\d+[.)])\s+)?(`{3,}|~{3,})(.*)")
_BULLET = re.compile(r"^(?:[-*+]|\d+[.)])\s+(?:\[[ xX]\]\s+)?")
_HEADING = re.compile(r"^#{1,6}\s+")


def prose(text: str) -> Iterator[str]:
    """Yields the stripped lines that are neither blank nor code. A fence that is never closed extends to the end."""
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
    """Returns a line without its heading marks, bullet, number or task box."""
    return _BULLET.sub("", _HEADING.sub("", line.strip(), count=1), count=1).strip()


def entry(text: str) -> str:
    """Returns a text as an entry: on one line, without bullet and bold marks, cut at a word after 200 characters."""
    return clipped(bare(text).replace("**", ""), LONGEST)


def clipped(text: str, longest: int) -> str:
    """Returns a text on one line of at most `longest` characters, cut at a word if possible, with an ellipsis."""
    plain = " ".join(text.split())
    if len(plain) <= longest:
        return plain
    head = plain[: longest - 1]
    return (head.rsplit(" ", 1)[0] if " " in head else head) + "…"
