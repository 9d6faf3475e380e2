"""Copilot CLI 1.0: `~/.copilot/hooks/context-manager.json`; `~/.copilot/session-state/SESSION/events.jsonl`.

Hooks that are registered under Claude Code's event names get Claude Code's fields, but only Stop names the transcript.
A line is `{type, data, id, timestamp}`. The text of `user.message` does not contain the context that hooks added.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mcp_server.clients.adapters.adapter import Adapter, Fields, Folder, as_mapping, limits, tool_result, tool_use


def lines(fields: Fields) -> Iterator[Fields]:
    """Yields the lines for one event. A subagent's events name the tool call that started it."""
    data = as_mapping(fields.get("data"))
    begin: dict[str, Any] = {"timestamp": fields.get("timestamp"), "uuid": fields.get("id")}
    if agent := data.get("parentToolCallId"):
        begin |= {"isSidechain": True, "agentId": agent}
    match fields.get("type"):
        case "session.start" | "session.resume":
            cwd = as_mapping(data.get("context")).get("cwd")
            yield {**begin, "type": "system", "sessionId": data.get("sessionId"), "cwd": cwd}
        case "user.message":
            yield {**begin, "type": "user", "message": {"content": data.get("content")}}
        case "assistant.message":
            asked = data.get("toolRequests")
            calls = [
                tool_use(call.get("toolCallId"), call.get("name"), call.get("arguments"))
                for call in map(as_mapping, asked if isinstance(asked, list) else ())
            ]
            content = [{"type": "text", "text": data.get("content")}, *calls]
            message = {"id": data.get("messageId"), "model": data.get("model"), "content": content}
            yield {**begin, "type": "assistant", "message": {**message, "stop_reason": None if calls else "end_turn"}}
        case "tool.execution_complete":
            output = as_mapping(data.get("result")).get("content") or as_mapping(data.get("error")).get("message")
            result = tool_result(data.get("toolCallId"), output, data.get("success") is False)
            yield {**begin, "type": "user", "message": {"content": [result]}}
        case "session.compaction_complete":
            yield {**begin, "type": "system", "subtype": "compact_boundary"}
        case "assistant.turn_end" | "session.shutdown":
            yield {**begin, "type": "system"}


ADAPTER = Adapter(
    client="copilot",
    title="Copilot CLI",
    events={name: event for name, event in limits().items() if name != "PostCompact"},
    folder=Folder(".copilot", "COPILOT_HOME"),
    hooks="hooks/context-manager.json",
    hooks_begin={"version": 1},
    transcripts="session-state",
    file_names="events.jsonl",
    session_file=lambda session: f"{session}/events.jsonl",
    lines=lines,
    is_line=lambda fields: fields.get("type") == "session.start" and "copilotVersion" in as_mapping(fields.get("data")),
)
