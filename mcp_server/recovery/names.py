"""Names of recoverable things: ids of archived entries, `PATH@REV`, and the lines that a text has lost."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable

from mcp_server.text.words import content_words, fold, words

ENTRY = "entry-"
_NAMED_FILE = re.compile(r"\.[A-Za-z0-9]+$")


def entry_id(text: str) -> str:
    """Returns the id of an archived entry, which follows from its text."""
    return ENTRY + hashlib.sha256(text.strip().encode("utf-8", "surrogatepass")).hexdigest()[:8]


def path_and_revision(what: str) -> tuple[str, str] | None:
    """Returns the two parts of `PATH@REV`, or None for another text. Path and revision may contain an `@` (`HEAD@{1}`):
    the first one after a file name counts."""
    splits = [(what[:at], what[at + 1 :]) for at, c in enumerate(what) if c == "@" and what[at + 1 : at + 2] != "{"]
    whole = [(path, revision) for path, revision in splits if path and revision]
    return next((split for split in whole if _NAMED_FILE.search(split[0])), whole[0] if whole else None)


def lost_lines(earlier: str, now: str) -> list[str]:
    """Returns the lines of `earlier` that `now` lacks or has less often, in order, without empty ones."""
    left = Counter(line.strip() for line in now.splitlines())
    lost: list[str] = []
    for line in earlier.splitlines():
        if not line.strip():
            continue
        if left[line.strip()]:
            left[line.strip()] -= 1
        else:
            lost.append(line)
    return lost


def matching(query: str, texts: Iterable[str]) -> tuple[int, str]:
    """Returns how many content words of the query are in the texts together, and the text with most of them."""
    wanted = set(content_words(query)) or set(words(query))
    found: set[str] = set()
    best, most = "", 0
    for text in texts:
        here = {word for word in wanted if word in fold(text)}
        found |= here
        if len(here) > most:
            best, most = text, len(here)
    return len(found), best
