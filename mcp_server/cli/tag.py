"""`context-manager tag milestone|before|extract|list`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mcp_server.cli.opening import with_memory
from mcp_server.cli.printing import json_option, moment, print_json, print_table

if TYPE_CHECKING:
    from mcp_server.history.committing import Kind


@click.group("tag")
def command() -> None:
    """Give the memory as it is now a name. Days and weeks get theirs by themselves."""


def _tagging(kind: Kind, about: str) -> None:
    @command.command(kind, help=about)
    @click.argument("name")
    @click.option("--note", "-m", default="", help="A sentence about it.")
    @json_option
    def act(name: str, note: str, as_json: bool) -> None:
        from mcp_server.history.committing import tag

        made = with_memory(lambda memory: tag(memory, kind, name, note))
        if as_json:
            print_json(made)
        else:
            click.echo(f"{made.name} is {made.commit[:10]}. As it was then: context-manager read PATH --at {made.name}")


_tagging("milestone", "Something is reached: tags memory/milestone/NAME.")
_tagging("before", "Something is about to change: tags memory/before/NAME.")
_tagging("extract", "An extraction algorithm has changed: tags memory/extract/NAME.")


@command.command("list")
@json_option
def list_(as_json: bool) -> None:
    """All tags of the memory, the oldest first."""
    from mcp_server.history.committing import tags

    found = with_memory(tags)
    if as_json:
        print_json(found)
    elif not found:
        click.echo("No tags yet. Name the memory as it is now: context-manager tag milestone NAME")
    else:
        print_table(
            ("tag", "of (UTC)", "commit", "note"), [(t.name, moment(t.at), t.commit[:10], t.message) for t in found]
        )
