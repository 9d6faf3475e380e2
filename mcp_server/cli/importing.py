"""`context-manager import FILE|DIR`."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import click

from mcp_server.cli.opening import with_memory
from mcp_server.cli.printing import json_option, print_result
from mcp_server.cli.progress import progress, working


@click.command("import")
@click.argument("path", type=click.Path(exists=True, path_type=Path))
@click.option(
    "--format",
    "format_name",
    type=click.Choice(["auto", "claude-code", "claude-ai", "chatgpt", "markdown"]),
    default="auto",
    show_default=True,
    help="The format of PATH; auto detects it.",
)
@click.option(
    "--project", help="Its project (default: that of the conversation's folder; else none, visible in all projects)."
)
@click.option("--name", help="Markdown: the folder under knowledge/reference/ (default: the path's own name).")
@click.option("--anew", is_flag=True, help="Also read files that have not changed since they were imported.")
@json_option
def command(path: Path, format_name: str, project: str | None, name: str | None, anew: bool, as_json: bool) -> None:
    """Import a file or a folder. Importing it again adds only what is new."""
    from mcp_server.app import catch_up
    from mcp_server.clients.importers.imported import Format, ImportReport, Progress
    from mcp_server.clients.importers.run import import_path
    from mcp_server.memory import Memory

    async def act(memory: Memory) -> ImportReport:
        with progress("Importing") as show:

            def watch(step: Progress) -> None:
                show(step.done, step.total, step.label)

            chosen = None if format_name == "auto" else cast(Format, format_name)
            report = await import_path(memory, path, kind=chosen, project=project, name=name, anew=anew, watch=watch)
        with working("Indexing …"):
            await catch_up(memory)
        return report

    report = with_memory(act, if_missing="create")
    print_result(report, report.markdown, as_json)
