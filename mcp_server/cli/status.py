"""`context-manager status`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import click

from mcp_server.cli import shell
from mcp_server.llm.metered import Costs, costs
from mcp_server.memory import Memory
from mcp_server.pressure.health import Health, health, mirror_note, tuning
from mcp_server.relevance.clarity import COLUMNS, cells, view
from mcp_server.search.query import period
from mcp_server.status.status import StatusReport, status
from mcp_server.storage.llm_ledger import Spent
from mcp_server.text.prose import clipped

VIEWS = {
    "sessions": "Show the conversations.",
    "topics": "Show which topics are active.",
    "hooks": "Show what the hooks of clients did.",
    "index": "Show the search index, and whether it is complete.",
    "git": "Show commits, the remote, and uncommitted files.",
    "llm": "Show the LLM, if one is configured.",
    "settings": "Show all settings with their values.",
    "sizes": "Count files and bytes.",
}


@shell.group(
    "status",
    "status",
    "status gauges --notify-if-pct 0.5",
    "status costs --days 7",
    "status index --json",
    invoke_without_command=True,
    params=[shell.JSON],
)
@click.pass_context
def status_command(context: click.Context) -> None:
    """Show the contents of this memory, and its problems; a subcommand shows one part."""
    if context.invoked_subcommand is None:
        _report("all", None)
    elif shell.as_json():
        raise click.UsageError(f"--json comes after the view: status {context.invoked_subcommand} --json")


for name, about in VIEWS.items():

    @status_command.command(name, help=about)
    @click.option("--session", help="Only this conversation.")
    def show(session: str | None, view: str = name) -> None:
        _report(view, session)


def _report(view: str, session: str | None) -> None:
    async def ask(memory: Memory) -> tuple[StatusReport, list[Health]]:
        report = await status(memory, view=view, session=session, max_tokens=100_000)
        return report, await health(memory) if view == "all" and not shell.as_json() else []

    report, contexts = shell.with_memory(ask, fresh=True)
    shell.print_result(report, report.markdown)
    if contexts:
        click.echo("\n## How full the open conversations are\n")
    for one in contexts[:GAUGES_SHOWN]:
        shell.print_text(
            f"{_gauge(one.highest_pct, one.current_tokens, one.limit)}  {clipped(one.title, LONGEST_TITLE)}"
        )


HEALTH_BAR = 10
"""Characters of a gauge."""

GAUGES_SHOWN = 5
"""Open conversations whose gauge `status` shows, the newest."""

LONGEST_TITLE = 40


@status_command.command("gauges")
@click.option("--session", help="Only this conversation, even if it has ended (default: all open ones).")
@click.option(
    "--notify-if-pct",
    type=click.FloatRange(0, 1),
    metavar="SHARE",
    help="Print only conversations that are fuller, such as 0.5. Made for cron, which mails any output.",
)
def gauges(session: str | None, notify_if_pct: float | None) -> None:
    """Show how full each open conversation's context is."""
    found = shell.with_memory(lambda memory: health(memory, session), fresh=session is None)
    if notify_if_pct is not None:
        found = [one for one in found if one.highest_pct > notify_if_pct]
    if notify_if_pct is not None and not shell.as_json():
        for one in found:
            shell.print_text(f"{one.session_id} is at {one.highest_pct:.0%} of {one.limit:,} tokens: {one.next_step}")
        return
    shell.print_list(
        found,
        "No conversation is open. (session list shows those that have ended.)",
        ("session", "live", "client's own", "chunks", "cold", "what comes next", "title"),
        lambda one: (
            one.session_id,
            _gauge(one.pct_used, one.current_tokens, one.limit),
            _gauge(one.client_pct, one.client_tokens, one.limit),
            one.memcached_chunks,
            one.cold_storage_chunks,
            one.next_step,
            clipped(one.title, LONGEST_TITLE),
        ),
        right=("chunks", "cold"),
        whole=("session", "live", "client's own"),
    )


def _gauge(share: float | None, tokens: int | None, limit: int) -> str:
    if share is None or tokens is None:
        return "not known"
    full = min(HEALTH_BAR, round(share * HEALTH_BAR))
    return f"{'█' * full}{'·' * (HEALTH_BAR - full)} {share:.0%} of {limit:,}"


@status_command.command("costs")
@click.option("--days", type=click.IntRange(1, 400), default=30, show_default=True, help="The number of days to show.")
def costs_(days: int) -> None:
    """Show the costs of LLM calls by purpose and day."""
    found = shell.with_memory(lambda memory: costs(memory, days))
    if shell.printed_as_json(found):
        return
    if not found.days and found.provider == "none":
        click.echo("No costs: no LLM is configured (llm.provider is none). Everything works without one.")
    elif not found.days:
        click.echo(f"No costs since {found.since}: {found.provider} was not called.")
    else:
        columns = ("calls", "failed", "tokens in", "tokens out", "cost")
        for title, of_title in (("purpose", found.purposes), ("day", found.days)):
            rows = []
            for name, one in of_title.items():
                counts = (one.calls, one.failed, one.input_tokens, one.output_tokens)
                rows.append((name, *map("{:,}".format, counts), _money(one, found)))
            shell.print_table((title, *columns), rows, right=columns)
        today = f"Today {found.today.tokens:,} of {found.daily_tokens:,} tokens"
        if found.priced:
            of_day = f"{_money(found.today, found)} of ${found.daily_usd:g}"
            click.echo(f"{today}, {of_day}. A month like this: {_money(found.month, found)}.")
        else:
            click.echo(f"{today}. Prices are not set (llm.input_price and the like), so only tokens are known.")


def _money(spent: Spent, found: Costs) -> str:
    return f"${spent.usd:.4f}" if found.priced else "not known"


def start_of(context: click.Context, parameter: click.Parameter, value: str | None) -> datetime | None:
    """Returns the start, in UTC, of a day, a month or `7d`, as `search` takes it."""
    if value is None:
        return None
    named = period(value, datetime.now(UTC))
    if named is None:
        raise click.BadParameter(f"{value!r} is not a date; write 2026-03-01, 2026-03, today, yesterday or 7d")
    return named[0]


@status_command.command("logs")
@click.option("--session", help="Only of this conversation.")
@click.option("--since", metavar="DATE", callback=start_of, help="From then on (UTC): 2026-03-01, yesterday, 7d.")
def logs_(session: str | None, since: datetime | None) -> None:
    """Show why chunks were dropped, and what that saved.

    For tuning: change `context.relevance_cutoff`, `context.memfas_weight` and the like in memory-config.yaml, keep
    working for a day, and compare.
    """

    async def ask(memory: Memory) -> tuple[dict[str, Any], str]:
        found, about = await tuning(memory, session, since)
        return found, await mirror_note(memory, about)

    found, note = shell.with_memory(ask)
    if shell.printed_as_json(found):
        return
    if not any(found["lines"].values()):
        click.echo(
            "The logs are empty: nothing was curated, compacted or dropped yet. (`status gauges` shows the fill level.)"
        )
    else:
        _print_tuning(found)
        if note:
            click.echo(note)


def _print_tuning(found: Mapping[str, Any]) -> None:
    stats = found["stats"]
    first, last = ((stats[name] or "")[:16].replace("T", " ") for name in ("first", "last"))
    lines = ", ".join(f"{count:,} {kind}" for kind, count in found["lines"].items() if count)
    shell.print_facts({"logs": f"{first} to {last}: {lines}"})
    _print_counts("Why chunks were dropped", stats["reasons"])
    if any(one["count"] for one in stats["scores"]):
        bins = {f"{one['start']:.1f}-{one['end']:.1f}": one["count"] for one in stats["scores"]}
        _print_counts("Scores of dropped chunks", bins)
        click.echo(f"threshold used: {', '.join(f'{threshold:g}' for threshold in stats['thresholds']) or 'none'}")
    columns = ("count", "total", "least", "median", "mean", "most")
    rows = [
        (name, *(f"{stats[name][column]:,.0f}" for column in columns))
        for name in ("curation", "compaction")
        if stats[name]["count"]
    ]
    if rows:
        shell.print_table(("", "times", *columns[1:]), rows, title="Tokens saved", right=("times", *columns[1:]))
        if stats["summarised"]:
            click.echo(f"{stats['summarised']:,} chunks were summarized; their originals are in cold storage")
    _print_counts("Dropped chunks that came back", stats["recovered"])
    dropped, came = sum(stats["reasons"].values()), sum(stats["recovered"].values())
    if dropped and came:
        soon = f"{stats['soon'] / dropped:.0%} within ten exchanges"
        click.echo(f"{came / dropped:.0%} of the dropped chunks came back, {soon}: these were dropped too early")
    knobs = ", ".join(f"{name} {value:g}" for name, value in found["knobs"].items())
    click.echo(f"\ncurrent settings: {knobs}; fullest context: {stats['highest_pct']:.0%}")


def _print_counts(title: str, counts: Mapping[str, int]) -> None:
    total = sum(counts.values()) or 1
    rows = [(name, f"{count:,}", f"{count / total:.0%}") for name, count in counts.items()]
    if rows:
        shell.print_table(("", "count", "share"), rows, title=title, right=("count", "share"))


@status_command.command("clarity")
@click.option("--session", help="The conversation (default: the one with the latest message).")
@click.option("--scores", "shown", flag_value="scores", help="Every item with its score and the terms of the score.")
@click.option("--stats", "shown", flag_value="stats", help="How many items are counted, and how many stay.")
def clarity(session: str | None, shown: str | None) -> None:
    """Show the subjects of a conversation, highest score first."""
    found = shell.with_memory(lambda memory: view(memory, shown or "status", session))
    if shell.as_json() or shown != "scores":
        shell.print_result(found, found.markdown)
    elif not found.data["scores"]:
        click.echo("No items yet: they come from the user's messages.")
    else:
        title = f"Clarity of {found.session}, exchange {found.data['exchange']}"
        right = ("said", "referred to", "silent", "score")
        shell.print_table(COLUMNS, [cells(row) for row in found.data["scores"]], title=title, right=right)
