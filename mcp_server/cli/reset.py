"""`context-manager reset`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mcp_server.cli.opening import with_memory
from mcp_server.cli.printing import json_option, print_json, print_table
from mcp_server.cli.progress import progress

if TYPE_CHECKING:
    from mcp_server.memory import Memory
    from mcp_server.status.reset import Reset


@click.command("reset")
@click.option("--force", is_flag=True, help="Do it. Without this, only what would be deleted is shown.")
@json_option
def command(force: bool, as_json: bool) -> None:
    """Delete index, state and logs, and make again what can be made again.

    Never conversations, knowledge, or cold records whose time is not over. First says what it deletes.
    """
    from mcp_server.status.reset import plan_reset, reset

    async def look(memory: Memory) -> Reset:
        return await plan_reset(memory)

    async def act(memory: Memory) -> Reset:
        with progress("Indexing") as show:
            return await reset(memory, lambda done, total: show(done, total, ""))

    planned = with_memory(look)
    if not as_json:
        _print(planned, force)
    if force:
        planned = with_memory(act)
    if as_json:
        print_json(planned)
        return
    for note in planned.notes:
        click.echo(note)
    click.echo("Done." if force else "Nothing was deleted yet; do it with: context-manager reset --force")


def _print(planned: Reset, force: bool) -> None:
    from mcp_server.status.reset import STAYS

    rows = [(part.what, part.where, part.files, f"{part.bytes:,}", part.then) for part in planned.parts]
    title = "This is deleted:" if force else "This would be deleted:"
    print_table(("what", "where", "files", "bytes", "then"), rows, title=title, right=("files", "bytes"))
    click.echo("This stays: " + "; ".join(STAYS) + ".")
