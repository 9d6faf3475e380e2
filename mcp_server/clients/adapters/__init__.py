"""Describes the clients with hooks, each in a file of its own."""

from mcp_server.clients.adapters import claude_code, codex, copilot, gemini, opencode, qwen
from mcp_server.clients.adapters.adapter import Adapter

ADAPTERS: dict[str, Adapter] = {
    each.ADAPTER.client: each.ADAPTER for each in (codex, gemini, qwen, copilot, opencode, claude_code)
}
"""Client → its adapter. Claude Code comes last, because other clients write lines that look like its own."""
