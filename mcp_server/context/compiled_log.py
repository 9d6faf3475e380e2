"""Logs the contexts that clients compile, in the form of the log of pushes.

A client without hooks gets no pushes, so its compiled contexts are in this log only.
"""

from __future__ import annotations

import contextlib
from dataclasses import asdict
from typing import TYPE_CHECKING

from mcp_server.errors import ContextManagerError
from mcp_server.memory import Memory
from mcp_server.storage import logs
from mcp_server.text.redaction import redact

if TYPE_CHECKING:
    from mcp_server.context.compiler import Compiled

LOG = "compiled"
PROMPT_SHOWN = 300
"""Characters of a prompt in a log, without secrets."""

LONGEST_TEXT = 60_000
"""Characters of a compiled text in the log; the rest is cut off."""

MAX_LEFT_OUT = 40
"""Excluded candidates in the log, the best ones; the others are counted by reason."""


def shown_prompt(memory: Memory, prompt: str) -> str:
    """Returns the beginning of a prompt for a log, without secrets and without forgotten text."""
    begins = prompt[: 4 * PROMPT_SHOWN]
    if len(prompt) > len(begins):  # drop the last word: redaction does not recognize half a secret
        begins = begins.rpartition(" ")[0]
    return memory.forgotten.clean(redact(begins).text)[:PROMPT_SHOWN]


def log_compiled(memory: Memory, message: str, project: str, compiled: Compiled) -> None:
    """Appends a compiled context to the log. Ignores a log that cannot be written."""
    receipt = compiled.receipt
    inside = [one for one in receipt.considered if one.included]
    outside = [one for one in receipt.considered if not one.included]
    left_out = dict(receipt.left_out)
    for one in outside[MAX_LEFT_OUT:]:
        left_out[one.reason] = left_out.get(one.reason, 0) + 1
    gate = receipt.gate
    record = {
        "at": memory.clock().isoformat(),
        "event": "compile_context",
        "session": receipt.session,
        "project": project,
        "decision": "compiled",
        "why": f"the client asked for at most {receipt.budget:,} tokens",
        "prompt": shown_prompt(memory, message),
        "tokens": receipt.tokens,
        "budget": receipt.budget,
        "passages": sum(one.slot == "knowledge" for one in inside),
        "characters": len(compiled.text),
        "sha256": receipt.sha256,
        "gate": {"open": gate.open, "value": gate.value, "threshold": gate.threshold} if gate else None,
        "considered": [
            {**asdict(one), "title": one.unit if one.slot == "clarity" else ""}
            for one in (*inside, *outside[:MAX_LEFT_OUT])
        ],
        "left_out": left_out,
        "text": compiled.text[:LONGEST_TEXT],
    }
    with contextlib.suppress(OSError, ContextManagerError):
        logs.append(memory.files, LOG, record)
