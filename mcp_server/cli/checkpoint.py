"""`context-manager checkpoint create|list|show|diff`."""

from __future__ import annotations

import click

from mcp_server.cli.opening import with_memory
from mcp_server.cli.printing import json_option, print_json, print_result, print_table


@click.group("checkpoint")
def command() -> None:
    """Make, list, show and compare checkpoints of a conversation. `recover --checkpoint ID` goes back to one."""


@command.command("create")
@click.option("--session", help="Of this conversation (default: the one last heard of).")
@click.option("--note", default="", help="What for.")
@json_option
def create(session: str | None, note: str, as_json: bool) -> None:
    """Write down where a conversation stands."""
    from mcp_server.checkpoints.checkpoint import make
    from mcp_server.checkpoints.document import Checkpoint
    from mcp_server.checkpoints.enrich import enrich_all
    from mcp_server.checkpoints.stored import read, summary_text
    from mcp_server.memory import Memory
    from mcp_server.relevance.clarity_views import session_meant

    async def act(memory: Memory) -> Checkpoint:
        made = await make(memory, await session_meant(memory, session), "asked", note)
        return await read(memory, made.id) if await enrich_all(memory) else made

    made = with_memory(act)
    print_result(made, summary_text(made), as_json)
    if not as_json:
        click.echo(f"What going back would change: context-manager checkpoint diff {made.id}")
        click.echo(f"Go back: context-manager recover --checkpoint {made.id}")


@command.command("list")
@click.option("--session", help="Of this conversation (default: of all).")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="The newest so many.")
@json_option
def list_(session: str | None, limit: int, as_json: bool) -> None:
    """The checkpoints that are kept, the newest first."""
    from mcp_server.checkpoints.stored import listed, reason_text, time_text
    from mcp_server.memory import Memory
    from mcp_server.storage.checkpoint_files import Head

    async def ask(memory: Memory) -> list[Head]:
        return (await listed(memory, session))[:limit]

    found = with_memory(ask)
    if as_json:
        print_json(found)
    elif not found:
        click.echo("No checkpoints yet. Make one: context-manager checkpoint create")
    else:
        rows = [(one.id, time_text(one), f"{reason_text(one)} · session {one.session}") for one in found]
        print_table(("id", "made (UTC)", "what"), rows, whole=("id",))


@command.command("show")
@click.argument("checkpoint")
@json_option
def show(checkpoint: str, as_json: bool) -> None:
    """One checkpoint: what was decided, what is open, what the state was."""
    from mcp_server.checkpoints.document import Checkpoint
    from mcp_server.checkpoints.stored import read, shown_text
    from mcp_server.memory import Memory

    async def ask(memory: Memory) -> Checkpoint:
        return await read(memory, checkpoint)

    found = with_memory(ask)
    print_result(found, shown_text(found), as_json)


@command.command("diff")
@click.argument("checkpoint")
@click.argument("other", required=False)
@json_option
def diff(checkpoint: str, other: str | None, as_json: bool) -> None:
    """What going back to CHECKPOINT would change: of things as they are now, or as they were at OTHER."""
    from mcp_server.checkpoints.restore_plan import diff_text as action
    from mcp_server.memory import Memory

    async def ask(memory: Memory) -> str:
        return await action(memory, checkpoint, other)

    found = with_memory(ask)
    print_result({"checkpoint": checkpoint, "other": other, "diff": found.splitlines()}, found, as_json)
