"""`context-manager clarity [scores|anchor|unanchor|prune|stats|config]`: S0's commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mcp_server.cli import anchor as anchoring
from mcp_server.cli.opening import with_memory
from mcp_server.cli.printing import json_option, print_json, print_result, print_table

if TYPE_CHECKING:
    from mcp_server.memory import Memory
    from mcp_server.relevance.clarity import ItemsPruned
    from mcp_server.relevance.clarity_views import ClarityView

session_option = click.option("--session", help="Of this conversation (default: the one last heard of).")


@click.group("clarity", invoke_without_command=True)
@session_option
@json_option
@click.pass_context
def command(context: click.Context, session: str | None, as_json: bool) -> None:
    """What a conversation is about: its items, the highest score first."""
    if context.invoked_subcommand is None:
        _show("status", session, as_json)
    elif as_json or session:
        raise click.UsageError(f"options come after the command: clarity {context.invoked_subcommand} --session ID")


@command.command("scores")
@session_option
@json_option
def scores(session: str | None, as_json: bool) -> None:
    """Every item with its score and what it is made of."""
    from mcp_server.relevance.clarity_views import COLUMNS, cells

    shown = _view("scores", session)
    if as_json:
        print_json(shown)
    elif not shown.data["scores"]:
        click.echo("No items yet: a user's message names them.")
    else:
        title = f"Clarity of {shown.session}, exchange {shown.data['exchange']}"
        right = ("said", "referred to", "silent", "score")
        print_table(COLUMNS, [cells(row) for row in shown.data["scores"]], title=title, right=right)


command.add_command(anchoring.command)
command.add_command(anchoring.unanchor)


@command.command("prune")
@session_option
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@json_option
def prune(session: str | None, dry_run: bool, as_json: bool) -> None:
    """Take what is no longer relevant out of the block; its counts stay."""
    from mcp_server.relevance.clarity import prune as act
    from mcp_server.relevance.clarity_views import pruned_text, session_meant

    async def run(memory: Memory) -> ItemsPruned:
        return await act(memory, await session_meant(memory, session), dry_run)

    pruned = with_memory(run)
    print_result(pruned, pruned_text(pruned), as_json)


@command.command("stats")
@session_option
@json_option
def stats(session: str | None, as_json: bool) -> None:
    """How much is counted, and what of it stays."""
    _show("stats", session, as_json)


@command.command("config")
@json_option
def config(as_json: bool) -> None:
    """The weights and limits, as they are set."""
    _show("config", None, as_json)


def _show(name: str, session: str | None, as_json: bool) -> None:
    shown = _view(name, session)
    print_result(shown, shown.markdown, as_json)


def _view(name: str, session: str | None) -> ClarityView:
    from mcp_server.relevance.clarity_views import view

    async def ask(memory: Memory) -> ClarityView:
        return await view(memory, name, session)

    return with_memory(ask)
