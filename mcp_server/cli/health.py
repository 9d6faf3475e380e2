"""`context-manager health`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mcp_server.cli.opening import with_memory
from mcp_server.cli.printing import console, json_option, print_json, print_text, visible

if TYPE_CHECKING:
    from rich.console import RenderableType

    from mcp_server.memory import Memory
    from mcp_server.pressure.health import Health

BAR = 20
"""Characters of a gauge."""

LONGEST_TITLE = 40


@click.command("health")
@click.option("--session", help="Of this conversation, also when it has ended (default: of all open ones).")
@click.option(
    "--notify-if-pct",
    type=click.FloatRange(0, 1),
    metavar="SHARE",
    help="Say something only about those that are fuller, such as 0.5: for cron, which mails what is printed.",
)
@json_option
def command(session: str | None, notify_if_pct: float | None, as_json: bool) -> None:
    """How full the context of each open conversation is, and when something will happen to it."""
    from mcp_server.pressure.health import health

    async def ask(memory: Memory) -> list[Health]:
        return await health(memory, session)

    found = with_memory(ask, fresh=session is None)
    if notify_if_pct is not None:
        found = [one for one in found if one.highest_pct > notify_if_pct]
    if as_json:
        print_json(found)
    elif notify_if_pct is not None:
        for one in found:
            print_text(f"{one.session_id} is at {one.highest_pct:.0%} of {one.limit:,} tokens: {one.next_step}")
    elif not found:
        click.echo("No conversation is open. (session list shows those that have ended.)")
    else:
        console().print(_table(found))


def _table(found: list[Health]) -> RenderableType:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("session", "live", "client's own", "chunks", "cold", "what comes next"):
        right = name in ("chunks", "cold")
        table.add_column(
            name, justify="right" if right else "left", no_wrap=right or name == "session", overflow="fold"
        )
    for one in found:
        table.add_row(
            Text.assemble(visible(one.session_id), (f"\n{_short(visible(one.title))}", "dim")),
            _gauge(one.pct_used, one.current_tokens, one.limit),
            _gauge(one.client_pct, one.client_tokens, one.limit),
            str(one.memcached_chunks),
            str(one.cold_storage_chunks),
            visible(one.next_step),
        )
    return table


def _short(title: str) -> str:
    return title if len(title) <= LONGEST_TITLE else title[: LONGEST_TITLE - 1].rstrip() + "…"


def _gauge(share: float | None, tokens: int | None, limit: int) -> RenderableType:
    from rich.text import Text

    if share is None or tokens is None:
        return Text("not told", "dim")
    full = min(BAR, round(share * BAR))
    colour = "green" if share < 0.4 else "yellow" if share < 0.7 else "red"
    return Text.assemble(("█" * full, colour), ("·" * (BAR - full), "dim"), f" {share:.0%}\n{tokens:,} of {limit:,}")
