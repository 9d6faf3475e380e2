"""Qwen Code 0.24: `~/.qwen/settings.json`; `~/.qwen/projects/FOLDER/chats/SESSION.jsonl`.

Events and lines are like Claude Code's, but the content of a message is in Gemini's form (`parts`). `qwen -p` does not
report the end of a session.
"""

from __future__ import annotations

from collections.abc import Iterator

from mcp_server.clients.adapters.adapter import SECONDS, Adapter, Fields, Folder, blocks_of_parts, limits, mapping


def lines(fields: Fields) -> Iterator[Fields]:
    """Yields one line, with the content in Claude Code's form."""
    message = mapping(fields.get("message"))
    content = blocks_of_parts(message.get("parts"))
    match fields.get("type"):
        case "user" | "tool_result":
            yield {**fields, "type": "user", "message": {"content": content}}
        case "assistant":
            calls = any(block["type"] == "tool_use" for block in content)
            usage = {"input_tokens": mapping(fields.get("usageMetadata")).get("promptTokenCount")}
            answer = {"id": fields.get("uuid"), "content": content, "usage": usage}
            yield {**fields, "message": {**answer, "stop_reason": None if calls else "end_turn"}}
        case "system" if fields.get("subtype") == "chat_compression":
            yield {**fields, "subtype": "compact_boundary"}
        case _:
            yield fields


ADAPTER = Adapter(
    client="qwen",
    title="Qwen Code",
    events=limits({name: name for name in SECONDS}),
    folder=Folder(".qwen", "QWEN_HOME"),
    hooks="settings.json",
    project_hooks=".qwen/settings.json",
    transcripts="projects",
    lines=lines,
    is_line=lambda fields: "sessionId" in fields and "parts" in mapping(fields.get("message")),
)
