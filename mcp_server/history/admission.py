"""What may go into a commit: everything but secrets, unresolved conflicts, a core memory over its cap, and changes of
conversations that are over. (SPEC §1 and §13)

The rules are asked of every file of every commit, whoever wrote it. What they refuse is left out and named; the other
files are committed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from mcp_server.text.destinations import MEMORY
from mcp_server.text.markdown import marked_line, may_be_marked
from mcp_server.text.redaction import secrets

WARN_LINES, MOST_LINES = 180, 220
"""Lines of MEMORY.md: over so many it is said, over so many it is not committed."""

CONVERSATIONS = "raw/conversations/"
FORGET = "Forget:"
"""The trailer of a commit that may change sealed conversations."""

_ENDED = re.compile(r"^ended: *(?!null\b|~)\S", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Admission:
    """The rules of one commit. `forgetting`: its message has the trailer that lets sealed conversations change.
    `redacted`: its files were written without secrets just now and are not searched again."""

    forgetting: bool = False
    redacted: bool = False

    def refusal(self, path: str, after: str | None, before: str | None) -> str | None:
        """Why the change of a file from `before` to `after` (None: not there) may not go in; None if it may."""
        if is_sealed(path, before) and after != before and not self.forgetting:
            did = "deleted" if after is None else "changed"
            return (
                f"a sealed conversation was {did}; `git restore` brings it back, `context-manager forget` is for this"
            )
        if after is None:
            return None
        if before is None and secrets(path):
            return "its name holds a secret; give it another one"
        return (None if self.redacted else _secret(after, before)) or _broken(path, after)


def _secret(after: str, before: str | None) -> str | None:
    """A secret that the last commit holds already is no reason: its owner has put it there past us, and knows."""
    found = secrets(after)
    known = {before[one.start : one.end] for one in secrets(before)} if found and before else set()
    new = [one for one in found if after[one.start : one.end] not in known]
    if not new:
        return None
    line = after.count("\n", 0, new[0].start) + 1
    return f"line {line} holds a secret ({new[0].kind}); say where it is kept, not what it is"


def _broken(path: str, after: str) -> str | None:
    if may_be_marked(path) and (line_marked := marked_line(after)):
        return f"line {line_marked} begins an unresolved conflict; keep what is right and delete the markers"
    if path == MEMORY and (lines := _lines(after)) > MOST_LINES:
        return f"it has {lines} lines, at most {MOST_LINES} are committed; `context-manager prune --strategy memory`"
    return None


def warning(path: str, after: str | None) -> str | None:
    """What should be said of a file that goes in all the same."""
    if path == MEMORY and after is not None and (lines := _lines(after)) > WARN_LINES:
        return f"it has {lines} lines, over {MOST_LINES} it is not committed; `context-manager prune --strategy memory`"
    return None


def is_sealed(path: str, text: str | None) -> bool:
    """Whether this is a conversation whose end is written down."""
    if text is None or not path.startswith(CONVERSATIONS) or not text.startswith("---"):
        return False
    return bool(_ENDED.search(text[: text.find("\n---", 3) + 1]))


def _lines(text: str) -> int:
    """As `wc -l` counts them, and a last line without an end."""
    return text.count("\n") + (not text.endswith("\n") and bool(text))
