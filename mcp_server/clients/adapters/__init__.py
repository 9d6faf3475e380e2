"""Describes the clients with hooks. Each has its own file, except Claude Code, which is in `adapter`."""

from mcp_server.clients.adapters import codex, copilot, gemini, opencode
from mcp_server.clients.adapters.adapter import CLAUDE_CODE, Adapter

ADAPTERS: dict[str, Adapter] = {
    each.client: each
    for each in (codex.ADAPTER, gemini.ADAPTER, gemini.QWEN, copilot.ADAPTER, opencode.ADAPTER, CLAUDE_CODE)
}
"""Client → its adapter. Claude Code comes last, because other clients write lines that look like its own."""
