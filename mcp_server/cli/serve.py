"""`context-manager serve`, `page` and `hook`."""

from __future__ import annotations

import os
import sys
from typing import Literal

import click

from mcp_server.cli.shell import chosen_workspace, examples


@click.command("serve", epilog=examples("serve --http", "serve --http --port 0 --tools full"))
@click.option("--http", is_flag=True, help="Streamable HTTP instead of stdio.")
@click.option("--host", default="127.0.0.1", show_default=True, help="With --http: where to listen.")
@click.option("--port", type=click.IntRange(0, 65535), default=8765, show_default=True, help="0 chooses a free port.")
@click.option("--token", help="Bearer token (default: $CONTEXT_MANAGER_TOKEN, else .local/http-token).")
@click.option("--no-token", is_flag=True, help="Require no token (loopback only).")
@click.option("--hooks", is_flag=True, help="The client's hooks record the conversation and add the context.")
@click.option(
    "--tools", type=click.Choice(("core", "full")), default="core", show_default=True, help="full: also the less common"
)
def serve_command(
    http: bool, host: str, port: int, token: str | None, no_token: bool, hooks: bool, tools: Literal["core", "full"]
) -> None:
    """Start the MCP server: for the client that started this process or, with --http, for any client."""
    from mcp_server.serve import NO_CLIENT, Serving, run

    if not http and sys.stdin.isatty():
        raise click.UsageError(NO_CLIENT.partition(": ")[2].replace("context-manager-mcp --http", "serve --http"))
    workspace = chosen_workspace()
    run(Serving(workspace, http, host, port, token, not no_token, hooks, tools), os.environ)


@click.command("page", epilog=examples("page", "page --no-browser --port 8766"))
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="The port (default: a free one).")
@click.option("--no-browser", is_flag=True, help="Only print the address.")
@click.option("--background", is_flag=True, help="Return at once; the page ends half an hour after its last use.")
@click.option("--until-idle", is_flag=True, hidden=True, help="What --background starts.")
def page_command(port: int, no_browser: bool, background: bool, until_idle: bool) -> None:
    """Look at the memory in the browser: what was added to prompts and why, what it knows, days, topics, problems.

    Only this machine can open the page, and only with the address that this command opens or prints. The address works
    once.
    """
    workspace = chosen_workspace()
    if background:
        if no_browser or port:
            raise click.UsageError("--background opens the browser on a free port; leave out --no-browser and --port")
        from mcp_server.serve.local_page import run_in_background

        click.echo(run_in_background(workspace))
        return
    from mcp_server.serve.local_page import run

    run(workspace, os.environ, port, not no_browser, until_idle)


@click.command("hook")
@click.argument("event", required=False)
def hook_command(event: str | None) -> int:
    """Answer a hook of a client: its input comes as JSON on stdin, its output goes to stdout.

    EVENT is SessionStart, UserPromptSubmit, PostToolUse, Stop, PreCompact, PostCompact or SessionEnd; the default is
    the event that the input names. If anything goes wrong, the command prints nothing and exits with 0. With
    CONTEXT_MANAGER_HOOK_DEBUG=1 in the environment it prints the reason on stderr.
    """
    from mcp_server.clients.hooks import command as hook

    workspace = chosen_workspace()
    named = ["--workspace", str(workspace)] if workspace else []
    return hook.main([*([event] if event else []), *named])
