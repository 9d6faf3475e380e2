"""Where the command `context-manager` begins. `hook` goes the short way; everything else is click's."""

from __future__ import annotations

import os
import sys


def main() -> int:
    """Runs one command and returns its exit code; of `hook` it ends the process itself."""
    hook = _hook(sys.argv[1:])
    if hook is not None:
        from mcp_server.clients.hooks import command

        os._exit(command.main(hook))  # all is written: tidying up would only take some more milliseconds of a prompt
    from mcp_server.cli.main import main as others

    return others()


def _hook(arguments: list[str]) -> list[str] | None:
    """Returns the arguments of `hook`, after `--workspace` or without it; None for other commands and for help."""
    first = arguments[0] if arguments else ""
    before = 2 if first == "--workspace" else 1 if first.startswith("--workspace=") else 0
    if arguments[before : before + 1] != ["hook"] or {"-h", "--help"} & set(arguments):
        return None
    return [*arguments[before + 1 :], *arguments[:before]]
