"""Opens the workspace for one command, runs an action on it, closes it again."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from mcp_server.core.model import Caller
    from mcp_server.memory import Memory

T = TypeVar("T")


def with_memory(
    act: Callable[[Memory], Awaitable[T]],
    *,
    fresh: bool = False,
    workspace: Path | None = None,
    settings: Mapping[str, str] | None = None,
) -> T:
    """What `act` returns for the memory of `workspace` (else of `--workspace`); `fresh` updates its index first, and
    `settings` are for this command alone, named as in the environment.

    Everything that takes over a second shows on stderr that it is at work.
    """
    import anyio

    from mcp_server.app import catch_up, open_memory
    from mcp_server.cli.progress import working
    from mcp_server.home import resolve_workspace

    context = click.get_current_context()
    chosen = workspace or context.find_root().obj
    folder = resolve_workspace(chosen, os.environ)
    if sys.stderr.isatty() and context.info_name != "init" and not (folder / "memory-config.yaml").exists():
        click.echo(f"context-manager: there was no memory in {folder}: a new one is made", err=True)

    async def run() -> T:
        async with open_memory(chosen, {**os.environ, **(settings or {})}) as memory:
            if fresh:
                with working("Reading what has changed …"):
                    await catch_up(memory)
            return await act(memory)

    return anyio.run(run)


def caller() -> Caller:
    """Who calls: this command, from the folder that the client or the shell works in."""
    from mcp_server.core.model import Caller
    from mcp_server.home import working_folder

    folder = os.environ.get("CLAUDE_PROJECT_DIR") or working_folder()
    return Caller(source="cli", client="context-manager", explicit_sessions=True, folder=folder)
