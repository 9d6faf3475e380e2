"""`context-manager topics list|activate|deactivate|test`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mcp_server.cli.opening import with_memory
from mcp_server.cli.printing import (
    apply_option,
    console,
    examples,
    json_option,
    print_json,
    print_result,
    print_table,
    print_text,
    visible,
)
from mcp_server.cli.topics_test import test

if TYPE_CHECKING:
    from rich.table import Table

    from mcp_server.memory import Memory
    from mcp_server.topics.gate_tuning import GateTuning
    from mcp_server.topics.listing import Switched, TopicRow, TopicsView

STYLES = {"active": "bold green", "off": "dim", "waiting": ""}

session_option = click.option("--session", help="In this conversation (default: the one last heard of).")


@click.group("topics", epilog=examples("topics list", "topics test 'write to the bank'", "topics tune --apply"))
def topics_command() -> None:
    """List, try and tune the playbooks that are added automatically: the files in topics/."""


@topics_command.command("list")
@session_option
@json_option
def list_(session: str | None, as_json: bool) -> None:
    """List the topics with their triggers and states."""
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


@topics_command.command("activate")
@click.argument("name")
@session_option
@json_option
def activate(name: str, session: str | None, as_json: bool) -> None:
    """Switch a topic on in a conversation, until you switch it off."""
    _switch(name, session, True, as_json)


@topics_command.command("deactivate")
@click.argument("name")
@session_option
@json_option
def deactivate(name: str, session: str | None, as_json: bool) -> None:
    """Switch a topic off in a conversation, whatever its triggers."""
    _switch(name, session, False, as_json)


topics_command.add_command(test)


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


USEFUL = {True: "yes", False: "no", None: ""}


@topics_command.command("log")
@click.option("--topic", help="Only of this topic.")
@click.option("--session", help="Only of this conversation.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="Most decisions shown.")
@json_option
def log(topic: str | None, session: str | None, limit: int, as_json: bool) -> None:
    """List the last decisions about topics, newest first."""
    from mcp_server.topics.gate_log import decisions

    async def ask(memory: Memory) -> list[dict[str, Any]]:
        found = []
        for line in decisions(memory):
            if topic in (None, line.get("topic_name")) and session in (None, line.get("session_id")):
                found.append(line)
                if len(found) == limit:
                    break
        return found

    found = with_memory(ask)
    if as_json:
        print_json(found)
    elif not found:
        click.echo("No decision is logged. (`context-manager topics test MESSAGE` shows how one comes about)")
    else:
        rows = [
            (
                str(line.get("timestamp", ""))[:16].replace("T", " "),
                line.get("topic_name"),
                "in" if line.get("gate_result") else "out",
                f"{line.get('tier2_score') or 0:.3f}",
                ", ".join(line.get("matched") or ()) or "likeness",
                line.get("why"),
                USEFUL.get(line.get("was_useful"), ""),
            )
            for line in found
        ]
        print_table(("at (UTC)", "topic", "", "score", "matched", "why", "useful"), rows, right=("score",))


@topics_command.command("tune")
@apply_option
@json_option
def tune(apply: bool, as_json: bool) -> None:
    """Propose thresholds that would have decided better.

    Writes nothing unless --apply is given.
    """
    from mcp_server.topics.gate_tuning import tune as run

    async def ask(memory: Memory) -> GateTuning:
        return await run(memory, apply=apply)

    found = with_memory(ask)
    if as_json:
        print_json(found)
    else:
        _print(found)


def _print(found: GateTuning) -> None:
    click.echo(f"{found.logged:,} decisions logged, {found.known:,} of them with a known use")
    for one in found.nuisances:
        print_text(
            f"! {one.topic}: {one.matched} brought it in {one.times} times, never of use: "
            "narrow the trigger, or say in `not_for` what is not meant"
        )
    if not found.proposals:
        click.echo("No threshold would have decided better. (At least 8 decisions of a topic must have a known use.)")
        return
    rows = [
        (
            one.topic,
            one.known,
            f"{one.threshold:.2f}",
            f"{one.proposed:.2f}",
            f"{one.before.precision:.2f} → {one.after.precision:.2f}",
            f"{one.before.recall:.2f} → {one.after.recall:.2f}",
        )
        for one in found.proposals
    ]
    rows.append(
        (
            "all topics",
            found.known,
            "",
            "",
            f"{found.before.precision:.2f} → {found.after.precision:.2f}",
            f"{found.before.recall:.2f} → {found.after.recall:.2f}",
        )
    )
    numbers = ("known", "threshold", "proposed")
    print_table(("topic", *numbers, "precision", "recall"), rows, right=numbers, title="Thresholds")
    if found.written:
        print_text(f"written: {', '.join(found.written)}")
    else:
        click.echo("Nothing is written. `topics tune --apply` puts them into the topics' files.")
