"""What is noted of a conversation while it is said, so that a checkpoint has it at once: decisions, open items, files
touched, the last tool call (S3 "Issue 1", "Issue 4", "Improvement 6").

    before + a turn → after        the same turns give the same notes, however they are cut into pieces

What says the same is noted once: an open item in the words that came first, a decision in those that came last, since
minds change, unless they tell no more than the first. Of each kind the newest are kept. Of an answer only its decision
is carried to the user's next message, which may confirm it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mcp_server.core.checkpoints import open_items
from mcp_server.core.checkpoints.decisions import explicit, extract
from mcp_server.core.checkpoints.duplicates import is_duplicate, keywords
from mcp_server.core.checkpoints.messages import is_injected, is_real_user
from mcp_server.core.checkpoints.trigger import confirms, is_long
from mcp_server.core.model import ToolCall, Turn

MOST_DECISIONS, MOST_ITEMS, MOST_FILES = 60, 60, 100
JUDGED = 100_000
"""Characters of a message that are looked at: nobody writes a decision behind a book, and a turn may not wait."""


@dataclass(frozen=True, slots=True)
class Noted:
    """What was noted up to turn number `turn`, the oldest first. `proposed` is the decision in the agent's last long
    answer, which counts once the user confirms it."""

    turn: int = 0
    decisions: tuple[str, ...] = ()
    open_items: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    last_tool_call: ToolCall | None = None
    proposed: str | None = None

    def after(self, turn: Turn) -> Noted:
        """The notes after one more turn."""
        text = turn.content[:JUDGED]
        heard = replace(self, turn=turn.number, **_of_calls(self, turn.tool_calls))
        if turn.role == "system" or is_injected(text) or not text.strip():
            return heard
        items = open_items.after(heard.open_items, open_items.found_in(turn.role, text))
        heard = replace(heard, open_items=tuple(items[-MOST_ITEMS:]))
        marked = explicit(text)
        if turn.role == "agent":
            proposed = None if marked else extract(text) if is_long(text) else None
            return replace(heard, decisions=_with(heard.decisions, marked), proposed=proposed)
        if not is_real_user(turn.role, text):
            return heard
        settled = marked or (heard.proposed if confirms(text) else None)
        return replace(heard, decisions=_with(heard.decisions, settled), proposed=None)

    def as_dict(self) -> dict[str, Any]:
        """The notes as JSON values."""
        call = self.last_tool_call
        return {
            "turn": self.turn,
            "decisions": list(self.decisions),
            "open_items": list(self.open_items),
            "files": list(self.files),
            "last_tool_call": [call.name, call.summary, call.result, list(call.files)] if call else None,
            "proposed": self.proposed,
        }


def noted(turns: Iterable[Turn], before: Noted | None = None) -> Noted:
    """The notes after `turns`, oldest first."""
    notes = before or Noted()
    for turn in turns:
        notes = notes.after(turn)
    return notes


def from_dict(stored: object) -> Noted:
    """The notes as they were stored; empty ones, to be made again, of anything else."""
    if not isinstance(stored, Mapping):
        return Noted()
    try:
        call = stored["last_tool_call"]
        proposed = stored["proposed"]
        return Noted(
            int(stored["turn"]),
            _texts(stored["decisions"]),
            _texts(stored["open_items"]),
            _texts(stored["files"]),
            ToolCall(str(call[0]), str(call[1]), str(call[2]), _texts(call[3])) if call else None,
            None if proposed is None else str(proposed),
        )
    except (LookupError, TypeError, ValueError):
        return Noted()


def _of_calls(before: Noted, calls: Sequence[ToolCall]) -> dict[str, Any]:
    if not calls:
        return {}
    files = dict.fromkeys(before.files)
    for path in (path for call in calls for path in call.files):
        files.pop(path, None)  # what is touched again stands last
        files[path] = None
    return {"last_tool_call": calls[-1], "files": tuple(files)[-MOST_FILES:]}


def _with(decisions: tuple[str, ...], new: str | None) -> tuple[str, ...]:
    if new is None or any(is_duplicate(new, old) and keywords(new) <= keywords(old) for old in decisions):
        return decisions
    return (*(old for old in decisions if not is_duplicate(new, old)), new)[-MOST_DECISIONS:]


def _texts(values: object) -> tuple[str, ...]:
    return tuple(str(value) for value in values) if isinstance(values, list) else ()
