"""`context-manager drops`."""

from __future__ import annotations

import click

from mcp_server.cli.opening import with_memory
from mcp_server.cli.printing import json_option, print_json, print_table


@click.command("drops")
@click.option("--session", help="Of this conversation (default: of all).")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="The newest so many.")
@json_option
def command(session: str | None, limit: int, as_json: bool) -> None:
    """What left a conversation's live context, when and why, and whether it can come back. The newest first."""
    from mcp_server.memory import Memory
    from mcp_server.pressure.cold import Drop, drops
    from mcp_server.pressure.health import mirror_note

    async def ask(memory: Memory) -> tuple[list[Drop], str]:
        found = await drops(memory, session, limit)
        return found, await mirror_note(memory, {one.session_id for one in found})

    found, note = with_memory(ask)
    if as_json:
        print_json(found)
        return
    if not found:
        click.echo("Nothing was dropped. (`health` says how full the conversations are.)")
        return
    rows = [
        (
            one.chunk_id,
            one.timestamp[:16].replace("T", " "),
            one.reason.replace("_", " "),
            f"{one.relevance_score:.2f}{_under(one.relevance_score, one.threshold_used)}",
            f"{one.tokens:,}" if one.tokens else "",
            one.summary if one.recoverable else "(not in cold storage any more)",
        )
        for one in found
    ]
    print_table(
        ("chunk", "dropped (UTC)", "reason", "score", "tokens", "what"), rows, right=("tokens",), whole=("chunk",)
    )
    if back := next((one for one in found if one.recoverable), None):
        click.echo(f"Bring one back: context-manager recover --chunk-id {back.chunk_id}")
    if note:
        click.echo(note)


def _under(score: float, threshold: float | None) -> str:
    """The cutoff, where it was under that; a compaction drops what is over it too."""
    return f" ≤ {threshold:.2f}" if threshold is not None and score <= threshold else ""
