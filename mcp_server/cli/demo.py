"""`context-manager demo [FILE]`."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mcp_server.cli.printing import console, json_option, plain, print_json, visible

if TYPE_CHECKING:
    from mcp_server.demo.run import Step


@click.command("demo")
@click.argument("file", required=False, type=click.Path(exists=True, path_type=Path))
@click.option("--ask", help="The message to compile a context for.")
@json_option
def demo_command(file: Path | None, ask: str | None, as_json: bool) -> None:
    """See the main job, from nothing: import, serve, observe, search, remember, compile, and why.

    FILE is a conversation or a folder of notes of your own; without it one that comes with the product is used. The
    memory is temporary, unless --workspace says where to keep it.
    """
    import anyio

    kept: Path | None = click.get_current_context().find_root().obj
    with tempfile.TemporaryDirectory(prefix="context-manager-demo-", ignore_cleanup_errors=True) as folder:
        workspace = kept.absolute() if kept else Path(folder) / "memory"
        steps = anyio.run(_run, workspace, file, ask, as_json)
    if as_json:
        print_json([plain(step) for step in steps])
    elif kept is None:
        click.echo("\nThis memory was temporary. To begin one of your own: context-manager init")


async def _run(workspace: Path, file: Path | None, ask: str | None, as_json: bool) -> list[Step]:
    from mcp_server.app import catch_up, open_memory
    from mcp_server.demo.run import demo

    steps: AsyncIterator[Step] = demo(workspace, open_memory, catch_up, os.environ, file, ask)
    done = []
    async for step in steps:
        done.append(step)
        if not as_json:
            _show(len(done), step)
    return done


def _show(number: int, step: Step) -> None:
    from rich.padding import Padding
    from rich.text import Text

    to = console()
    heading = Text.assemble((f"\n{number} ", "bold green"), (step.title, "bold"), (f"  {step.seconds:.1f} s", "dim"))
    to.print(heading)
    text = visible(step.text, keep_lines=True).strip("\n")
    if text:
        to.print(Padding(Text(text), (0, 0, 0, 2), expand=False))
    if step.receipt is not None:
        from mcp_server.cli.compile import show

        show(step.receipt, step.message, to)
