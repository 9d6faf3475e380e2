"""Path patterns: `*.py`, `docs/**/*.md`, `src/[ab]?.ts`, for paths as tools name them.

A pattern without a slash is for the file's name; one with slashes for the end of its path, or for all of it if it
begins with one. `*` and `?` stay within a folder, `**` does not. Windows' backslashes count as slashes, upper and lower
case are the same.
"""

from __future__ import annotations

import re
from functools import lru_cache

MOST_PATTERNS = 8192


def matches(pattern: str, path: str) -> bool:
    """Does `path` match?"""
    return _compiled(pattern).fullmatch(path.replace("\\", "/")) is not None


def suffix(pattern: str) -> str:
    """The extension that every path of a pattern ends with (`.py`), lower case; empty if it is not sure."""
    found = re.search(r"\.[A-Za-z0-9]+$", pattern)
    return found[0].lower() if found else ""


@lru_cache(maxsize=MOST_PATTERNS)
def _compiled(pattern: str) -> re.Pattern[str]:
    pattern = pattern.replace("\\", "/").removeprefix("./")
    start = "" if pattern.startswith("/") else r"(?>.*/)?" if "/" not in pattern else r"(?:.*/)?"
    return re.compile(start + _translated(pattern), re.IGNORECASE | re.DOTALL)


def _translated(pattern: str) -> str:
    written: list[str] = []
    place = 0
    while place < len(pattern):
        if pattern.startswith("**/", place):
            written.append(r"(?:.*/)?")
            place += 3
        elif pattern.startswith("**", place):
            written.append(r".*")
            place += 2
        elif pattern[place] == "*":
            written.append(r"[^/]*")
            place += 1
        elif pattern[place] == "?":
            written.append(r"[^/]")
            place += 1
        elif pattern[place] == "[" and (end := pattern.find("]", place + 2)) > 0:
            inside = pattern[place + 1 : end].replace("\\", "\\\\").replace("[", "\\[")
            written.append(f"[{'^' + inside[1:] if inside[0] in '!^' else inside}]")
            place = end + 1
        else:
            written.append(re.escape(pattern[place]))
            place += 1
    return "".join(written)
