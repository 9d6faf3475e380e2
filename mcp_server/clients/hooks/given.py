"""What a client gives a hook, read as far as it matters here: the known fields, cut where they are long."""

from __future__ import annotations

import json
from collections.abc import Mapping

FIELDS = (
    "session_id",
    "transcript_path",
    "cwd",
    "prompt",
    "source",
    "trigger",
    "reason",
    "tool_name",
    "agent_id",
    "agent_type",
    "last_assistant_message",
    "stop_hook_active",
)
"""The rest (a tool's whole response) stands in the client's transcript."""

LONGEST_TEXT = 200_000
"""Characters of a field; of what is longer the beginning counts."""


def fields_of(said: bytes, beside: Mapping[str, str]) -> dict[str, object]:
    """The fields that matter; none for what is no JSON object. `beside` is what only the command can see (`wire`)."""
    given = whole(said)
    fields: dict[str, object] = {}
    for name in FIELDS:
        value = given.get(name)
        if isinstance(value, str):
            fields[name] = value[:LONGEST_TEXT]
        elif isinstance(value, bool | int | float):
            fields[name] = value
    return {**fields, **beside, **({"paused": True} if "paused" in beside else {})}


def whole(said: bytes) -> dict[str, object]:
    """Everything that a client gave; nothing if it is no JSON object."""
    try:
        given = json.loads(said.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return {}
    return given if isinstance(given, dict) else {}
