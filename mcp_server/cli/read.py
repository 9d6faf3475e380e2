"""`context-manager read`."""

from __future__ import annotations

import click

from mcp_server.cli.opening import with_memory
from mcp_server.cli.printing import json_option, print_result


@click.command("read")
@click.argument("path")
@click.option("--start", type=click.IntRange(1), help="First line.")
@click.option("--end", type=click.IntRange(1), help="Last line.")
@click.option("--at", help="As it was at a commit, a tag or a date.")
@json_option
def command(path: str, start: int | None, end: int | None, at: str | None, as_json: bool) -> None:
    """Print a file of the memory; PATH is as `search` shows it."""
    from mcp_server.conversations.read import ReadAnswer, read
    from mcp_server.memory import Memory

    async def ask(memory: Memory) -> ReadAnswer:
        return await read(memory, path, start, end, at, max_tokens=1_000_000)

    answer = with_memory(ask)
    print_result(answer, answer.markdown, as_json)
