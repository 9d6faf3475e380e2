"""`context-manager costs`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mcp_server.cli.opening import with_memory
from mcp_server.cli.printing import console, json_option, print_json

if TYPE_CHECKING:
    from rich.table import Table

    from mcp_server.llm.metered import Costs
    from mcp_server.memory import Memory
    from mcp_server.storage.llm_ledger import Spent


@click.command("costs")
@click.option("--days", type=click.IntRange(1, 400), default=30, show_default=True, help="So far back.")
@json_option
def command(days: int, as_json: bool) -> None:
    """What LLM calls cost: by purpose, by day, and what a month like this is."""
    from mcp_server.llm.metered import costs

    async def ask(memory: Memory) -> Costs:
        return await costs(memory, days)

    found = with_memory(ask, fresh=False)
    if as_json:
        print_json(found)
    elif not found.days and found.provider == "none":
        click.echo("Nothing: no LLM is asked (llm.provider is none), and everything works without one.")
    elif not found.days:
        click.echo(f"Nothing since {found.since}: {found.provider} was not asked.")
    else:
        for title, rows in (("purpose", found.purposes), ("day", found.days)):
            console().print(_table(title, dict(rows), found))
        click.echo(_summary(found))


def _table(title: str, rows: dict[str, Spent], found: Costs) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in (title, "calls", "failed", "tokens in", "tokens out", "cost"):
        table.add_column(name, justify="left" if name == title else "right")
    for name, spent in rows.items():
        counts = (spent.calls, spent.failed, spent.input_tokens, spent.output_tokens)
        table.add_row(name, *(f"{count:,}" for count in counts), _money(spent, found))
    return table


def _summary(found: Costs) -> str:
    today = f"Today {found.today.tokens:,} of {found.daily_tokens:,} tokens"
    if not found.priced:
        return f"{today}. Prices are not set (llm.input_price and the like), so only tokens are known."
    return (
        f"{today}, {_money(found.today, found)} of ${found.daily_usd:g}."
        f" A month like this: {_money(found.month, found)}."
    )


def _money(spent: Spent, found: Costs) -> str:
    return f"${spent.usd:.4f}" if found.priced else "not known"
