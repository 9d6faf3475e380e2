"""`context-manager anchor|unanchor`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mcp_server.cli.opening import with_memory
from mcp_server.cli.printing import json_option, print_json, print_result, print_table

if TYPE_CHECKING:
    from mcp_server.knowledge.anchor import Anchored
    from mcp_server.knowledge.anchors import Anchor
    from mcp_server.memory import Memory


@click.command("anchor")
@click.argument("item", required=False)
@click.option("--note", help="Why it is kept.")
@json_option
def command(item: str | None, note: str | None, as_json: bool) -> None:
    """Mark an item to keep: a name, a chunk's id, a file, PATH#TURN or SESSION#TURN. Without ITEM: list the anchors."""
    if item is not None:
        _act(item, True, note, as_json)
        return
    if note:
        raise click.UsageError("--note needs an item")
    held = with_memory(_list)
    if as_json:
        print_json([{"item": one.item, "kind": one.kind, "note": one.note, "at": one.at} for one in held])
    elif not held:
        click.echo("Nothing is anchored. (anchor ITEM)")
    else:
        print_table(("anchor", "kind", "since", "note"), [(one.item, one.kind, one.at, one.note) for one in held])


@click.command("unanchor")
@click.argument("item")
@json_option
def unanchor(item: str, as_json: bool) -> None:
    """Remove an anchor."""
    _act(item, False, None, as_json)


async def _list(memory: Memory) -> list[Anchor]:
    from mcp_server.knowledge.anchor import anchors

    return anchors(memory)


def _act(item: str, on: bool, note: str | None, as_json: bool) -> None:
    from mcp_server.knowledge.anchor import anchor

    async def act(memory: Memory) -> Anchored:
        return await anchor(memory, item, on, note)

    done = with_memory(act, if_missing="create" if on else "refuse")
    print_result(
        {"item": done.anchor.item, "kind": done.anchor.kind, "on": done.on, "changed": done.changed},
        done.markdown,
        as_json,
    )
