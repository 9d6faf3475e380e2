"""`context-manager sync`."""

from __future__ import annotations

import click

from mcp_server.cli.opening import with_memory
from mcp_server.cli.printing import json_option, print_result
from mcp_server.cli.progress import working


@click.command("sync")
@click.argument("remote", required=False)
@json_option
def command(remote: str | None, as_json: bool) -> None:
    """Bring this memory and the copy on another machine together: commit, fetch, merge, push; nothing is lost.

    REMOTE is the name of a git remote of the workspace (default: git.remote in the settings, or the only one).
    """
    from mcp_server.history.sync import Synced, sync
    from mcp_server.memory import Memory

    async def act(memory: Memory) -> Synced:
        with working("Bringing both copies together …"):
            return await sync(memory, remote)

    done = with_memory(act)
    print_result(done, done.markdown, as_json)
