"""Describes the clients with hooks, each in a file of its own."""

from mcp_server.clients.adapters import claude_code, codex, copilot, gemini, opencode
from mcp_server.clients.adapters.adapter import Adapter

ADAPTERS: dict[str, Adapter] = {
    each.client: each
    for each in (codex.ADAPTER, gemini.ADAPTER, gemini.QWEN, copilot.ADAPTER, opencode.ADAPTER, claude_code.ADAPTER)
}
"""Client → its adapter. Claude Code comes last, because other clients write lines that look like its own."""
