"""`context-manager init`."""

from __future__ import annotations

import click

from mcp_server.cli.opening import with_memory
from mcp_server.cli.printing import json_option, print_json


@click.command("init")
@json_option
def command(as_json: bool) -> None:
    """Create the memory's folder with its templates and its own git repository. Doing so again changes nothing."""
    import os

    from mcp_server.home import resolve_workspace
    from mcp_server.memory import Memory

    context = click.get_current_context()
    folder = resolve_workspace(context.find_root().obj, os.environ)
    existed = (folder / "memory-config.yaml").exists()

    async def nothing(_: Memory) -> None:
        return None

    with_memory(nothing)
    if as_json:
        print_json({"workspace": str(folder), "created": not existed})
    elif existed:
        click.echo(f"The memory in {folder} is there already; nothing was changed.")
    else:
        click.echo(f"Created the memory in {folder}.")
        click.echo("Next: fill in knowledge/identity/USER.md, or bring in what you have: context-manager import FILE")
