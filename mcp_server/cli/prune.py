"""`context-manager prune`."""

from __future__ import annotations

import click

from mcp_server.cli.opening import caller, with_memory
from mcp_server.cli.printing import json_option, print_result


@click.command("prune")
@click.option(
    "--strategy",
    type=click.Choice(["auto", "clarity", "advisor", "compact", "memory", "files"]),
    default="auto",
    show_default=True,
    help="What to look at: a context (auto, compact), what is in it (clarity, advisor), or what is known.",
)
@click.option("--session", help="The conversation (default: the open one that was last heard of).")
@click.option("--target", type=click.IntRange(0), help="How little to leave: percent of the limit; memory: lines.")
@click.option("--dry-run", is_flag=True, help="Only show it: every byte stays as it is.")
@click.option("--lexicon", is_flag=True, help="Print the advisor's lexicon, to edit a copy (`advisor.lexicon`).")
@json_option
def command(
    strategy: str,
    session: str | None,
    target: int | None,
    dry_run: bool,
    lexicon: bool,
    as_json: bool,
) -> None:
    """Prune a conversation's context or the memory: what is kept, fading, gone, and why. What goes can be recovered.

    Look first with --dry-run.
    """
    if lexicon:
        from mcp_server.storage.local.lexicon import SHIPPED

        text = SHIPPED.read_text("utf-8")
        print_result({"lexicon": text}, text, as_json)
        return
    run(strategy, session, target, dry_run, as_json)


def run(strategy: str, session: str | None, target: int | None, dry_run: bool, as_json: bool) -> None:
    """Prunes and prints what came of it."""
    from mcp_server.knowledge.pruning import Pruned
    from mcp_server.memory import Memory
    from mcp_server.pressure.prune import OF_KNOWLEDGE, last_session, prune

    async def act(memory: Memory) -> Pruned:
        chosen = session if session or strategy in OF_KNOWLEDGE else await last_session(memory)
        return await prune(memory, strategy, chosen, dry_run, caller(), target=target)

    done = with_memory(act, fresh=not dry_run)  # bringing the index up to date would change bytes
    print_result(done, done.markdown, as_json)
