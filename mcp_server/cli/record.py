"""Commands that fill the memory or copy it: `init`, `import`, `export`, `observe`, `remember` and `anchor`."""

from __future__ import annotations

import os
import sys
from datetime import datetime
from operator import itemgetter
from pathlib import Path
from typing import Any, cast, get_args

import anyio
import click

from mcp_server.app import catch_up, export_memory, import_memory
from mcp_server.cli import shell
from mcp_server.cli.install import import_and_read
from mcp_server.clients.adapters import ADAPTERS
from mcp_server.clients.importers.imported import Format, ImportReport
from mcp_server.clients.importers.whole_memory import is_export
from mcp_server.context import briefs
from mcp_server.conversations.observe import NewTurn, Observed, observe
from mcp_server.conversations.sessions import check_known
from mcp_server.errors import Invalid
from mcp_server.knowledge.anchor import Anchored, anchor, anchors
from mcp_server.knowledge.remember import NewFact, Remembered, remember
from mcp_server.memory import Memory
from mcp_server.relevance.clarity import anchored_text
from mcp_server.text.destinations import Kind, NeedsProject

FORMATS = ("auto", *sorted(ADAPTERS), "claude-ai", "chatgpt", "markdown", "memory")


@shell.command("import", "import ~/.claude/projects", "import data-2026-02-16.zip", "import memory.zip")
@click.argument("path", type=click.Path(exists=True, path_type=Path))
@shell.choice_option(
    "--format",
    "format_name",
    values=FORMATS,
    about=f"The format of PATH: {', '.join(FORMATS[1:])}; auto detects it.",
    default="auto",
    metavar="FORMAT",
)
@click.option(
    "--project", help="Its project (default: that of the conversation's folder; else none, visible in all projects)."
)
@click.option("--name", help="Markdown: the folder under knowledge/reference/ (default: the path's own name).")
@click.option("--anew", is_flag=True, help="Also read files that have not changed since they were imported.")
def import_command(path: Path, format_name: str, project: str | None, name: str | None, anew: bool) -> None:
    """Import a file or a folder: conversations, notes, or what `export` wrote.

    A second import of conversations or notes adds only what is new. An export becomes a whole memory, with its state
    and history, so the memory here must be empty.
    """
    if format_name == "memory" or (format_name == "auto" and is_export(path)):
        with shell.progress("Importing"):
            imported = anyio.run(import_memory, shell.chosen_workspace(), os.environ, path)
        shell.with_memory(catch_up, title="Indexing")
        shell.print_result(imported, imported.markdown)
        return
    if format_name == "auto" and shell.memory_exists(path):
        raise Invalid(f"{path} is the folder of a memory: `export` it and import the result, or give its --format")

    async def read(memory: Memory) -> tuple[ImportReport, list[str]]:
        chosen = None if format_name == "auto" else cast(Format, format_name)
        return await import_and_read(memory, os.environ, path, kind=chosen, project=project, name=name, anew=anew)

    report, learned = shell.with_memory(read, if_missing="create")
    shell.print_result(report, "\n".join((report.markdown, *learned)))
    if report.nothing_read:
        click.get_current_context().exit(1)


@shell.command("export", "export memory.zip", "export /media/usb/memory", "import memory.zip")
@click.argument("target", type=click.Path(path_type=Path))
def export_command(target: Path) -> None:
    """Write the whole memory to TARGET, a new folder or a .zip, which `import` reads.

    The export contains all files, the state and the history. With it you can move a memory to another machine, to a
    team's PostgreSQL, or from there into a folder. It does not contain the index, or what belongs to this machine
    (settings, installed clients).
    """
    place = target.expanduser().absolute()
    with shell.progress("Exporting"):
        done = anyio.run(export_memory, shell.chosen_workspace(), os.environ, place)
    left_out = [f"left out, a link or a name that is not allowed: {path}" for path in done.left_out]
    said = f"{done.files:,} files, {done.bytes / 1e6:,.1f} MB: {done.path}"
    shell.print_result(done, "\n".join((said, *left_out)))


def given_or_piped(argument: str | None) -> str:
    """Returns `argument`, or all of stdin without the newline at its end, which `echo` adds.

    Raises:
        click.UsageError: there is no argument and stdin is the keyboard.
        Invalid: stdin is not UTF-8.
    """
    if argument is not None and argument != "-":
        return argument
    if argument is None and sys.stdin.isatty():
        raise click.UsageError("Missing argument 'CONTENT': give it, or pipe it in.", click.get_current_context())
    try:
        text = sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise Invalid(f"stdin is not UTF-8 ({error.reason} at byte {error.start}); convert it first (iconv)") from None
    return text.removesuffix("\n").removesuffix("\r")


@shell.command(
    "init",
    "init",
    "--workspace ~/work-memory init",
    more="""

\b
Completion in your shell (add the line to ~/.bashrc or ~/.zshrc):
  eval "$(_CONTEXT_MANAGER_COMPLETE=bash_source context-manager)"
  eval "$(_CONTEXT_MANAGER_COMPLETE=zsh_source context-manager)"
In fish:
  _CONTEXT_MANAGER_COMPLETE=fish_source context-manager \\
    > ~/.config/fish/completions/context-manager.fish""",
)
@click.option("--adopt", is_flag=True, help="Also in a folder with other files or a git repository.")
def init_command(adopt: bool) -> None:
    """Create the memory's folder with its templates and its own git repository. A second run changes nothing."""
    place, existed = shell.folder(), shell.memory_exists()
    shell.from_memory(lambda _: None, if_missing="adopt" if adopt else "create")
    made = "Next: fill in knowledge/identity/USER.md, or import conversations: context-manager import FILE"
    made = f"Created the memory in {place}.\n{made}"
    said = f"The memory in {place} exists already; nothing was changed." if existed else made
    shell.print_result({"workspace": place, "created": not existed}, said)


def time_of(context: click.Context, parameter: click.Parameter, value: str | None) -> datetime | None:
    """Returns an ISO time, by default in the machine's time zone."""
    try:
        return datetime.fromisoformat(value).astimezone() if value is not None else None
    except ValueError:
        raise click.BadParameter(f"{value!r} is not an ISO time such as 2026-01-31T09:30:00Z") from None


@shell.command(
    "observe", "observe 'The pump needs a new seal.'", "observe --session ses_1f2e --role agent < answer.txt"
)
@click.argument("content", required=False)
@shell.choice_option("--role", values=["user", "agent", "assistant", "system"], about="Who said it.", default="user")
@click.option("--session", help="The conversation (default: a new one).")
@click.option("--turn-id", help="The client's id of the message: the same id is recorded once.")
@click.option("--name", help="The speaker's name.")
@click.option("--at", metavar="TIME", callback=time_of, help="When it was said (ISO; default: now).")
@click.option("--project", help="Its project (default: that of the folder).")
@shell.choice_option(
    "--kind", values=["main", "shared", "subagent"], about="shared: others can read it. Fixed for a session."
)
@shell.choice_option(
    "--delivery", values=["add", "replace"], about="replace: the compiled context is the prompt. Fixed for a session."
)
@click.option("--model", help="Which model answers.")
@click.option("--channel", help="Where it was said (default: context-manager).")
@click.option("--context-tokens", type=click.IntRange(0), help="Tokens in the client's context, as the client says.")
@click.option("--important", is_flag=True, help="Never drop it from the live context.")
def observe_command(content: str | None, **options: Any) -> None:
    """Record CONTENT (or standard input) as one message. The first line of the answer has the session's id."""
    turn = NewTurn(content=given_or_piped(content), **options)
    if not turn.content.strip():
        raise Invalid("there is nothing to record: CONTENT is empty")

    async def act(memory: Memory) -> Observed:
        await check_known(memory, turn.session)
        return await observe(memory, turn, shell.caller())

    done = shell.with_memory(act, if_missing="create")
    shell.print_result(done, done.markdown)


KINDS = get_args(Kind)


@shell.command(
    "remember",
    "remember 'Ana is allergic to nuts.' --kind person",
    "remember 'Deploy on Tuesdays.' --kind rule --project global",
)
@click.argument("content", required=False)
@shell.choice_option(
    "--kind", values=KINDS, about=f"Chooses file and section: {', '.join(KINDS)}.", default="fact", metavar="KIND"
)
@click.option("--project", default="current", show_default=True, help="`current`, `global` or a name.")
@click.option("--session", help="The conversation it comes from.")
@click.option("--path", help="Another file than that of the kind.")
@click.option("--section", help="Another heading than that of the kind.")
@shell.choice_option(
    "--action",
    values=["append", "replace", "edit", "create"],
    about="replace: the section; edit: --old-text only; create: a new file.",
    default="append",
)
@click.option("--old-text", help="The text that `edit` replaces.")
@click.option("--supersedes", help="The text or PATH:LINE of the entry that this one replaces.")
def remember_command(content: str | None, **options: Any) -> None:
    """Write CONTENT (or standard input) into the file of its kind, and show the change."""
    fact = NewFact(content=given_or_piped(content), **options)

    async def act(memory: Memory) -> Remembered:
        await check_known(memory, fact.session)
        try:
            done = await remember(memory, fact, shell.caller())
        except NeedsProject as error:
            raise Invalid(f"{error}; or name the project: --project NAME") from error
        if done.diff:  # if no server runs, a hook reads the index and the brief from disk
            await catch_up(memory)
            await briefs.refresh(memory)
        return done

    done = shell.with_memory(act, if_missing="create")
    shell.print_result(done, done.markdown)


@shell.command("anchor", "anchor Galeb --note 'the boat'", "anchor", "anchor Galeb --off")
@click.argument("item", required=False)
@click.option("--note", help="Why it is kept.")
@click.option("--off", is_flag=True, help="Remove the anchor.")
def anchor_command(item: str | None, note: str | None, off: bool) -> None:
    """Mark an item to keep: a name, a chunk's id, a file, PATH#TURN or SESSION#TURN. Without ITEM: list the anchors."""
    if item is not None:

        async def act(memory: Memory) -> tuple[Anchored, str]:
            done = await anchor(memory, item, not off, note)
            return done, await anchored_text(memory, done)

        done, text = shell.with_memory(act, if_missing="refuse" if off else "create")
        said = {"item": done.anchor.item, "kind": done.anchor.kind, "on": done.on, "changed": done.changed}
        shell.print_result(said, text)
        return
    if note or off:
        raise click.UsageError("--note and --off need an item")
    held = [{"item": one.item, "kind": one.kind, "note": one.note, "at": one.at} for one in shell.from_memory(anchors)]
    columns = ("anchor", "kind", "since", "note")
    row = itemgetter("item", "kind", "at", "note")
    shell.print_list(held, "Nothing is anchored. (anchor ITEM)", columns, row)
