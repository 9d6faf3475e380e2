"""`context-manager index rebuild|status`."""

from __future__ import annotations

from typing import Any

import click

from mcp_server.cli.opening import with_memory
from mcp_server.cli.printing import json_option, plain, print_json, print_table
from mcp_server.cli.progress import progress


@click.group("index")
def command() -> None:
    """The search index: disposable, made from the files, mended by itself."""


@command.command("rebuild")
@json_option
def rebuild(as_json: bool) -> None:
    """Read every file anew. The old index serves until the new one is complete."""
    from mcp_server.memory import Memory

    async def act(memory: Memory) -> Any:
        with progress("Indexing") as show:
            await memory.index.rebuild(lambda done, total: show(done, total, ""))
        return await memory.index.status()

    _print_status(with_memory(act), as_json)


@command.command("status")
@json_option
def status(as_json: bool) -> None:
    """What the index holds and whether it is complete."""
    from mcp_server.memory import Memory

    async def ask(memory: Memory) -> Any:
        return await memory.index.status()

    _print_status(with_memory(ask, fresh=True), as_json)


def _print_status(found: Any, as_json: bool) -> None:
    if as_json:
        print_json(found)
    else:
        values = plain(found)
        print_table(("", ""), [(key.replace("_", " "), _shown(value)) for key, value in values.items()])


def _shown(value: object) -> str:
    if isinstance(value, list):
        return "; ".join(map(str, value)) or "none"
    return f"{value:,}" if isinstance(value, int) else str(value)
