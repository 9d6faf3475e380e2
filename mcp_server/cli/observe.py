"""`context-manager observe`."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from mcp_server.cli.opening import caller, with_memory
from mcp_server.cli.printing import json_option, print_json, print_text
from mcp_server.cli.standard_input import given_or_piped


class Moment(click.ParamType[datetime]):
    """An ISO time; without a zone it is the machine's own."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        try:
            return value if isinstance(value, datetime) else datetime.fromisoformat(value).astimezone()
        except ValueError:
            self.fail(f"{value!r} is not an ISO time such as 2026-01-31T09:30:00Z", param, ctx)


@click.command("observe")
@click.argument("content", required=False)
@click.option(
    "--role",
    type=click.Choice(["user", "agent", "assistant", "system"]),
    default="user",
    show_default=True,
    help="Who said it.",
)
@click.option("--session", help="The conversation; without it a new one begins.")
@click.option("--turn-id", help="The client's id of the message: the same id is recorded once.")
@click.option("--name", help="Who speaks, where people have names.")
@click.option("--at", type=Moment(), help="When it was said (ISO; default: now).")
@click.option("--project", help="What it belongs to (default: the folder's own).")
@click.option(
    "--kind", type=click.Choice(["main", "shared", "subagent"]), help="shared: others read along. Once for a session."
)
@click.option(
    "--delivery", type=click.Choice(["add", "replace"]), help="replace: the prompt is what we compile. Once, too."
)
@click.option("--model", help="Which model answers.")
@click.option("--channel", help="Where it was said (default: context-manager).")
@click.option("--context-tokens", type=click.IntRange(0), help="How full the client says its context is.")
@click.option("--important", is_flag=True, help="Never to be dropped from the live context.")
@json_option
def command(content: str | None, as_json: bool, **options: Any) -> None:
    """Record CONTENT (or what comes on stdin) as one message. The first line of the answer names the session."""
    from mcp_server.actions.observe import NewTurn, Observed, observe
    from mcp_server.errors import Invalid
    from mcp_server.memory import Memory

    turn = NewTurn(content=given_or_piped(content, "CONTENT"), **options)
    if not turn.content.strip():
        raise Invalid("there is nothing to record: CONTENT is empty")

    async def act(memory: Memory) -> Observed:
        return await observe(memory, turn, caller())

    done = with_memory(act, if_missing="create")
    if as_json:
        print_json(done)
    else:
        print_text(done.markdown)
