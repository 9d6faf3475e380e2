"""The thread of a conversation: its beginning, its latest subject, and the next step.

Messages that a program injected under the role `user` are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from mcp_server.conversations.authorship import is_injected, is_real_user
from mcp_server.model import Turn
from mcp_server.text.prose import clipped
from mcp_server.text.words import content_words
from mcp_server.understanding.recognizer import clean, is_question
from mcp_server.understanding.sentences import sentences

LEAST_WORDS = 2
"""Content words that a message with a subject has at least."""
MAX_READ = 20_000
"""Characters of a message that are read."""
LONGEST_SUMMARY_PART = 180
"""Characters."""

LAST_MESSAGES = 6
"""Messages at the end in which the next step is looked for."""

_NEXT = re.compile(
    r"\bnext (?:steps?|up|thing)\b|\bnext,? (?:i|we)\b"
    r"|\b(?:we|i|let'?s)(?:'ll| will)? (?:go on|continue|carry on|resume|pick (?:it|this) up|start) .*"
    r"(?:tomorrow|next|later|with|(?:mon|tues|wednes|thurs|fri|satur|sun)day)\b"
    r"|\b(?:tomorrow|next week|on (?:mon|tues|wednes|thurs|fri|satur|sun)day),? (?:we|i)(?:'ll| will)?\b"
    r"|\b(?:outstanding|left over|still to do|remaining|open (?:on|with|from|items?))\b[^.]*:",
    re.IGNORECASE,
)


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


def announced(turns: Sequence[Turn], open_items: Sequence[str]) -> str:
    """Returns the sentence that announces the next step: of the last messages the user's newest one, else the agent's;
    else the newest open item that announces one. Empty if there is none."""
    real = [turn for turn in turns if turn.role != "system" and not is_injected(turn.content)]
    last = _beginnings(real[-LAST_MESSAGES:])
    said = [
        clean(one.text)
        for role in ("agent", "user")
        for turn in last
        if turn.role == role
        for one in sentences(turn.content)
    ]
    found = next((one for one in reversed(said) if _announces(one)), "")
    if found:
        return next((item for item in open_items if found in item), found)
    return next((item for item in reversed(open_items) if _announces(item)), "")


def _announces(text: str) -> bool:
    return _NEXT.search(text) is not None and not is_question(text)


def _beginnings(turns: Sequence[Turn]) -> list[Turn]:
    return [turn if len(turn.content) <= MAX_READ else replace(turn, content=turn.content[:MAX_READ]) for turn in turns]


def _is_about_something(turn: Turn) -> bool:
    return turn.important or len(content_words(turn.content)) >= LEAST_WORDS
