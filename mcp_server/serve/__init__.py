"""Starts the MCP server, over stdio or HTTP.

Heavy parts are imported by `run`, so that importing this module costs nothing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Literal

from mcp_server import __version__
from mcp_server.errors import ContextManagerError, Invalid, Unavailable
from mcp_server.home import address_of, team_address, workspace_option

if TYPE_CHECKING:
    from mcp_server.memory import Memory
    from mcp_server.serve.http import WebhookAccess


NO_CLIENT = (
    "context-manager-mcp: this server talks to an MCP client on stdin and stdout, and a terminal is not a client.\n"
    "Connect a client: context-manager install. Serve your own agents over HTTP: context-manager-mcp --http."
)
"""The answer to a person who starts the server in a terminal."""


@dataclass(frozen=True, slots=True)
class Serving:
    """The options of a server: the user's `workspace`, and for HTTP the address and the token.

    `hooks`: the client's hooks record the conversation and add the context, so the model gets no tools for that.
    `tools`: "full" also offers the less common tools.
    """

    workspace: Path | str | None = None
    http: bool = False
    host: str = "127.0.0.1"
    port: int = 8765
    token: str | None = None
    ask_token: bool = True
    hooks: bool = False
    tools: Literal["core", "full"] = "core"


def run(serving: Serving, environ: Mapping[str, str]) -> None:
    """Serves until the client closes stdin, or HTTP is interrupted. Raises ContextManagerError if it cannot start."""
    from mcp_server.clients.hooks.command import local_folder
    from mcp_server.clients.hooks.protocol import WINDOW_VARIABLE, mark_starting
    from mcp_server.home import check_neighbours, resolve_workspace, working_folder

    check_neighbours()
    team = team_address(serving.workspace, environ)
    if team and serving.hooks:
        raise Unavailable("--hooks is not offered for a memory on PostgreSQL: leave it out (docs/team.md)")
    if team and serving.http:
        _run_team(serving, environ, team)
        return
    local = ""
    if not team:
        root = resolve_workspace(serving.workspace, environ)
        local = local_folder(str(root), environ) if (root / "memory-config.yaml").is_file() else ""
    mark_starting(local)  # before the slow imports, so that a prompt waits for this server
    import logging

    import anyio

    from mcp_server.serve.instructions import TEAM, now
    from mcp_server.serve.server import build, serve

    mark_starting(local)  # again, because imports can take seconds on a busy machine
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")

    enter = partial(_entered, serving.workspace, environ)
    folder = environ.get("CLAUDE_PROJECT_DIR") or working_folder()
    if team:
        anyio.run(serve, build(enter, folder=folder, instructions=lambda: TEAM, profile=serving.tools))
        return
    instructions = partial(now, root, Path(local) if local else None, serving.hooks)
    if not serving.http:
        mcp = build(
            enter,
            folder=folder,
            instructions=partial(instructions, folder),
            hooks=serving.hooks,
            profile=serving.tools,
            window=environ.get(WINDOW_VARIABLE),
        )
        anyio.run(serve, mcp)
        return

    from mcp_server.serve import http
    from mcp_server.storage.local.folders import check_may_open

    check_may_open(root, "create")  # before the token's file is written
    http.refuse_unprotected(serving.host, serving.ask_token)
    token, source = (
        http.token_of(serving.token, environ, root / ".local" / "http-token") if serving.ask_token else (None, "")
    )
    mcp = build(enter, transport="http", instructions=instructions, hooks=serving.hooks, profile=serving.tools)
    webhooks = _webhooks(root, environ)
    listening = http.bound(serving.host, serving.port)
    anyio.run(http.serve, mcp, listening, token, source, serving.host, webhooks)


def _run_team(serving: Serving, environ: Mapping[str, str], address: str) -> None:
    """Serves all workspaces of a database over HTTP to their members. Raises Invalid if a setting is missing."""
    if serving.token or not serving.ask_token:
        raise Invalid(
            "--token and --no-token are for a memory in a folder; team members sign in with OAuth (docs/team.md)"
        )
    import anyio

    from mcp_server.serve import oauth

    settings = oauth.settings_of(environ)
    app = _load()
    with app.needs_extra():
        from mcp_server.serve import team
    with app.open_members(address) as members:
        limits = team.Limits(_number(environ, team.RATE_VARIABLE, team.CALLS_PER_MINUTE))

        def enter(workspace: str) -> AbstractAsyncContextManager[Memory]:
            return _entered(address_of(address, workspace), environ)

        anyio.run(team.serve, members, enter, settings, serving.host, serving.port, limits, serving.tools)


@asynccontextmanager
async def _entered(workspace: Path | str | None, environ: Mapping[str, str]) -> AsyncIterator[Memory]:
    from anyio.to_thread import run_sync

    app = await run_sync(_load)
    async with app.open_memory(workspace, environ) as memory, app.maintain(memory, environ):
        yield memory


def _number(environ: Mapping[str, str], variable: str, default: int) -> int:
    value = environ.get(variable) or str(default)
    if not value.isdecimal() or int(value) < 1:
        raise Invalid(f"{variable}={value!r} is not a whole number above 0")
    return int(value)


def _webhooks(root: Path, environ: Mapping[str, str]) -> WebhookAccess | None:
    """Returns the token and limit for webhooks, or None if the settings do not allow them."""
    from mcp_server.serve import http
    from mcp_server.settings_file import settings_of

    knobs = settings_of(root, environ).watchers
    if not knobs.webhooks:
        return None
    token, source = http.token_of(None, environ, root / ".local" / "webhook-token", http.WEBHOOK_TOKEN_VARIABLE)
    return http.WebhookAccess(token, source, knobs.webhook_max_kb * 1024)


def _load() -> ModuleType:
    """Imports the modules that the first calls need, outside the event loop, and returns `app`."""
    for verb in (
        "context.compile",
        "conversations.observe",
        "conversations.read",
        "knowledge.remember",
        "search.search",
        "status.status",
    ):
        import_module(f"mcp_server.{verb}")
    import_module("mcp_server.clients.hooks.listener")
    return import_module("mcp_server.app")


def main(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Runs the command `context-manager-mcp`. Returns the exit code: 0 done, 1 failed, 2 wrong usage."""
    parser = argparse.ArgumentParser(
        "context-manager-mcp",
        description="Serves a memory over MCP, on stdin and stdout. A client starts this command; people use "
        "`context-manager`, and connect a client with `context-manager install`.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    parser.add_argument(
        "--workspace",
        type=workspace_option,
        help="a folder, or postgresql://…; default: $CONTEXT_MANAGER_HOME, else ~/.context-manager",
    )
    parser.add_argument("--http", action="store_true", help="serve streamable HTTP instead of stdio")
    parser.add_argument("--host", default="127.0.0.1", help="default: %(default)s")
    parser.add_argument("--port", type=int, default=8765, help="default: %(default)s; 0 chooses a free port")
    parser.add_argument("--token", help="bearer token (default: $CONTEXT_MANAGER_TOKEN, else .local/http-token)")
    parser.add_argument("--no-token", dest="ask_token", action="store_false", help="require no token (loopback only)")
    parser.add_argument("--hooks", action="store_true", help="the client's hooks record, and add the context")
    parser.add_argument("--tools", choices=("core", "full"), default="core", help="full: also the less common tools")
    serving = Serving(**vars(parser.parse_args(arguments)))
    if not serving.http and sys.stdin.isatty():
        print(NO_CLIENT, file=sys.stderr)  # noqa: T201 - for the person at the terminal
        return 2
    try:
        run(serving, environ)
    except ContextManagerError as error:
        print(f"context-manager-mcp: {error}", file=sys.stderr)  # noqa: T201 - a server's stderr is for people
        return 1
    except KeyboardInterrupt:
        pass
    return 0
