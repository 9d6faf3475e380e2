"""`context-manager status`."""

from __future__ import annotations

import click

from mcp_server.cli.opening import with_memory
from mcp_server.cli.printing import json_option, print_result

VIEWS = ("all", "sessions", "gauges", "clarity", "topics", "hooks", "index", "git", "llm", "settings", "sizes")


@click.command("status")
@click.argument("view", type=click.Choice(VIEWS), default="all", metavar="[VIEW]")
@click.option("--session", help="Only this conversation.")
@json_option
def command(view: str, session: str | None, as_json: bool) -> None:
    """What this memory holds, how its index, git and settings are, and what is wrong with them.

    VIEW is one part of it: sessions, gauges, clarity, topics, hooks, index, git, llm, settings (all of them; without
    VIEW those that you have set), sizes.
    """
    from mcp_server.memory import Memory
    from mcp_server.status.status import StatusReport, status

    async def ask(memory: Memory) -> StatusReport:
        return await status(memory, view=view, session=session, max_tokens=100_000)

    report = with_memory(ask, fresh=True)
    print_result(report, report.markdown, as_json)
