"""The command `context-manager`: parses, calls a verb, prints. Exit codes: 0 done (also an empty search), 1 failed, 2
wrong usage.

The module of a command is imported when the command is called, so that `--help` and completion of names answer at once.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import sys
import traceback
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from mcp_server import __version__, set_up_process
from mcp_server.errors import ContextManagerError
from mcp_server.home import workspace_option

DONE, FAILED, USAGE = 0, 1, 2

GROUPS: dict[str, dict[str, tuple[str, str]]] = {
    "Start": {
        "init": ("record", "Create the memory's folder."),
        "demo": ("compile", "See the main functions at work, in seconds."),
        "install": ("install", "Connect a client, or list the clients."),
        "uninstall": ("install", "Disconnect a client; --purge deletes the memory."),
        "doctor": ("install", "Check everything, and say how to fix it."),
    },
    "Everyday": {
        "search": ("search", "Find passages in everything that is stored."),
        "read": ("search", "Print a file of the memory, or lines of it."),
        "remember": ("record", "Write down a fact, a decision, a rule."),
        "observe": ("record", "Record one message of a conversation."),
        "import": ("record", "Import conversations, notes, or an export."),
        "compile": ("compile", "Print the context for a message."),
        "anchor": ("record", "Mark what must stay in the context."),
        "pause": ("pushes", "Add nothing to prompts for a while."),
        "forget": ("review", "Delete a text and all its copies."),
    },
    "Look inside": {
        "page": ("serve", "Look at the memory in the browser."),
        "status": ("status", "What is stored, how full contexts are, costs, problems."),
        "last": ("pushes", "Show what was last added to a prompt, and why."),
        "session": ("session", "List, show and end conversations."),
        "project": ("session", "List, rename and merge projects."),
        "topics": ("topics", "Playbooks that are added automatically: list, try, tune."),
        "history": ("history", "Show when something was learned, and what changed."),
    },
    "Maintain": {
        "checkpoint": ("checkpoint", "Save the state of a conversation; compare states."),
        "recover": ("checkpoint", "Bring back what was dropped, archived or changed."),
        "prune": ("maintain", "Shorten a context or the knowledge, recoverably."),
        "review": ("review", "Go through new lines: keep, edit, move, remove."),
        "approve": ("review", "Accept or reject what agents propose."),
        "extract": ("maintain", "Extract knowledge from conversations."),
        "condense": ("maintain", "Renew MEMORY.md and the indexes, archive what is old."),
        "jobs": ("maintain", "List and run the scheduled jobs."),
        "config": ("config", "Read and change settings."),
        "reset": ("maintain", "Rebuild the index; delete state and logs."),
    },
    "Share": {
        "export": ("record", "Write the whole memory to a folder or a zip."),
        "sync": ("history", "Merge with the copy on another machine."),
        "serve": ("serve", "Start the MCP server (stdio, or --http)."),
        "members": ("members", "Manage a team's members; show what they did."),
    },
    "Develop": {
        "explore": ("branches", "Try a change of the memory on a branch."),
        "reconstruct": ("branches", "Derive all knowledge again, on a branch."),
        "hook": ("serve", "Answer a client's hook (clients call it)."),
    },
}
"""The commands by group: the module with each command's function `NAME_command`, and its line in the help."""

COMMANDS = {name: found for commands in GROUPS.values() for name, found in commands.items()}


class Commands(click.Group):
    """The commands by group. A command's module is imported when the command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"mcp_server.cli.{COMMANDS[cmd_name][0]}")
        command = getattr(module, f"{cmd_name}_command")
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from mcp_server.text.prose import did_you_mean

            ctx.fail(f"no command {args[0]!r}{did_you_mean(args[0], COMMANDS)}")
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        found = [CompletionItem(name, help=line) for name, (_, line) in COMMANDS.items() if name.startswith(incomplete)]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        widest = max(map(len, COMMANDS))
        for title, commands in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(widest), line) for name, (_, line) in commands.items()])


class Workspace(click.Path):
    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> Path | str:
        chosen = workspace_option(os.fspath(value))
        return chosen if isinstance(chosen, str) else Path(os.fsdecode(super().convert(value, param, ctx)))


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--workspace",
    type=Workspace(file_okay=False),
    help="The memory's folder, or postgresql://… (default: $CONTEXT_MANAGER_HOME, else ~/.context-manager).",
)
@click.version_option(__version__, prog_name="context-manager")
@click.pass_context
def cli(context: click.Context, workspace: Path | str | None) -> None:
    """A long memory for any agent: it stores conversations and compiles the context that fits.

    Commands that change or delete what is stored only show the change until --apply is given. Commands that add
    something (remember, observe, import, checkpoint create, init, install) do it at once.
    """
    context.obj = workspace


def main(arguments: list[str] | None = None) -> int:
    """Runs one command and returns its exit code. An error is one line on stderr; with `--json` it is JSON."""
    given = sys.argv[1:] if arguments is None else arguments
    as_json = "--json" in (given[: given.index("--")] if "--" in given else given)
    set_up_process()
    for name in ("mcp_server", "mcp"):  # a command reports errors itself, in one line
        logging.getLogger(name).addHandler(logging.NullHandler())
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a console may not be able to show every character
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    try:
        code = cli.main(given, prog_name="context-manager", standalone_mode=False)
        return code if isinstance(code, int) else DONE
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return USAGE
    except click.UsageError as error:
        return _say(_usage(error), USAGE, as_json)
    except click.ClickException as error:
        return _say(error.format_message(), FAILED, as_json)
    except (click.Abort, KeyboardInterrupt):
        return _say("stopped", FAILED, as_json)
    except BrokenPipeError:  # the program that reads the output, such as `head`, has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except Exception as error:
        return _say(_failure(error), FAILED, as_json)


def _usage(error: click.UsageError) -> str:
    """Returns what is wrong with the call, and how to get help."""
    said, context = error.format_message().rstrip("."), error.ctx
    ask = f" ({context.command_path} --help)" if context else ""
    if isinstance(error, click.NoSuchOption) and context is not None:
        if error.option_name == "--workspace":
            said = "--workspace comes before the command: context-manager --workspace DIR …"
        elif error.option_name == "--json" and context.parent is None:
            said = "--json comes after the command: context-manager COMMAND --json"
    return said + ask


def _failure(error: Exception) -> str:
    """Returns the message of an error; of an unexpected one also its type and place."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    if isinstance(error, ContextManagerError):
        return str(error)
    frames = traceback.extract_tb(error.__traceback__)
    where = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"a bug in context-manager: {type(error).__name__}{where}: {error}; please report this line"


def _say(message: str, code: int, as_json: bool) -> int:
    from mcp_server.cli.shell import visible

    line = visible(" ".join(message.split()))
    said = json.dumps({"error": line, "exit_code": code}) if as_json else f"context-manager: {line}"
    click.echo(said, err=True)
    return code
