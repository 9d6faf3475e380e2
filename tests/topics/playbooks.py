"""Topics written for a test, and a conversation that sets them off."""

from __future__ import annotations

from typing import Any

from mcp_server.context.compile import CompileRequest, compile_context
from mcp_server.conversations.observe import NewTurn, Observed, observe
from mcp_server.memory import Memory
from mcp_server.model import Caller, ToolCall

TEA = """\
---
triggers:
  - {type: pattern, match: '\\btea\\b'}
activation: auto
keywords: [kettle]
---

# Tea

Warm the pot first.
"""

EMAIL = """\
---
type: topic
triggers:
  - type: webhook
    source: email
    event: new_message
  - type: pattern
    match: "email|inbox|mail"
    scope: input
subscriptions:
  - knowledge/procedures/email-workflow.md
  - knowledge/people/_index.md
activation: gated          # auto | gated | manual
priority: high             # low | medium | high | critical
max_context_kb: 4
---

# Email Triage

## Instructions

When a new email arrives:
1. Classify: urgent / actionable / informational / spam
2. If urgent: notify user immediately
3. If actionable: draft a reply, create a task if needed
4. If informational: summarize and file
5. If spam: archive silently

## Context Notes

- Use USER.md for tone and preferences
- Check people/ for relationship context
- Reference email-workflow.md for standard procedures
"""
"""A playbook as the documentation shows it."""


def write(memory: Memory, path: str, text: str) -> None:
    """Writes a file as a person would, past us."""
    memory.files.write_atomic(path, text)


def only(memory: Memory, **topics: str) -> None:
    """Writes topics in the place of the examples that a new memory has."""
    for path in memory.files.names("topics", ""):
        memory.files.remove(path)
    for name, text in topics.items():
        write(memory, f"topics/{name}.md", text)


async def say(
    memory: Memory, text: str, role: str = "user", session: str = "s", files: tuple[str, ...] = (), **more: Any
) -> Observed:
    """One turn of a conversation."""
    calls = (ToolCall("edit", files=files),) if files else ()
    return await observe(memory, NewTurn(role, text, session, tool_calls=calls, **more), Caller())


async def context(memory: Memory, session: str | None = "s", message: str | None = None, budget: int = 4000) -> str:
    """The compiled context."""
    return (await compile_context(memory, CompileRequest(message, session, budget=budget), Caller())).text
