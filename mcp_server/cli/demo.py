"""`context-manager demo [FILE]`."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mcp_server.cli.printing import console, json_option, plain, print_json, visible

if TYPE_CHECKING:
    from rich.text import Text

    from mcp_server.demo.run import Step

PICTURE_COLUMNS = 92


@click.command("demo")
@click.argument("file", required=False, type=click.Path(exists=True, path_type=Path))
@click.option("--ask", help="The message to compile a context for.")
@click.option("--svg", type=click.Path(dir_okay=False, path_type=Path), help="Also draw the before-and-after here.")
@json_option
def demo_command(file: Path | None, ask: str | None, svg: Path | None, as_json: bool) -> None:
    """Show the main job, from nothing: import, serve, observe, search, remember, compile, and why.

    FILE is a conversation or a folder of notes of your own; without it, the package's own conversation is used. The
    memory is temporary, unless --workspace says where to keep it.
    """
    import anyio

    from mcp_server.home import resolve_workspace

    option = click.get_current_context().find_root().obj
    kept = resolve_workspace(option, {}) if option else None
    with tempfile.TemporaryDirectory(prefix="context-manager-demo-", ignore_cleanup_errors=True) as folder:
        workspace = kept or Path(folder) / "memory"
        steps = anyio.run(_run, workspace, file, ask, as_json)
    if svg is not None:
        svg.write_text(picture(steps), encoding="utf-8")
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


def picture(steps: Sequence[Step]) -> str:
    """Returns the before-and-after as an SVG: a prompt without a memory, and the same prompt with what is added."""
    import io

    from rich.console import Console, Group
    from rich.panel import Panel
    from rich.text import Text

    added, idle = (step for step in steps if step.pushed is not None)
    to = Console(record=True, width=PICTURE_COLUMNS, file=io.StringIO(), force_terminal=True, highlight=False)

    def show(title: str, color: str, prompt: str, lines: Sequence[Text]) -> None:
        text = Group(Text(f"> {visible(prompt)}", "bold"), Text(""), *lines)
        to.print(Panel(text, title=title, title_align="left", border_style=color))

    show("without a memory", "red", added.message, [Text("The model gets nothing else.", "dim")])
    lines = [_picture_line(line) for line in visible(added.pushed or "", keep_lines=True).splitlines()]
    show(f"with context-manager · {added.line}", "green", added.message, lines)
    nothing = Text("Nothing is added: no stored text is about this.", "dim")
    show("with context-manager", "green", idle.message, [nothing])
    drawn = to.export_svg(title="What the model gets", unique_id="demo")
    return re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)  # no font from another host


def _picture_line(line: str) -> Text:
    from rich.text import Text

    heading = line.startswith(("[", "<!--", "Memory compiled"))
    return Text(line, "dim cyan" if heading else "green")
