"""`context-manager recover`."""

from __future__ import annotations

from dataclasses import replace
from shlex import quote

import click

from mcp_server.cli.opening import caller, with_memory
from mcp_server.cli.printing import json_option, print_json, print_table, print_text


@click.command("recover")
@click.argument("what", required=False, metavar="[PATH@REV|ID]")
@click.option("--chunk-id", metavar="ID", help="Bring a chunk back from cold storage, at once.")
@click.option("--checkpoint", metavar="ID", help="Go back to a checkpoint: anchors, topics, live context, Clarity.")
@click.option("--knowledge/--no-knowledge", default=None, help="With --checkpoint: the files of the knowledge too.")
@click.option("--query", help="Find what can be recovered by words in it; with --apply: the one thing that fits best.")
@click.option("--apply", is_flag=True, help="Do it; without this only the diff is shown.")
@click.option("--dry-run", is_flag=True, help="With --chunk-id: only show it.")
@click.option("--limit", type=click.IntRange(1, 200), default=10, show_default=True, help="Most of each kind.")
@json_option
def command(
    what: str | None,
    chunk_id: str | None,
    checkpoint: str | None,
    knowledge: bool | None,
    query: str | None,
    apply: bool,
    dry_run: bool,
    limit: int,
    as_json: bool,
) -> None:
    """Bring back what went cold, an earlier version, an archived entry, a commit that was taken back, a checkpoint.

    Without arguments: list them.

    PATH@REV is a file as it was at a commit, a tag or a date (YYYY-MM-DD). A recovery is undone by another one.
    """
    if sum(given is not None for given in (what, chunk_id, checkpoint, query)) > 1:
        raise click.UsageError("give one of: what to recover, --chunk-id, --checkpoint, --query")
    what = what or checkpoint
    if apply and not (what or chunk_id or query):
        raise click.UsageError("--apply needs what to recover: PATH@REV, an ID or --query")
    if dry_run and apply:
        raise click.UsageError("--dry-run shows it, --apply does it: give one of them")
    if what is None and chunk_id is None and not apply:
        _list(query, limit, as_json)
    else:
        _recover(what or chunk_id, query, apply or (chunk_id is not None and not dry_run), knowledge, as_json)


def _list(query: str | None, limit: int, as_json: bool) -> None:
    from mcp_server.memory import Memory
    from mcp_server.recovery.recoverable import Recoverable, recoverable

    async def find(memory: Memory) -> list[Recoverable]:
        return await recoverable(memory, query, limit)

    found = with_memory(find, fresh=bool(query))
    if as_json:
        print_json(found)
    elif not found:
        click.echo("Nothing to recover: nothing went cold or was archived, and no committed file was changed since.")
    else:
        rows = [(one.id, one.kind, one.at[:16].replace("T", " "), one.summary) for one in found]
        print_table(("id", "kind", "written", "what"), rows, whole=("id",))


def _recover(what: str | None, query: str | None, apply: bool, knowledge: bool | None, as_json: bool) -> None:
    from mcp_server.memory import Memory
    from mcp_server.recovery.recover import Recovery, recover
    from mcp_server.recovery.recoverable import meant

    async def act(memory: Memory) -> Recovery:
        return await recover(
            memory, what or (await meant(memory, query or "")).id, caller(), apply=apply, knowledge=knowledge
        )

    done = with_memory(act, fresh=what is None)
    if as_json:
        print_json(done)
        return
    print_text(replace(done, undo=None).markdown)
    if done.undo:
        click.echo(f"Undo it with: context-manager recover {done.undo} --apply")
    elif done.diff and not done.applied:
        too = " --knowledge" if knowledge else ""
        click.echo(f"Nothing was changed yet; do it with: context-manager recover {quote(done.id)} --apply{too}")
