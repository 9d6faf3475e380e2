"""`context-manager condense daily|weekly|monthly`."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import click

from mcp_server.cli.opening import with_memory
from mcp_server.cli.printing import count, json_option, print_result
from mcp_server.cli.progress import working

if TYPE_CHECKING:
    from mcp_server.knowledge.condense import Condensed


@click.command("condense")
@click.argument("period", type=click.Choice(["daily", "weekly", "monthly"]))
@click.option("--dry-run", is_flag=True, help="Only show the changes, as a diff.")
@json_option
def command(period: str, dry_run: bool, as_json: bool) -> None:
    """Condense journals and MEMORY.md.

    daily: extracts knowledge from closed conversations and shortens long journals. weekly: moves the best lines of each
    week into MEMORY.md and removes stale ones. monthly: also moves old journals and plans to archive/ and rewrites the
    indexes.
    """
    from mcp_server.app import catch_up
    from mcp_server.knowledge.condense import Period, condense
    from mcp_server.memory import Memory

    async def act(memory: Memory) -> Condensed:
        with working("Condensing …"):
            done = await condense(memory, cast(Period, period), dry_run=dry_run)
            if not dry_run:
                await catch_up(memory)
        return done

    done = with_memory(act)
    print_result(done, _told(done), as_json)


def _told(done: Condensed) -> str:
    would = "would be " if done.dry_run else ""
    said = [f"condense {done.period}: {count(len(done.files), 'file')} {would}changed"]
    for file in sorted(done.files.values(), key=lambda one: one.path):
        said.append(
            file.diff if done.dry_run else f"  {file.path}" + (f"  {file.counts}" if file.added or file.removed else "")
        )
    if done.dry_run:
        said.append("This was a dry run: nothing has changed.")
    return "\n".join([*said, *done.notes])
