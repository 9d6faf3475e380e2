"""`context-manager doctor`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from rich.table import Table
from rich.text import Text

from mcp_server.cli.command import console, examples, json_option, print_json, visible, with_memory
from mcp_server.cli.install import this_machine

if TYPE_CHECKING:
    from mcp_server.memory import Memory
    from mcp_server.status.doctor import Check


@click.command("doctor", epilog=examples("doctor", "doctor --secrets"))
@click.option("--repair", "mending", is_flag=True, help="First repair git's history, as far as nothing is lost.")
@click.option("--secrets", is_flag=True, help="Only look for secrets in everything that is stored.")
@json_option
def doctor_command(mending: bool, secrets: bool, as_json: bool) -> None:
    """Check everything, from the clients' configuration (with a real handshake) to disk, index and git.

    Exits with 1 if an important check fails.
    """
    from mcp_server.cli.command import working
    from mcp_server.clients.installers.chain import examine_chain
    from mcp_server.status.doctor import examine, examine_secrets, repair

    machine = this_machine()

    async def act(memory: Memory) -> tuple[Check, ...]:
        for line in await repair(memory) if mending else ():
            click.echo(visible(f"repaired: {line}"), err=True)
        with working("Looking …"):
            if secrets:
                return (await examine_secrets(memory),)
            chain = await examine_chain(memory, machine) if memory.disk.here else ()
            return (*await examine(memory), *chain)

    checks = with_memory(act)
    if as_json:
        print_json(checks)
    else:
        _doctor_print(checks)
    if any(check.matters and not check.ok for check in checks):
        click.get_current_context().exit(1)


def _doctor_print(checks: tuple[Check, ...]) -> None:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for check in checks:
        sign, style = ("ok", "green") if check.ok else ("NO", "bold red") if check.matters else ("--", "yellow")
        said = Text(visible(check.detail))
        if check.advice:
            said.append(f"\n→ {visible(check.advice)}", style="bold")
        table.add_row(Text(sign, style=style), Text(check.name), said)
    console().print(table)
    broken = sum(check.matters and not check.ok for check in checks)
    click.echo("\nEverything important works." if not broken else f"\n{broken} to fix: the lines with NO.")
