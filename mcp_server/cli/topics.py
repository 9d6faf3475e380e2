"""`context-manager topics list|activate|deactivate|test`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mcp_server.cli.opening import with_memory
from mcp_server.cli.printing import console, json_option, print_json, print_result, print_text, visible
from mcp_server.cli.topics_test import test

if TYPE_CHECKING:
    from rich.table import Table

    from mcp_server.memory import Memory
    from mcp_server.topics.listing import Switched, TopicRow, TopicsView

STYLES = {"active": "bold green", "off": "dim", "waiting": ""}

session_option = click.option("--session", help="In this conversation (default: the one last heard of).")


@click.group("topics")
def command() -> None:
    """Playbooks that appear by themselves: the files in topics/."""


@command.command("list")
@session_option
@json_option
def list_(session: str | None, as_json: bool) -> None:
    """Every topic, what sets it off, and whether it is active."""
    from mcp_server.errors import NotFound
    from mcp_server.relevance.clarity_views import session_meant
    from mcp_server.topics.listing import list_topics

    async def ask(memory: Memory) -> TopicsView:
        try:
            meant = await session_meant(memory, session)
        except NotFound:
            if session:
                raise
            meant = None
        return await list_topics(memory, meant)

    found = with_memory(ask)
    if as_json:
        print_json(found)
        return
    if found.topics:
        console().print(_table(found))
    else:
        click.echo("No topic yet. (topics/NAME.md in the memory's folder)")
    for problem in found.problems:
        print_text(f"! {problem}")


@command.command("activate")
@click.argument("name")
@session_option
@json_option
def activate(name: str, session: str | None, as_json: bool) -> None:
    """Bring a topic into a conversation; it stays until you deactivate it."""
    _switch(name, session, True, as_json)


@command.command("deactivate")
@click.argument("name")
@session_option
@json_option
def deactivate(name: str, session: str | None, as_json: bool) -> None:
    """Take a topic out of a conversation; no trigger brings it back there."""
    _switch(name, session, False, as_json)


command.add_command(test)


def _switch(name: str, session: str | None, on: bool, as_json: bool) -> None:
    from mcp_server.relevance.clarity_views import session_meant
    from mcp_server.topics.listing import switch

    async def act(memory: Memory) -> Switched:
        return await switch(memory, name, await session_meant(memory, session), on=on)

    done = with_memory(act)
    print_result(done, done.markdown, as_json)


def _table(view: TopicsView) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    title = f"topics in session {view.session}" if view.session else "topics"
    table = Table(title=Text(visible(title), style="bold"), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("topic", "state", "set off by", "activation", "priority", "triggers"):
        table.add_column(column, overflow="fold", no_wrap=column == "topic")
    for row in view.topics:
        name = Text(visible(row.name)) + Text(" !" if row.problem else "", "bold red")
        cells = (row.activation, row.priority, row.triggers)
        table.add_row(name, Text(_state(row), STYLES[row.state]), visible(row.by), *cells)
    return table


def _state(row: TopicRow) -> str:
    if row.state != "active":
        return row.state
    return "active" if row.left is None else f"active, {row.left} more"
