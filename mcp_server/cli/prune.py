"""`context-manager prune`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mcp_server.cli.opening import caller, with_memory
from mcp_server.cli.printing import (
    apply_option,
    choice_option,
    examples,
    json_option,
    plain,
    print_json,
    print_result,
    print_table,
    progress,
)

if TYPE_CHECKING:
    from mcp_server.memory import Memory
    from mcp_server.status.reset import Reset


@click.command(
    "prune",
    epilog=examples(
        "prune", "prune --strategy compact --apply", "prune knowledge/people/old-contact.md --apply", "recover"
    ),
)
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@choice_option(
    "--strategy",
    values=["auto", "clarity", "advisor", "compact", "memory", "files"],
    about="A context (auto, compact), its items (clarity, advisor), MEMORY.md (memory) or unused knowledge (files).",
    default="auto",
)
@click.option("--session", help="The conversation (default: the open one with the latest message).")
@click.option("--target", type=click.IntRange(0), help="The size to reach: percent of the limit; memory: lines.")
@click.option("--lexicon", is_flag=True, help="Print the advisor's lexicon, to edit a copy (`advisor.lexicon`).")
@apply_option
@json_option
def prune_command(
    paths: tuple[str, ...],
    strategy: str,
    session: str | None,
    target: int | None,
    lexicon: bool,
    apply: bool,
    as_json: bool,
) -> None:
    """Shorten a conversation's context or the knowledge, and say why; with PATH, move these files to archive/.

    Everything that is removed can be recovered. Search still finds what is in archive/.
    """
    if lexicon:
        from mcp_server.storage.local.lexicon import SHIPPED

        text = SHIPPED.read_text("utf-8")
        print_result({"lexicon": text}, text, as_json)
        return
    if paths and (session or target is not None or strategy not in ("auto", "files")):
        raise click.UsageError("PATH takes no --session, --target or other strategy than files")
    from mcp_server.knowledge.prune_knowledge import archive_files
    from mcp_server.knowledge.pruning import Pruned
    from mcp_server.pressure.prune import OF_KNOWLEDGE, last_session, prune

    async def act(memory: Memory) -> Pruned:
        if paths:
            return await archive_files(memory, paths, not apply)
        chosen = session if session or strategy in OF_KNOWLEDGE else await last_session(memory)
        return await prune(memory, strategy, chosen, not apply, caller(), target=target)

    done = with_memory(act, fresh=apply)  # bringing the index up to date would change bytes
    print_result(done, done.markdown, as_json)
    if done.changes and not (apply or as_json):
        click.echo("Nothing was changed yet; do it with: the same command and --apply")


@click.command("reset", epilog=examples("reset", "reset --index --apply"))
@click.option(
    "--index", "index_only", is_flag=True, help="Only rebuild the search index; the old one serves meanwhile."
)
@apply_option
@json_option
def reset_command(index_only: bool, apply: bool, as_json: bool) -> None:
    """Delete index, state and logs, and rebuild what can be rebuilt.

    Conversations, knowledge and valid cold records stay.
    """
    if index_only:
        _rebuild_index(apply, as_json)
        return
    from mcp_server.status.reset import plan_reset, reset

    async def act(memory: Memory) -> Reset:
        with progress("Indexing") as show:
            return await reset(memory, lambda done, total: show(done, total, ""))

    planned = with_memory(plan_reset)
    if not as_json:
        _print(planned, apply)
    if apply:
        planned = with_memory(act)
    if as_json:
        print_json(planned)
        return
    for note in planned.notes:
        click.echo(note)
    click.echo("Done." if apply else "Nothing was deleted yet; do it with: context-manager reset --apply")


def _print(planned: Reset, apply: bool) -> None:
    from mcp_server.status.reset import STAYS

    rows = [(part.what, part.where, part.files, f"{part.bytes:,}", part.then) for part in planned.parts]
    title = "This is deleted:" if apply else "This would be deleted:"
    print_table(("what", "where", "files", "bytes", "then"), rows, title=title, right=("files", "bytes"))
    click.echo("This stays: " + "; ".join(STAYS) + ".")


def _rebuild_index(apply: bool, as_json: bool) -> None:
    async def act(memory: Memory) -> Any:
        if apply:
            with progress("Indexing") as show:
                await memory.index.rebuild(lambda done, total: show(done, total, ""))
        return await memory.index.status()

    found = with_memory(act)
    if as_json:
        print_json(found)
        return
    rows = [(key.replace("_", " "), _shown(value)) for key, value in plain(found).items()]
    print_table(("", ""), rows)
    click.echo("Done." if apply else "Nothing was changed yet; do it with: context-manager reset --index --apply")


def _shown(value: object) -> str:
    if isinstance(value, list):
        return "; ".join(map(str, value)) or "none"
    return f"{value:,}" if isinstance(value, int) else str(value)
