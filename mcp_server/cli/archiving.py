"""`context-manager archive [PATH...]`."""

from __future__ import annotations

from dataclasses import replace

import click

from mcp_server.cli.opening import with_memory
from mcp_server.cli.printing import json_option, print_result


@click.command("archive")
@click.argument("paths", nargs=-1)
@click.option("--dry-run", is_flag=True, help="Only show it: every byte stays as it is.")
@json_option
def command(paths: tuple[str, ...], dry_run: bool, as_json: bool) -> None:
    """Move knowledge to archive/: the files you name, else old journals and files that nobody needs any more.

    Search still finds what is there, nothing loads it by itself, and `recover` brings it back.
    """
    from mcp_server.knowledge.archive import archive_files, archive_journals
    from mcp_server.knowledge.prune_knowledge import prune_files
    from mcp_server.knowledge.pruning import Pruned
    from mcp_server.memory import Memory

    async def act(memory: Memory) -> list[Pruned]:
        if paths:
            return [await archive_files(memory, paths, dry_run)]
        return [await archive_journals(memory, dry_run), await prune_files(memory, dry_run)]

    done = with_memory(act, fresh=not dry_run)
    print_result(
        {"archived": [one.as_dict() for one in done]},
        "\n\n".join(replace(one, asked="archive").markdown for one in done),
        as_json,
    )
