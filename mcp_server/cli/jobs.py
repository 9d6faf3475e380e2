"""`context-manager jobs list|run`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mcp_server.cli.opening import with_memory
from mcp_server.cli.printing import json_option, moment, print_json, print_table, print_text
from mcp_server.cli.progress import working

if TYPE_CHECKING:
    from mcp_server.jobs.scheduler import Planned, Ran
    from mcp_server.memory import Memory


@click.group("jobs")
def command() -> None:
    """What runs at planned times: by a server, or by `jobs run --due` from the machine's own cron."""


@command.command("list")
@json_option
def list_(as_json: bool) -> None:
    """Every job, its times, when it last ran, and whether it is due."""
    from mcp_server.jobs.scheduler import JOBS, planned

    found = with_memory(lambda memory: planned(memory, JOBS))
    if as_json:
        print_json(found)
    else:
        print_table(("job", "times", "due (UTC)", "last (UTC)", "what it does"), [_row(one) for one in found])


@command.command("run")
@click.argument("names", nargs=-1, metavar="[JOB]...")
@click.option("--due", is_flag=True, help="Those that are due, and no others.")
@json_option
def run(names: tuple[str, ...], due: bool, as_json: bool) -> None:
    """Run the jobs that you name, whatever the time, or those that are due."""
    from mcp_server.jobs.scheduler import JOBS, run_due, run_now

    if due == bool(names):
        raise click.UsageError("name jobs (jobs list shows them), or give --due")

    async def act(memory: Memory) -> list[Ran]:
        with working("Running jobs …"):
            return await run_due(memory, JOBS) if due else [await run_now(memory, JOBS, name) for name in names]

    done = with_memory(act, fresh=True)
    if as_json:
        print_json(done)
    elif not done:
        click.echo("Nothing is due.")
    for ran in () if as_json else done:
        print_text(f"{ran.name}: {ran.outcome}")
    if not all(ran.ok for ran in done):
        raise SystemExit(1)


def _row(one: Planned) -> tuple[str, ...]:
    due = one.problem or (moment(one.due) if one.due else "no")
    return one.name, one.schedule or "never by itself", due, moment(one.last) if one.last else "never", one.what
