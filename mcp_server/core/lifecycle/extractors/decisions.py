"""Decisions: what somebody says they decided, what is marked as a decision, and what an answer settled that the user
confirmed with the next message (S3's trigger and gate)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mcp_server.core.checkpoints.trigger import decision_at
from mcp_server.core.lifecycle.extractors.extractor import Context, Extractor, capital
from mcp_server.core.lifecycle.lines import Line
from mcp_server.core.model import Turn

MARKER = re.compile(r"^(?:final )?(?:decision|decided|agreed)\s*[:—–-]\s*", re.IGNORECASE)
"""Its file and section say that it is one."""

WEIGHT = 3.0
"""Of what is marked or confirmed: it says itself that it is to last."""


def extract(turns: Sequence[Turn], context: Context) -> list[Line]:
    """The decisions of a conversation, in order. Between people with names they stand in the people's files."""
    found = [
        context.line_of(told) for told in context.told if told.statement.kind == "decision" and told.person is None
    ]
    answer: Turn | None = None
    for turn in turns:
        settled = decision_at(turn.role, turn.content, answer.content if answer else None)
        if settled and "[redacted:" not in settled and "[forgotten]" not in settled:
            source = answer if answer is not None and settled not in turn.content else turn
            line = context.line("decision", capital(MARKER.sub("", settled)), source, weight=WEIGHT)
            found += [line] if line not in found else []  # marked in the answer, and then confirmed
        answer = turn if turn.role == "agent" else None
    return sorted(found, key=lambda line: line.turn)


EXTRACTOR = Extractor("decisions", 3, extract, ("decision",))
