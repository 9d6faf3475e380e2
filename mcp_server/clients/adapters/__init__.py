"""The clients with hooks."""

from mcp_server.clients.adapters import claude_code, codex, copilot, gemini, opencode, qwen
from mcp_server.clients.adapters.adapter import Adapter

ADAPTERS: dict[str, Adapter] = {
    each.ADAPTER.client: each.ADAPTER for each in (codex, gemini, qwen, copilot, opencode, claude_code)
}
"""Client → its adapter; Claude Code is the last, because lines of other clients can have its marks too."""
