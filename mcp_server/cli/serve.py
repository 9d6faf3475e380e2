"""`context-manager serve`."""

from __future__ import annotations

import os
from typing import Literal

import click


@click.command("serve")
@click.option("--http", is_flag=True, help="Streamable HTTP instead of stdio.")
@click.option("--host", default="127.0.0.1", show_default=True, help="With --http: where to listen.")
@click.option("--port", type=click.IntRange(0, 65535), default=8765, show_default=True, help="0 takes a free one.")
@click.option("--token", help="Bearer token (default: $CONTEXT_MANAGER_TOKEN, else .local/http-token).")
@click.option("--no-token", is_flag=True, help="Ask for no token; on loopback only.")
@click.option("--hooks", is_flag=True, help="For a client whose hooks record and bring in the context.")
@click.option(
    "--tools", type=click.Choice(("core", "full")), default="core", show_default=True, help="full: also the less usual."
)
def command(
    http: bool, host: str, port: int, token: str | None, no_token: bool, hooks: bool, tools: Literal["core", "full"]
) -> None:
    """Start the MCP server, for a client that started this process or, with --http, for any on this machine."""
    from mcp_server.serve import Serving, run

    workspace = click.get_current_context().find_root().obj
    run(Serving(workspace, http, host, port, token, not no_token, hooks, tools), os.environ)
