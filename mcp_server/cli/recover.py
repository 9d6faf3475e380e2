"""`context-manager recover`."""

from __future__ import annotations

from dataclasses import replace
from shlex import quote

import click

from mcp_server.cli.opening import caller, with_memory
from mcp_server.cli.printing import json_option, print_json, print_table, print_text


@click.command("recover")
@click.argument("what", required=False, metavar="[PATH@REV|ID]")
@click.option("--query", help="Find what can be recovered by words in it.")
@click.option("--apply", is_flag=True, help="Do it; without this only the diff is shown.")
@click.option("--limit", type=click.IntRange(1, 200), default=10, show_default=True, help="Most of each kind.")
@json_option
def command(what: str | None, query: str | None, apply: bool, limit: int, as_json: bool) -> None:
    """Bring back an earlier version of a file or an archived entry. Without an argument: list what can be.

    PATH@REV is a file as it was at a commit, a tag or a date (YYYY-MM-DD). A recovery is undone by another one.
    """
    from mcp_server.actions.recover import Recovery, recover
    from mcp_server.actions.recoverable import Recoverable, recoverable
    from mcp_server.memory import Memory

    if what is None:
        if apply:
            raise click.UsageError("--apply needs what to recover: PATH@REV or an ID")

        async def find(memory: Memory) -> list[Recoverable]:
            return await recoverable(memory, query, limit)

        found = with_memory(find)
        if as_json:
            print_json(found)
        elif not found:
            click.echo("Nothing to recover: nothing was archived, and no committed file was changed since.")
        else:
            print_table(
                ("id", "written", "what"), [(one.id, one.at[:16].replace("T", " "), one.summary) for one in found]
            )
        return
    if query:
        raise click.UsageError("give either what to recover or --query")

    async def act(memory: Memory) -> Recovery:
        return await recover(memory, what, caller(), apply=apply)

    done = with_memory(act)
    if as_json:
        print_json(done)
        return
    print_text(replace(done, undo=None).markdown)
    if done.undo:
        click.echo(f"Undo it with: context-manager recover {done.undo} --apply")
    elif done.diff:
        click.echo(f"Nothing was changed yet; do it with: context-manager recover {quote(what)} --apply")
