"""`context-manager extract`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mcp_server.cli.opening import with_memory
from mcp_server.cli.printing import count, json_option, print_result
from mcp_server.cli.progress import progress, working

if TYPE_CHECKING:
    from mcp_server.knowledge.extract import Extracted


@click.command("extract")
@click.option("--session", help="Only this conversation, also while it is open.")
@click.option(
    "--only", "names", multiple=True, metavar="NAME", help="Only this extractor; may be given more than once."
)
@click.option(
    "--anew",
    is_flag=True,
    help="Read everything again; lines of the earlier reading that are not found again are removed.",
)
@click.option("--dry-run", is_flag=True, help="Only show the changes, as a diff.")
@json_option
def command(session: str | None, names: tuple[str, ...], anew: bool, dry_run: bool, as_json: bool) -> None:
    """Extract knowledge from conversations: people, decisions, lessons, procedures, facts, journals.

    Every line names its source message. Conversations are read once. Lines that you wrote never change.
    """
    from mcp_server.app import catch_up
    from mcp_server.knowledge.extract import extract
    from mcp_server.memory import Memory

    async def act(memory: Memory) -> Extracted:
        with progress("Extracting") as show:
            done = await extract(memory, session, names, anew=anew, dry_run=dry_run, show=show)
        if not dry_run:
            with working("Indexing …"):
                await catch_up(memory)
        return done

    done = with_memory(act)
    print_result(done, _told(done), as_json)


def _told(done: Extracted) -> str:
    would = "would be " if done.dry_run else ""
    known = f", {done.known} known already" if done.known else ""
    found = f"{count(done.lines, 'line')} found, {count(len(done.files), 'file')} {would}changed"
    said = [f"{count(done.read, 'conversation')} read{known}: {found}"]
    for file in sorted(done.files.values(), key=lambda one: one.path):
        said.append(file.diff if done.dry_run else f"  {file.path}  {file.counts}")
    if done.fell_back:
        said.append(f"{done.fell_back} of them were read by rules: the model gave no usable answer")
    if done.refused:
        said.append(f"refused from the model: {count(done.refused, 'line')}; lines by rules were used instead")
    if done.dry_run and done.files:
        said.append("This was a dry run: nothing has changed.")
    return "\n".join([*said, *done.notes])
