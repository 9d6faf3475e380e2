"""Gemini CLI 0.61, and Qwen Code 0.24, which was made from it.

Gemini: `~/.gemini/settings.json`; `~/.gemini/tmp/PROJECT/chats/session-TIME-ID.jsonl`. A line is a message, or a change
of the session (`$set`). A message is written again, with the same id, when its tools have run. Time limits are in
milliseconds. PreCompress also fires before small prompts, so it does not announce a compaction. Without a window
(`gemini -p`) Gemini CLI puts the text for the start of a session before the prompt, in `<hook_context>`.

Qwen: `~/.qwen/settings.json`; `~/.qwen/projects/FOLDER/chats/SESSION.jsonl`. Events and lines are like Claude Code's,
but the content of a message is in Gemini's form (`parts`). `qwen -p` does not report the end of a session.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from mcp_server.clients.adapters.adapter import Adapter, Fields, Folder, as_mapping, blocks_of_parts, limits, tool_use


def qwen_lines(fields: Fields) -> Iterator[Fields]:
    """Yields one line, with the content in Claude Code's form."""
    message = as_mapping(fields.get("message"))
    content = blocks_of_parts(message.get("parts"))
    match fields.get("type"):
        case "user" | "tool_result":
            yield {**fields, "type": "user", "message": {"content": content}}
        case "assistant":
            calls = any(block["type"] == "tool_use" for block in content)
            usage = {"input_tokens": as_mapping(fields.get("usageMetadata")).get("promptTokenCount")}
            answer = {"id": fields.get("uuid"), "content": content, "usage": usage}
            yield {**fields, "message": {**answer, "stop_reason": None if calls else "end_turn"}}
        case "system" if fields.get("subtype") == "chat_compression":
            yield {**fields, "subtype": "compact_boundary"}
        case _:
            yield fields


QWEN = Adapter(
    client="qwen",
    title="Qwen Code",
    events=limits(),
    folder=Folder(".qwen", "QWEN_HOME"),
    hooks="settings.json",
    project_hooks=".qwen/settings.json",
    transcripts="projects",
    lines=qwen_lines,
    is_line=lambda fields: "sessionId" in fields and "parts" in as_mapping(fields.get("message")),
)

_FOLDER = re.compile(r"^\s*- \*\*Workspace Directories:\*\*\s+- (.+)$", re.MULTILINE)


def lines(fields: Fields) -> Iterator[Fields]:
    """Yields the lines for one line. Skips messages with tool results, because the line of the call repeats them."""
    begin = {"timestamp": fields.get("timestamp"), "uuid": fields.get("id")}
    if "sessionId" in fields:
        yield {**begin, "type": "system", "sessionId": fields["sessionId"]}
    elif "$set" in fields:
        messages = as_mapping(fields["$set"]).get("messages")
        first = as_mapping(messages[0]) if isinstance(messages, list) and messages else {}
        for block in blocks_of_parts(first.get("content")):
            if found := _FOLDER.search(str(block.get("text"))):
                yield {**begin, "type": "system", "cwd": found[1]}
    elif fields.get("type") == "user":
        content = fields.get("content")
        blocks = content if isinstance(content, str) else blocks_of_parts(content)
        if isinstance(blocks, str) or not any(block["type"] == "tool_result" for block in blocks):
            yield {**begin, "type": "user", "message": {"content": blocks}}
    elif fields.get("type") == "gemini":
        content = fields.get("content")
        texts = [{"text": content}] if isinstance(content, str) else content
        answer = blocks_of_parts(texts)
        calls = fields.get("toolCalls")
        for call in map(as_mapping, calls if isinstance(calls, list) else ()):
            answer.append(tool_use(call.get("id"), call.get("name"), call.get("args")))
            answer += blocks_of_parts(call.get("result"))
        usage = {"input_tokens": as_mapping(fields.get("tokens")).get("input")}
        message = {"id": fields.get("id"), "model": fields.get("model"), "content": answer, "usage": usage}
        yield {**begin, "type": "assistant", "message": {**message, "stop_reason": None if calls else "end_turn"}}


ADAPTER = Adapter(
    client="gemini",
    title="Gemini CLI",
    events=limits(
        {
            "SessionStart": "SessionStart",
            "BeforeAgent": "UserPromptSubmit",
            "AfterTool": "PostToolUse",
            "AfterAgent": "Stop",
            "SessionEnd": "SessionEnd",
        },
        milliseconds=True,
    ),
    folder=Folder(".gemini", "GEMINI_CLI_HOME", ".gemini"),
    hooks="settings.json",
    project_hooks=".gemini/settings.json",
    transcripts="tmp",
    file_names="session-*.jsonl",
    lines=lines,
    is_line=lambda fields: "sessionId" in fields and "projectHash" in fields,
)
