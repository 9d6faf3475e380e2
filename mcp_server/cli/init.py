"""`context-manager init`."""

from __future__ import annotations

import click

from mcp_server.cli.opening import folder, memory_exists, with_memory
from mcp_server.cli.printing import json_option, print_json


@click.command("init")
@click.option("--adopt", is_flag=True, help="Also in a folder with other files or a git repository.")
@json_option
def command(adopt: bool, as_json: bool) -> None:
    """Create the memory's folder with its templates and its own git repository. A second run changes nothing."""
    from mcp_server.memory import Memory

    place, existed = folder(), memory_exists()

    async def nothing(_: Memory) -> None:
        return None

    with_memory(nothing, if_missing="adopt" if adopt else "create")
    if as_json:
        print_json({"workspace": str(place), "created": not existed})
    elif existed:
        click.echo(f"The memory in {place} exists already; nothing was changed.")
    else:
        click.echo(f"Created the memory in {place}.")
        click.echo("Next: fill in knowledge/identity/USER.md, or import conversations: context-manager import FILE")
