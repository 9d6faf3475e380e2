"""`context-manager observe`."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from mcp_server.cli.opening import caller, with_memory
from mcp_server.cli.printing import json_option, print_result
from mcp_server.cli.standard_input import given_or_piped


class Moment(click.ParamType[datetime]):
    """An ISO time, by default in the machine's time zone."""

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
@click.option("--session", help="The conversation (default: a new one).")
@click.option("--turn-id", help="The client's id of the message: the same id is recorded once.")
@click.option("--name", help="The speaker's name.")
@click.option("--at", type=Moment(), help="When it was said (ISO; default: now).")
@click.option("--project", help="Its project (default: that of the folder).")
@click.option(
    "--kind", type=click.Choice(["main", "shared", "subagent"]), help="shared: others can read it. Fixed for a session."
)
@click.option(
    "--delivery",
    type=click.Choice(["add", "replace"]),
    help="replace: the compiled context is the prompt. Fixed for a session.",
)
@click.option("--model", help="Which model answers.")
@click.option("--channel", help="Where it was said (default: context-manager).")
@click.option("--context-tokens", type=click.IntRange(0), help="Tokens in the client's context, as the client says.")
@click.option("--important", is_flag=True, help="Never to be dropped from the live context.")
@json_option
def command(content: str | None, as_json: bool, **options: Any) -> None:
    """Record CONTENT (or standard input) as one message. The first line of the answer has the session's id."""
    from mcp_server.conversations.observe import NewTurn, Observed, observe
    from mcp_server.errors import Invalid
    from mcp_server.memory import Memory

    turn = NewTurn(content=given_or_piped(content, "CONTENT"), **options)
    if not turn.content.strip():
        raise Invalid("there is nothing to record: CONTENT is empty")

    async def act(memory: Memory) -> Observed:
        return await observe(memory, turn, caller())

    done = with_memory(act, if_missing="create")
    print_result(done, done.markdown, as_json)
