"""`context-manager logs stats`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from mcp_server.cli.opening import with_memory
from mcp_server.cli.printing import console, json_option, print_json, visible

if TYPE_CHECKING:
    from rich.console import RenderableType

    from mcp_server.memory import Memory
    from mcp_server.pressure.log import LogStats, Spread, Tuning

BAR = 40
"""Characters of the longest bar."""


class Since(click.ParamType[datetime]):
    """A day, a month, `7d`: as `search` takes it; in UTC."""

    name = "date"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        from mcp_server.search.query_syntax import period

        if isinstance(value, datetime):
            return value
        named = period(value, datetime.now(UTC))
        if named is None:
            self.fail(f"{value!r} is not a date; write 2026-03-01, 2026-03, today, yesterday or 7d", param, ctx)
        return named[0]


@click.group("logs")
def command() -> None:
    """Show what curation and compaction did (logs in .local/logs/context/)."""


@command.command("stats")
@click.option("--session", help="Only of this conversation.")
@click.option("--since", type=Since(), help="From then on (UTC): 2026-03-01, yesterday, 7d.")
@json_option
def stats(session: str | None, since: datetime | None, as_json: bool) -> None:
    """Why chunks were dropped, at which scores, what that saved, and what came back: tables and charts.

    For tuning: change `context.relevance_cutoff`, `context.memfas_weight` and the like in memory-config.yaml, go on for
    a day, and compare.
    """
    from mcp_server.pressure.health import mirror_note
    from mcp_server.pressure.log import tuning

    async def ask(memory: Memory) -> tuple[Tuning, str]:
        found = await tuning(memory, session, since)
        return found, await mirror_note(memory, found.sessions)

    found, note = with_memory(ask)
    if as_json:
        print_json(found)
    elif not any(found.lines.values()):
        click.echo("The logs are empty: nothing was curated, compacted or dropped yet. (`health` says how full it is.)")
    else:
        for part in _page(found):
            console().print(part)
        if note:
            click.echo(note)


def _page(found: Tuning) -> Iterator[RenderableType]:
    from rich.text import Text

    stats = found.stats
    yield Text.assemble(
        ("logs  ", "dim"),
        f"{_time(stats.first)} to {_time(stats.last)}: ",
        ", ".join(f"{count:,} {kind}" for kind, count in found.lines.items() if count),
    )
    yield from _chart("Why chunks were dropped", stats.reasons)
    if any(one.count for one in stats.scores):
        marks = {f"{one.start:.1f}-{one.end:.1f}": one.count for one in stats.scores}
        yield from _chart("Scores of what was dropped", marks)
        cut = ", ".join(f"{threshold:g}" for threshold in stats.thresholds)
        yield Text(f"  threshold used: {cut or 'none'}", "dim")
    yield from _savings(stats)
    yield from _chart("What came back", stats.recovered)
    if stats.dropped and stats.recovered:
        share = sum(stats.recovered.values()) / stats.dropped
        yield Text(f"  {share:.0%} of what was dropped came back: what comes back often, should not have gone", "dim")
    knobs = ", ".join(f"{name} {value:g}" for name, value in found.knobs.items())
    yield Text(f"\nset now: {knobs}; fullest it was: {stats.highest_pct:.0%}", "dim")


def _chart(title: str, counts: Mapping[str, int]) -> Iterator[RenderableType]:
    """One bar a row, the longest as wide as `BAR`."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    if not counts:
        return
    most, total = max(counts.values()), sum(counts.values())
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=Text(title, "bold"), title_justify="left")
    for name in ("", "count", "share", ""):
        table.add_column(name, justify="right" if name else "left", no_wrap=True)
    for name, count in counts.items():
        bar = Text("█" * max(1 if count else 0, round(BAR * count / most)) if most else "", "cyan")
        table.add_row(visible(name), f"{count:,}", f"{count / total:.0%}" if total else "", bar)
    yield table


def _savings(stats: LogStats) -> Iterator[RenderableType]:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    rows = [(name, one) for name, one in (("curation", stats.curation), ("compaction", stats.compaction)) if one.count]
    if not rows:
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=Text("Tokens saved", "bold"), title_justify="left")
    for name in ("", "times", "total", "least", "median", "mean", "most", ""):
        table.add_column(name, justify="right" if name else "left", no_wrap=True)
    highest = max(one.total for _, one in rows)
    for name, one in rows:
        table.add_row(
            name, *_numbers(one), Text("█" * (round(BAR * max(0, one.total) / highest) if highest > 0 else 0), "green")
        )
    yield table
    if stats.summarised:
        yield Text(f"  {stats.summarised:,} chunks were summarised, their originals are in cold storage", "dim")


def _numbers(one: Spread) -> tuple[str, ...]:
    return tuple(f"{value:,.0f}" for value in (one.count, one.total, one.least, one.median, one.mean, one.most))


def _time(stamp: str | None) -> str:
    return (stamp or "")[:16].replace("T", " ")
