"""`context-manager approve`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mcp_server.cli.opening import with_memory
from mcp_server.cli.printing import json_option, print_json, print_text, visible

if TYPE_CHECKING:
    from mcp_server.knowledge.approve import Waiting
    from mcp_server.memory import Memory


@click.command("approve")
@click.argument("proposal", required=False)
@click.option("--yes", is_flag=True, help="Write PROPOSAL; without this it is only shown.")
@click.option("--all", "every", is_flag=True, help="Write all that can be written.")
@click.option("--reject", is_flag=True, help="Drop PROPOSAL (with --all: all of them).")
@click.option("--anyway", is_flag=True, help="Also if the file has changed since.")
@json_option
def command(proposal: str | None, yes: bool, every: bool, reject: bool, anyway: bool, as_json: bool) -> None:
    """Show what agents want to write into identity and topics; write PROPOSAL with --yes, or drop it with --reject."""
    from mcp_server.knowledge import approve as actions

    if proposal and every:
        raise click.UsageError("name a proposal, or --all, not both")
    if (yes or reject) and not (proposal or every):
        raise click.UsageError("name a proposal, or --all")

    async def act(memory: Memory) -> tuple[list[Waiting], list[str]]:
        found = await actions.waiting(memory, proposal)
        done: list[str] = []
        for one in found:
            number, path = one.proposal.id, one.proposal.path
            if reject:
                await actions.reject(memory, number)
                done.append(f"{number}: dropped; {path} stays as it is")
            elif every and (one.problem or (one.changed and not anyway)):
                why = one.problem or "the file has changed since: see it, then --yes --anyway"
                done.append(f"{number}: not written: {why}")
            elif every or yes:
                written = await actions.approve(memory, number, anyway=anyway)
                done.append(f"{number}: {written.action}: {written.path}")
        return found, done

    found, done = with_memory(act)
    if as_json:
        print_json({"proposals": found, "done": done})
        return
    if not found:
        click.echo("Nothing waits for approval.")
    for one in found:
        print_text(_words(one))
    for line in done:
        click.echo(visible(line))
    if found and not done:
        click.echo("Write one: context-manager approve ID --yes. Drop it: --reject. All: --all.")


def _words(one: Waiting) -> str:
    proposal = one.proposal
    where = f"{proposal.path}, proposed {proposal.at:%Y-%m-%d %H:%M} by {proposal.by or 'an agent'}"
    lines = [f"{proposal.id}  {where}"]
    lines += ["  the file has changed since; this is what it would do now"] if one.changed else []
    lines += [f"  cannot be written: {one.problem}"] if one.problem else []
    return "\n".join([*lines, *(f"    {line}" for line in one.diff.splitlines()), ""])
