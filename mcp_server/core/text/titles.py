"""What a conversation is called: its first words, once and for all."""

from __future__ import annotations

import re

from mcp_server.core.projects import slugify

LONGEST = 60


def title_of(content: str) -> str:
    """At most 60 characters of the first line that says something, cut at a word. `Conversation` if none does."""
    for line in content[:4000].splitlines():
        words = " ".join(re.sub(r"^[#>*\-\s`]+", "", "".join(c if c.isprintable() else " " for c in line)).split())
        if re.search(r"\w", words):
            return words if len(words) <= LONGEST else words[: LONGEST - 1].rsplit(" ", 1)[0] + "…"
    return "Conversation"


def slug_of_title(title: str) -> str:
    """The title as part of a file name."""
    return slugify(title, longest=40) or "conversation"
