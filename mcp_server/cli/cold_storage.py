"""`context-manager cold-storage list`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mcp_server.cli.opening import with_memory
from mcp_server.cli.printing import json_option, moment, print_json, print_table

if TYPE_CHECKING:
    from mcp_server.pressure.cold_records import ColdRecord


@click.group("cold-storage")
def command() -> None:
    """What left live contexts and can still come back."""


@command.command("list")
@click.option("--session", help="Of this conversation (default: of all).")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="The newest so many.")
@json_option
def list_(session: str | None, limit: int, as_json: bool) -> None:
    """The records in cold storage, the newest first."""
    from mcp_server.memory import Memory
    from mcp_server.pressure.cold import cold_records, one_line
    from mcp_server.pressure.health import mirror_note

    async def ask(memory: Memory) -> tuple[list[ColdRecord], str]:
        records = await cold_records(memory, session)
        return records, await mirror_note(memory, {record.session_id for record in records})

    records, note = with_memory(ask)
    if as_json:
        print_json({"records": len(records), "tokens": _tokens(records), "list": records[:limit]})
        return
    if not records:
        click.echo("Cold storage is empty.")
        return
    rows = [
        (
            record.chunk_id,
            record.session_id,
            record.turn or "",
            f"{record.tokens:,}",
            moment(record.timestamp),
            record.drop_reason.replace("_", " "),
            f"{record.relevance_score:.2f}",
            f"{record.recoverable_until:%Y-%m-%d}",
            one_line(record),
        )
        for record in records[:limit]
    ]
    columns = ("chunk", "session", "turn", "tokens", "dropped (UTC)", "reason", "score", "until", "what")
    print_table(columns, rows, right=("turn", "tokens", "score"), whole=("chunk", "session"))
    more = f", {limit} of them shown" if len(records) > limit else ""
    click.echo(
        f"{len(records):,} in cold storage{more}, {_tokens(records):,} tokens. One of them: recover --chunk-id ID"
    )
    if note:
        click.echo(note)


def _tokens(records: list[ColdRecord]) -> int:
    return sum(record.tokens for record in records)
