"""Path patterns: `*.py`, `docs/**/*.md`, `src/[ab]?.ts`, for paths as tools name them.

A pattern without a slash is for the file's name; one with slashes for the end of its path, or for all of it if it
begins with one. `*` and `?` stay within a folder, `**` does not; where a name begins, `**/` is any folders or none.
Windows' backslashes count as slashes, upper and lower case are the same.
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


_TOKEN = re.compile(r"(?<![^/])\*{2,}/|\*{2,}|\[[!^]?\]?[^\]]*\]|.", re.DOTALL)


@lru_cache(maxsize=MOST_PATTERNS)
def _compiled(pattern: str) -> re.Pattern[str]:
    """What stands between two stars is taken where it is first found, and nowhere else: whatever matches after a later
    one matches after that as well. Without it, ten stars in a pattern could take years."""
    pattern = pattern.replace("\\", "/").removeprefix("./")
    if "/" in pattern and not pattern.startswith("/"):
        pattern = f"**/{pattern}"
    chunks: list[tuple[str, list[str]]] = [("", [""])]  # the `**` before it, and what stands between its `*`
    for token in _TOKEN.findall(pattern):
        if token.startswith("**"):
            if chunks[-1] != (token, [""]):  # twice in a row is once
                chunks.append((token, [""]))
        elif token == "*":
            chunks[-1][1].append("")
        else:
            chunks[-1][1][-1] += _one(token)
    written = "" if "/" in pattern else r"(?>(?:.*/)?)"
    for place, (star, (first, *others)) in enumerate(chunks, start=1):
        skipped = r"(?:.*?/)??" if star.endswith("/") else r".*?" if star else ""
        last = place == len(chunks)  # has to reach the end of the path
        end = f"[^/]*{others.pop()}" if last and others else ""
        inside = "".join((skipped, first, *(f"(?>[^/]*?{one})" for one in others), end))
        written += inside if last else f"(?>{inside})"
    return re.compile(written, re.IGNORECASE | re.DOTALL)


def _one(token: str) -> str:
    """A character, `?`, or a class; what is no class stands for itself."""
    if token == "?":
        return "[^/]"
    body = token[1:-1].removeprefix("!").removeprefix("^")
    if body:
        inside = re.sub(r"[\\\[\]&~|^]|-(?=-)", r"\\\g<0>", body)
        try:
            return re.compile(f"[{'' if body == token[1:-1] else '^/'}{inside}]").pattern
        except re.error:  # such as `[z-a]`
            pass
    return re.escape(token)
