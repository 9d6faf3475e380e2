"""The trigger: when is a decision taken down at all?                                      (S3 "Issue 1", SPEC §11)

When the user confirms, with the very next message and in few words, what a long answer said, the answer's decision is
taken down; a line with an explicit marker counts at once, whoever wrote it. Nothing else is captured, and nothing that
a program injected, neither as answer nor as confirmation.
"""

from __future__ import annotations

import re

from mcp_server.core.checkpoints.decisions import explicit, extract
from mcp_server.core.checkpoints.messages import is_real_user
from mcp_server.core.model import Role

LONG_ANSWER = 400
"""Characters from which on an answer is long."""
SHORT_CONFIRMATION = 25
"""Words up to which a message can be a confirmation."""

_YES = re.compile(
    r"\W*(?:yes|yep|yeah|yup|ok(?:ay)?|sure|agreed|perfect|great|good(?! (?:morning|evening|afternoon|day))|fine"
    r"|right(?! now)|correct|exactly|do (?:it|that)|go (?:ahead|for it|with)|sounds (?:good|great|right)"
    r"|let'?s (?:do|go)|make it so|ship it|approved?|confirmed?|works for me|that works|(?:that )?makes sense|please do"
    r"|lgtm"
    r"|da(?! li)|moze|može|vazi|važi|u ?redu|dogovoreno|slazem|slažem|hajde|tako je|super|ja|genau|passt"
    r"|einverstanden)\b",
    re.IGNORECASE,
)
_AMENDS = re.compile(
    r"\b(?:but|instead|except|however|wait|don'?t|rather|ali|nego|umesto|aber|sondern)\b", re.IGNORECASE
)


def confirms(message: str) -> bool:
    """Whether a message is a short yes to what was said before: no question, and nothing changed about it."""
    said = message.replace("’", "'").strip()
    if len(said.split()) > SHORT_CONFIRMATION or "?" in said:
        return False
    return _YES.match(said) is not None and _AMENDS.search(said) is None


def is_long(answer: str) -> bool:
    """Whether an answer is one that may hold a decision to confirm."""
    return len(answer) >= LONG_ANSWER


def decision_at(role: Role, message: str, answer: str | None) -> str | None:
    """What a new message settles. `answer` is the agent's message right before it, None if there was none."""
    marked = explicit(message) if role == "agent" or is_real_user(role, message) else None
    if marked or role != "user" or answer is None:
        return marked
    settled = is_real_user(role, message) and confirms(message) and is_long(answer)
    return extract(answer) if settled else None
