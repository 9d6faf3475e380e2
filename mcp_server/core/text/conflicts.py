"""Conflict markers: what git leaves in a file when two versions of it were merged by nobody yet."""

from __future__ import annotations

import re

_BEGIN = re.compile(r"^<{7}(?: .*)?\r?$", re.MULTILINE)
_MIDDLE = re.compile(r"^={7}\r?$", re.MULTILINE)
_END = re.compile(r"^>{7}(?: .*)?\r?$", re.MULTILINE)


def marked_line(text: str) -> int | None:
    """The line (from 1) at which an unresolved conflict begins; None if there is none.

    All three markers must stand there, in their order and at the beginning of lines. A conversation that quotes a
    conflict has them too: ask only of files that people and agents edit.
    """
    if "<<<<<<<" not in text:  # spares the search
        return None
    begin = _BEGIN.search(text)
    middle = _MIDDLE.search(text, begin.end()) if begin else None
    if begin is None or middle is None or _END.search(text, middle.end()) is None:
        return None
    return text.count("\n", 0, begin.start()) + 1


def may_be_marked(path: str) -> bool:
    """Whether markers in this file are a conflict: everywhere but in conversations, which hold what was said."""
    return not path.startswith("raw/")
