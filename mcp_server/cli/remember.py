"""`context-manager remember`."""

from __future__ import annotations

from typing import Any

import click

from mcp_server.cli.opening import caller, with_memory
from mcp_server.cli.printing import json_option, print_json, print_text
from mcp_server.cli.standard_input import given_or_piped

KINDS = ("fact", "decision", "rule", "lesson", "person", "procedure", "project", "journal", "identity", "topic")


@click.command("remember")
@click.argument("content", required=False)
@click.option("--kind", type=click.Choice(KINDS), default="fact", show_default=True, help="Chooses file and section.")
@click.option("--project", default="current", show_default=True, help="`current`, `global` or a name.")
@click.option("--session", help="The conversation it comes from.")
@click.option("--path", help="Another file than that of the kind.")
@click.option("--section", help="Another heading than that of the kind.")
@click.option(
    "--action",
    type=click.Choice(["append", "replace", "edit", "create"]),
    default="append",
    show_default=True,
    help="replace: the section; edit: --old-text only; create: a new file.",
)
@click.option("--old-text", help="The text that `edit` replaces.")
@click.option("--supersedes", help="The text or PATH:LINE of the entry that this one replaces.")
@json_option
def command(content: str | None, as_json: bool, **options: Any) -> None:
    """Write CONTENT (or standard input) into the file of its kind, and show the change."""
    from mcp_server.app import catch_up
    from mcp_server.context import briefs
    from mcp_server.knowledge.remember import NewFact, Remembered, remember
    from mcp_server.memory import Memory

    fact = NewFact(content=given_or_piped(content, "CONTENT"), **options)

    async def act(memory: Memory) -> Remembered:
        done = await remember(memory, fact, caller())
        if done.diff:  # without a server a hook reads index and brief from disk
            await catch_up(memory)
            await briefs.refresh(memory)
        return done

    done = with_memory(act, if_missing="create")
    if as_json:
        print_json(done)
    else:
        print_text(done.markdown)
