"""`context-manager`: parse, call an action, print. Exit 0 done (also an empty search), 1 failed, 2 wrong usage.

The modules of the commands are imported only when one is called, so `--help` and completion answer at once.
"""

from __future__ import annotations

import difflib
import importlib
import logging
import os
import sys
from pathlib import Path

import click

from mcp_server import __version__
from mcp_server.errors import ContextManagerError
from mcp_server.garbage import look_seldom

DONE, FAILED, USAGE = 0, 1, 2

COMMANDS: dict[str, tuple[str, str]] = {
    "init": ("init", "Create the memory's folder, or say that it is there."),
    "serve": ("serve", "Start the MCP server (stdio; --http for HTTP)."),
    "status": ("status", "What this memory holds and what is wrong with it."),
    "install": ("install", "Connect a client to this memory, or list the clients."),
    "uninstall": ("uninstall", "Take it out of a client again; --purge deletes the memory."),
    "doctor": ("doctor", "Check the whole chain and say how to mend what is broken."),
    "search": ("search", "Find passages in everything remembered."),
    "read": ("read", "Print a file of the memory, or some lines of it."),
    "remember": ("remember", "Write down a fact, a decision, a lesson."),
    "observe": ("observe", "Record one message of a conversation."),
    "anchor": ("anchor", "Mark what must stay in view, or list what is marked."),
    "unanchor": ("unanchor", "Take such a mark off."),
    "clarity": ("clarity", "What a conversation is about: items and their scores."),
    "topics": ("topics", "Playbooks that appear by themselves: list, try, switch on and off."),
    "gate": ("gate", "Which topics came in, whether that was of use, and what to change."),
    "recover": ("recover", "Bring back an earlier version, an archived entry, what went cold."),
    "checkpoint": ("checkpoint", "Make, list, show and compare checkpoints of a conversation."),
    "prune": ("prune", "What could leave a context or the memory, and why; it goes, recoverably."),
    "compact": ("compact", "Compact a conversation's live context now."),
    "drops": ("drops", "What left a conversation's live context, and why."),
    "cold-storage": ("cold_storage", "What left live contexts and can come back."),
    "health": ("health", "How full the context of each conversation is."),
    "logs": ("logs", "What curation and compaction did, summed up."),
    "costs": ("costs", "What LLM calls cost, by purpose and by day."),
    "compile": ("compile", "Print the context for a message; --explain shows why."),
    "last": ("last", "Show what was last pushed into a prompt, and why."),
    "pause": ("pause", "Push nothing into prompts for a while."),
    "resume": ("resume", "Push into prompts again."),
    "session": ("session", "List, show and end conversations."),
    "project": ("project", "List, rename and merge projects."),
    "import": ("importing", "Bring in conversations and notes from elsewhere."),
    "extract": ("extract", "Make knowledge of conversations, each line with its source."),
    "history": ("history", "When and where something was learned, what changed; take a commit back."),
    "condense": ("condense", "Distil journals into MEMORY.md and keep everything within its cap."),
    "reconstruct": ("reconstruct", "Derive all knowledge again on a branch, compare, merge or drop."),
    "jobs": ("jobs", "What runs at planned times, and what is due."),
    "archive": ("archiving", "Move old journals, unused files, or the files you name to archive/."),
    "tag": ("tag", "Give the memory as it is now a name."),
    "explore": ("explore", "What if? Try a change of the memory on a branch of its own."),
    "sync": ("sync", "Bring this memory and the copy on another machine together."),
    "forget": ("forget", "Delete something for real, wherever a copy of it stands."),
    "approve": ("approve", "What agents want to write into identity and topics: show, apply, reject."),
    "index": ("index", "Rebuild the search index, or say how it is."),
    "reset": ("reset", "Delete index, state and logs; they are made again."),
    "hook": ("hook", "What a client's hooks call; people need it only to look."),
    "demo": ("demo", "See the whole thing work, from nothing, in seconds."),
}
"""Each command's module in this package, which holds it under the name `command`, and its line in the help."""


BENCH_MOVED = "benchmarks are not part of the installed package any more; in a clone run `python -m benchmarks …`"
"""The answer to the command `bench` of earlier versions."""


class Commands(click.Group):
    """A group that knows what its commands are called and imports one when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(f"mcp_server.cli.{COMMANDS[cmd_name][0]}").command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] == "bench":
            raise click.UsageError(BENCH_MOVED)
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            ctx.fail(f"no command {args[0]!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--workspace",
    type=click.Path(file_okay=False, path_type=Path),
    help="The memory's folder (default: $CONTEXT_MANAGER_HOME, else ~/.context-manager).",
)
@click.version_option(__version__, prog_name="context-manager")
@click.pass_context
def cli(context: click.Context, workspace: Path | None) -> None:
    """A long memory for any agent: it keeps conversations and compiles the context that fits."""
    context.obj = workspace


def main(arguments: list[str] | None = None) -> int:
    """Runs one command and returns its exit code. What goes wrong is one line on stderr."""
    look_seldom()
    logging.getLogger("mcp_server").addHandler(
        logging.NullHandler()
    )  # a command says what went wrong itself, in a line
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # what is remembered may hold anything; a console may know less than that
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    try:
        code = cli.main(arguments, prog_name="context-manager", standalone_mode=False)
        return code if isinstance(code, int) else DONE
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return USAGE
    except click.UsageError as error:
        return _say(_usage(error), USAGE)
    except click.ClickException as error:
        return _say(error.format_message(), FAILED)
    except (click.Abort, KeyboardInterrupt):
        return _say("stopped", FAILED)
    except BrokenPipeError:  # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except Exception as error:
        return _failed(error)


def _usage(error: click.UsageError) -> str:
    """What was called wrongly, and how to call it."""
    said, context = error.format_message().rstrip("."), error.ctx
    ask = f" ({context.command_path} --help)" if context else ""
    if isinstance(error, click.NoSuchOption) and context is not None:
        if error.option_name == "--workspace":
            said = "--workspace stands before the command: context-manager --workspace DIR …"
        elif error.option_name == "--json" and context.parent is None:
            said = "--json stands after the command: context-manager COMMAND --json"
    return said + ask


def _failed(error: BaseException) -> int:
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    if isinstance(error, ContextManagerError):
        return _say(str(error), FAILED)
    if isinstance(error, KeyboardInterrupt):
        return _say("stopped", FAILED)
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    where = f" at {Path(frame.tb_frame.f_code.co_filename).name}:{frame.tb_lineno}" if frame else ""
    return _say(f"a fault of ours: {type(error).__name__}{where}: {error}; please report this line", FAILED)


def _say(message: str, code: int) -> int:
    from mcp_server.cli.printing import visible

    click.echo("context-manager: " + visible(" ".join(message.split())), err=True)
    return code
