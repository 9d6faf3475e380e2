"""Opens the workspace for one command, runs an action on it, and closes it."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from mcp_server.memory import Memory
    from mcp_server.model import Caller
    from mcp_server.storage.local.folders import IfMissing

T = TypeVar("T")


def with_memory(
    act: Callable[[Memory], Awaitable[T]],
    *,
    fresh: bool = False,
    if_missing: IfMissing = "refuse",
    settings: Mapping[str, str] | None = None,
) -> T:
    """Returns what `act` returns for the memory of `--workspace`.

    Args:
        fresh: brings the index up to date first.
        if_missing: what to do if there is no memory. Only commands that record pass "create".
        settings: settings for this command only, named as in the environment.
    """
    import anyio

    from mcp_server.app import catch_up, open_memory
    from mcp_server.cli.printing import working
    from mcp_server.home import team_address

    context = click.get_current_context()
    option = context.find_root().obj
    is_folder = team_address(option, os.environ) is None
    if (
        is_folder
        and if_missing == "create"
        and context.info_name != "init"
        and sys.stderr.isatty()
        and not memory_exists()
    ):
        click.echo(f"context-manager: there is no memory in {folder()}: creating a new one", err=True)

    async def run() -> T:
        environ = {**os.environ, **(settings or {})}
        async with open_memory(option, environ, if_missing=if_missing) as memory:
            for note in memory.startup_notes:
                click.echo(f"context-manager: {note}", err=True)
            if fresh:
                with working("Reading what has changed …"):
                    await catch_up(memory)
            return await act(memory)

    return anyio.run(run)


def folder() -> Path:
    """Returns the folder of the command's memory."""
    from mcp_server.home import resolve_workspace

    return resolve_workspace(click.get_current_context().find_root().obj, os.environ)


def memory_exists() -> bool:
    """Returns whether the command's folder is a workspace."""
    from mcp_server.storage.local.folders import is_workspace

    return is_workspace(folder())


def caller() -> Caller:
    """Returns this command as the caller, with the folder of the client or the shell."""
    from mcp_server.home import working_folder
    from mcp_server.model import Caller

    folder = os.environ.get("CLAUDE_PROJECT_DIR") or working_folder()
    return Caller(source="cli", client="context-manager", explicit_sessions=True, folder=folder)
