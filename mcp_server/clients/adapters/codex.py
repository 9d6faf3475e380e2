"""Codex 0.169: `~/.codex/hooks.json`; `~/.codex/sessions/YEAR/MONTH/DAY/rollout-TIME-SESSION.jsonl`.

A line is `{timestamp, type, payload}`. The type `response_item` has the messages that the API gets, also those that
Codex itself writes (instructions, the environment, hooks' context). Codex skips hooks that the user has not trusted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from mcp_server.clients.adapters.adapter import (
    CONTINUES,
    Adapter,
    Fields,
    Folder,
    as_mapping,
    limits,
    tool_result,
    tool_use,
)

_WRITTEN_BY_CODEX = (
    "<environment_context>",
    "<user_instructions>",
    "<turn_aborted>",
    "<subagent_notification>",
    "<skill>",
    "<user_shell_command>",
    "<hook_prompt",
    "# AGENTS.md instructions",
)


def lines(fields: Fields) -> Iterator[Fields]:
    """Yields the lines for one line of a rollout. Skips messages to `developer` and reasoning."""
    payload = fields.get("payload")
    if not isinstance(payload, dict):
        return
    begin = {"timestamp": fields.get("timestamp")}
    kind = payload.get("type")
    match fields.get("type"):
        case "session_meta":
            yield {**begin, "type": "system", "sessionId": payload.get("id"), "cwd": payload.get("cwd")}
        case "turn_context":
            yield {**begin, "type": "system", "cwd": payload.get("cwd"), "model": payload.get("model")}
        case "compacted":
            yield {**begin, "type": "system", "subtype": "compact_boundary"}
        case "event_msg" if kind in ("task_complete", "turn_aborted"):
            yield {**begin, "type": "system"}
        case "response_item" if kind == "message" and payload.get("role") == "user":
            if text := "\n\n".join(_texts(payload)):
                yield {**begin, "type": "user", "message": {"content": text}}
        case "response_item" if kind == "message" and payload.get("role") == "assistant":
            blocks = [{"type": "text", "text": text} for text in _texts(payload)]
            yield {**begin, **_answer(blocks, "end_turn")}
        case "response_item" if kind in ("function_call", "custom_tool_call", "local_shell_call"):
            yield {**begin, **_answer([tool_use(payload.get("call_id"), payload.get("name") or kind, _input(payload))])}
        case "response_item" if kind in ("function_call_output", "custom_tool_call_output"):
            output = payload.get("output")
            result = tool_result(payload.get("call_id"), as_mapping(output).get("content", output))
            yield {**begin, "type": "user", "message": {"content": [result]}}


def _answer(blocks: list[dict[str, Any]], stop: str | None = None) -> dict[str, Any]:
    return {"type": "assistant", "message": {"id": CONTINUES, "content": blocks, "stop_reason": stop}}


def _texts(payload: Fields) -> list[str]:
    content = payload.get("content")
    texts = [part.get("text") for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    return [text for text in texts if isinstance(text, str) and not text.lstrip().startswith(_WRITTEN_BY_CODEX)]


def _input(payload: Fields) -> dict[str, Any]:
    """Returns a tool's arguments: an object in JSON, or a text such as a patch."""
    given = payload.get("arguments", payload.get("input", payload.get("action")))
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError):
            return {"content": given}
    if not isinstance(given, dict):
        return {}
    command = given.get("cmd", given.get("command"))
    if isinstance(command, list):
        command = " ".join(map(str, command))
    return {**given, "command": command} if command else given


ADAPTER = Adapter(
    client="codex",
    title="Codex",
    events=limits(),
    folder=Folder(".codex", "CODEX_HOME"),
    hooks="hooks.json",
    project_hooks=".codex/hooks.json",
    transcripts="sessions",
    file_names="rollout-*.jsonl",
    lines=lines,
    is_line=lambda fields: fields.get("type") == "session_meta" and isinstance(fields.get("payload"), dict),
)
