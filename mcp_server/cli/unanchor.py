"""`context-manager unanchor`: beside `anchor`, which holds it."""

from __future__ import annotations

from mcp_server.cli.anchor import unanchor as command

__all__ = ["command"]
