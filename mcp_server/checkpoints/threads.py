"""The thread of a conversation: its beginning and its latest subject.

Messages that a program injected under the role `user` are ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mcp_server.conversations.authorship import is_real_user
from mcp_server.model import Turn
from mcp_server.text.prose import clipped
from mcp_server.text.words import content_words

LEAST_WORDS = 2
"""Content words that a message with a subject has at least."""
MAX_READ = 20_000
"""Characters of a message that are read."""
LONGEST_SUMMARY_PART = 180
"""Characters."""


def summary(turns: Sequence[Turn]) -> str:
    """Returns the conversation's beginning and latest subject in about 400 characters; empty without a user turn."""
    said = [turn for turn in _beginnings(turns) if is_real_user(turn.role, turn.content)]
    if not said:
        return ""
    about = [turn for turn in said if _is_about_something(turn)] or said
    first, last = about[0], about[-1]
    lines = [f"Began with: {clipped(first.content, LONGEST_SUMMARY_PART)}"]
    if last is not first:
        lines.append(f"Last asked: {clipped(last.content, LONGEST_SUMMARY_PART)}")
    return "\n".join(lines)


def _beginnings(turns: Sequence[Turn]) -> list[Turn]:
    return [turn if len(turn.content) <= MAX_READ else replace(turn, content=turn.content[:MAX_READ]) for turn in turns]


def _is_about_something(turn: Turn) -> bool:
    return turn.important or len(content_words(turn.content)) >= LEAST_WORDS
