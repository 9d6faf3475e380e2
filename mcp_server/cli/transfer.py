"""`context-manager import FILE|DIR` and `context-manager export FILE|DIR`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from mcp_server.cli.opening import with_memory
from mcp_server.cli.printing import examples, json_option, print_result, progress, working
from mcp_server.clients.adapters import ADAPTERS

if TYPE_CHECKING:
    from mcp_server.memory import Memory

FORMATS = ("auto", *sorted(ADAPTERS), "claude-ai", "chatgpt", "markdown", "memory")


@click.command(
    "import", epilog=examples("import ~/.claude/projects", "import data-2026-02-16.zip", "import memory.zip")
)
@click.argument("path", type=click.Path(exists=True, path_type=Path))
@click.option(
    "--format",
    "format_name",
    type=click.Choice(FORMATS),
    default="auto",
    show_default=True,
    metavar="FORMAT",
    help=f"The format of PATH: {', '.join(FORMATS[1:])}; auto detects it.",
)
@click.option(
    "--project", help="Its project (default: that of the conversation's folder; else none, visible in all projects)."
)
@click.option("--name", help="Markdown: the folder under knowledge/reference/ (default: the path's own name).")
@click.option("--anew", is_flag=True, help="Also read files that have not changed since they were imported.")
@json_option
def import_command(
    path: Path, format_name: str, project: str | None, name: str | None, anew: bool, as_json: bool
) -> None:
    """Import a file or a folder: conversations, notes, or what `export` wrote.

    A second import adds only what is new.
    """
    from mcp_server.app import catch_up
    from mcp_server.clients.importers.imported import Format, ImportReport, Progress
    from mcp_server.clients.importers.run import import_path
    from mcp_server.clients.importers.whole_memory import Restored, import_memory, is_export

    async def act(memory: Memory) -> ImportReport | Restored:
        if format_name == "memory" or (format_name == "auto" and is_export(path)):
            with working("Importing …"):
                restored = await import_memory(memory, path)
                await catch_up(memory)
            return restored
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
    if isinstance(report, ImportReport) and report.nothing_read:
        click.get_current_context().exit(1)


@click.command("export", epilog=examples("export memory.zip", "export /media/usb/memory", "import memory.zip"))
@click.argument("target", type=click.Path(path_type=Path))
@json_option
def export_command(target: Path, as_json: bool) -> None:
    """Write the whole memory to TARGET, a new folder or a .zip, which `import` reads.

    It has all conversations, knowledge, topics and settings of the memory, as files. The history in git and what
    belongs to this machine (the index, live contexts, cold storage) are not in it.
    """
    from mcp_server.clients.importers.whole_memory import Exported, export_memory

    place = target.expanduser().absolute()

    async def act(memory: Memory) -> Exported:
        with working("Exporting …"):
            return await export_memory(memory, place)

    done = with_memory(act)
    print_result(done, f"{done.files:,} files, {done.bytes / 1e6:,.1f} MB: {done.path}", as_json)
