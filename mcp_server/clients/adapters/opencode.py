"""OpenCode 1.18: a plugin in `~/.config/opencode/plugins`; all sessions in `~/.local/share/opencode/opencode.db`.

A message has parts. The plugin adds memory to a prompt as a `synthetic` part, which OpenCode stores and we do not
record. OpenCode reports the end of a session only if the session is deleted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from mcp_server.clients.adapters.adapter import Adapter, Fields, Folder, as_mapping, tool_result, tool_use

MARK = "// Written by context-manager; `context-manager uninstall opencode` removes it."

_PLUGIN = """\
// Records the conversation, and adds relevant memory to prompts. Does nothing if the command fails.
import { spawnSync } from "node:child_process"

const COMMAND = %s

export const ContextManager = async ({ directory }) => {
  const created = new Set(), subagents = new Set(), begun = new Set(), compacted = new Set()

  const run = (event, session, given) => {
    const input = JSON.stringify({ session_id: session, cwd: directory, ...given })
    const [command, ...words] = COMMAND.map((word) => (word === "EVENT" ? event : word))
    try {
      const done = spawnSync(command, words, { input, encoding: "utf8", timeout: 8000, windowsHide: true })
      return JSON.parse(done.stdout || "{}").additionalContext || ""
    } catch {
      return ""
    }
  }

  const start = (session) => {
    if (begun.has(session) && !compacted.has(session)) return ""
    const source = compacted.delete(session) ? "compact" : created.has(session) ? "startup" : "resume"
    begun.add(session)
    return run("SessionStart", session, { source })
  }

  return {
    "chat.message": async (input, output) => {
      const session = input.sessionID
      const typed = output.parts.filter((part) => part.type === "text" && !part.synthetic)
      if (!typed.length || subagents.has(session)) return
      const prompt = typed.map((part) => part.text).join("\\n\\n")
      for (const [name, text] of [["a", start(session)], ["b", run("UserPromptSubmit", session, { prompt })]])
        if (text) output.parts.push({ ...typed[0], id: typed[0].id + name, synthetic: true, text })
    },
    "tool.execute.after": async (input) => {
      if (!subagents.has(input.sessionID)) run("PostToolUse", input.sessionID, { tool_name: input.tool })
    },
    "experimental.session.compacting": async (input) => {
      run("PreCompact", input.sessionID, {})
    },
    event: async ({ event }) => {
      const session = event.properties?.sessionID
      if (event.type === "session.created") {
        const info = event.properties.info
        ;(info.parentID ? subagents : created).add(info.id)
      } else if (event.type === "session.idle" && !subagents.has(session)) {
        run("Stop", session, {})
      } else if (event.type === "session.compacted") {
        compacted.add(session)
        run("PostCompact", session, {})
      }
    },
  }
}
"""


def plugin(command: str, arguments: list[str]) -> str:
    """Returns the plugin's text. The plugin replaces the word `EVENT` of the command by the event."""
    return f"{MARK}\n{_PLUGIN % json.dumps([command, *arguments])}"


def command_in(text: str) -> list[str]:
    """Returns the command of a plugin; [] if the text is not ours."""
    if MARK not in text:
        return []
    line = next((line for line in text.splitlines() if line.startswith("const COMMAND = ")), "")
    try:
        found = json.loads(line.partition("= ")[2])
    except ValueError:
        return []
    return [str(word) for word in found] if isinstance(found, list) else []


def is_complete(fields: Fields) -> bool:
    """Returns False for an answer that the model is still writing."""
    return fields.get("role") != "assistant" or "completed" in as_mapping(fields.get("time"))


def lines(fields: Fields) -> Iterator[Fields]:
    """Yields the lines for a message: its data, with its `id`, its `parts`, and the `agent` if it is a subagent's."""
    created = as_mapping(fields.get("time")).get("created")
    at = datetime.fromtimestamp(created / 1000, UTC).isoformat() if isinstance(created, int) else None
    begin: dict[str, Any] = {"timestamp": at, "uuid": fields.get("id")}
    if agent := fields.get("subagent"):
        begin |= {"isSidechain": True, "agentId": agent}
    parts = [as_mapping(part) for part in fields.get("parts", ())]
    texts = [
        {"type": "text", "text": part.get("text")}
        for part in parts
        if part.get("type") == "text" and not (part.get("synthetic") or part.get("ignored"))
    ]
    if any(part.get("type") == "compaction" for part in parts):
        yield {**begin, "type": "system", "subtype": "compact_boundary"}
    elif fields.get("role") == "user":
        yield {**begin, "type": "user", "message": {"content": texts}}
    elif fields.get("role") == "assistant" and not fields.get("summary"):
        tools: list[dict[str, Any]] = []
        for part in parts:
            state = as_mapping(part.get("state"))
            if part.get("type") == "tool":
                tools.append(tool_use(part.get("callID"), part.get("tool"), state.get("input")))
                output = state.get("output", state.get("error", ""))
                tools.append(tool_result(part.get("callID"), output, state.get("status") == "error"))
        usage = {"input_tokens": as_mapping(fields.get("tokens")).get("input")}
        message = {"id": fields.get("id"), "model": fields.get("modelID"), "content": [*texts, *tools], "usage": usage}
        yield {**begin, "type": "assistant", "message": {**message, "stop_reason": "end_turn"}}


ADAPTER = Adapter(
    client="opencode",
    title="OpenCode",
    events={},
    folder=Folder(".config/opencode", "XDG_CONFIG_HOME", "opencode"),
    hooks="plugins/context-manager.js",
    project_hooks=".opencode/plugins/context-manager.js",
    plugin=plugin,
    data=Folder(".local/share/opencode", "XDG_DATA_HOME", "opencode"),
    transcripts="",
    file_names="opencode.db",
    session_file=lambda session: "opencode.db",
    is_database=True,
    lines=lines,
)
