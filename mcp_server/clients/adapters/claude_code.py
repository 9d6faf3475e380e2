"""Claude Code: our events and the form of transcripts are its own."""

from __future__ import annotations

from mcp_server.clients.adapters.adapter import Adapter, Folder, limits

ADAPTER = Adapter(
    client="claude-code",
    title="Claude Code",
    events={
        name: (name, {**also, "async": True} if name == "PostToolUse" else also) for name, (_, also) in limits().items()
    },
    folder=Folder(".claude", "CLAUDE_CONFIG_DIR"),
    hooks="settings.json",
    project_hooks=".claude/settings.local.json",
    transcripts="projects",
    is_line=lambda fields: "sessionId" in fields and "type" in fields,
)
