"""The entry point of the command `context-manager`.

`hook` runs without click, because importing click would delay the user's prompt. All other commands run with click.
"""

from __future__ import annotations

import os
import sys


def main() -> int:
    """Runs one command and returns its exit code. After `hook` it ends the process at once."""
    hook = _hook(sys.argv[1:])
    if hook is not None:
        from mcp_server.clients.hooks import command

        os._exit(command.main(hook))  # the output is written; the interpreter's shutdown would delay the prompt
    from mcp_server.cli.main import main as others

    return others()


def _hook(arguments: list[str]) -> list[str] | None:
    """Returns the arguments of `hook`, after `--workspace` or without it; None for other commands and for help."""
    first = arguments[0] if arguments else ""
    before = 2 if first == "--workspace" else 1 if first.startswith("--workspace=") else 0
    if arguments[before : before + 1] != ["hook"] or {"-h", "--help"} & set(arguments):
        return None
    return [*arguments[before + 1 :], *arguments[:before]]
