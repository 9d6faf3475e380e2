"""`context-manager compact`."""

from __future__ import annotations

import click

from mcp_server.cli.printing import json_option
from mcp_server.cli.prune import run


@click.command("compact")
@click.option("--now", is_flag=True, help="Do it now.")
@click.option("--dry-run", is_flag=True, help="Only show what it would do.")
@click.option("--session", help="The conversation (default: the open one that was last heard of).")
@click.option("--target", type=click.IntRange(0, 100), help="Percent of the limit to get down to.")
@json_option
def command(now: bool, dry_run: bool, session: str | None, target: int | None, as_json: bool) -> None:
    """Compact a conversation's live context: shorten, summarise and drop, the least relevant first, recoverably."""
    if not (now or dry_run):
        raise click.UsageError("give --now to do it, or --dry-run to look")
    run("compact", session, target, dry_run, as_json)
