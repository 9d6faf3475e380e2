"""`context-manager explore create|list|merge|drop`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mcp_server.cli.branches import print_joined
from mcp_server.cli.opening import with_memory
from mcp_server.cli.printing import json_option, moment, print_json, print_table

if TYPE_CHECKING:
    from mcp_server.history.merging import Joined
    from mcp_server.memory import Memory


@click.group("explore")
def command() -> None:
    """What if? A copy of the memory on a branch of its own, in a folder of its own, merged or dropped within a week."""


@command.command("create")
@click.argument("name")
@json_option
def create(name: str, as_json: bool) -> None:
    """Begin one from the memory as it is now."""
    from mcp_server.history import explore

    made = with_memory(lambda memory: explore.create(memory, name))
    if as_json:
        print_json(made)
        return
    click.echo(f"{made.place}\nEdit what you like there, or point a command at it with --workspace. It is dropped on")
    click.echo(f"{made.until:%Y-%m-%d}. Keep it: context-manager explore merge {name}; or not: explore drop {name}")


@command.command("list")
@json_option
def list_(as_json: bool) -> None:
    """All explorations, the oldest first."""
    from mcp_server.history.explore import explorations

    found = with_memory(explorations)
    if as_json:
        print_json(found)
    elif not found:
        click.echo("No explorations. Begin one: context-manager explore create NAME")
    else:
        rows = [
            (one.name, moment(one.begun), one.commits, one.uncommitted, moment(one.until), one.place or "(gone)")
            for one in found
        ]
        columns = ("name", "begun (UTC)", "commits", "uncommitted", "dropped (UTC)", "folder")
        print_table(columns, rows, right=("commits", "uncommitted"))


@command.command("merge")
@click.argument("name")
@json_option
def merge(name: str, as_json: bool) -> None:
    """Bring its work into the memory, and end it."""
    from mcp_server.history import explore

    async def act(memory: Memory) -> Joined | None:
        return await explore.merge(memory, name)

    print_joined(name, with_memory(act), as_json)


@command.command("drop")
@click.argument("name")
@json_option
def drop(name: str, as_json: bool) -> None:
    """End it; what was not merged keeps a tag."""
    from mcp_server.history import explore

    done = with_memory(lambda memory: explore.drop(memory, name))
    if as_json:
        print_json(done)
    elif done.tag:
        click.echo(f"{name} is dropped; its work is at {done.tag} (context-manager history show {done.tag})")
    else:
        click.echo(f"{name} is dropped; it had nothing of its own")
