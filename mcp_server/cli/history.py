"""`context-manager history when|where|diff|today|show|blame|revert`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import groupby
from shlex import quote

import click

from mcp_server.cli import shell
from mcp_server.history import history
from mcp_server.history.committing import Kind, tag, tags
from mcp_server.history.history import Changed, Origin
from mcp_server.history.sync import sync
from mcp_server.memory import Memory
from mcp_server.text.entries import without_sources


@shell.group("history", "history when tulips", "history diff '2 weeks ago'", "history revert COMMIT --apply")
def history_command() -> None:
    """Show from git when something was learned, where it came from, and what changed."""


@history_command.command("when")
@click.argument("text")
@shell.limit_option(20, "How many, newest first.")
def when(text: str, limit: int) -> None:
    """Show when TEXT was added to the knowledge, and when it was removed."""
    found = shell.with_memory(lambda memory: history.when(memory, text, limit))
    shell.print_list(
        found,
        f"No commit added {text!r} to the knowledge. (`search` looks into conversations, too.)",
        ("when (UTC)", "", "file", "commit", "its message"),
        lambda one: (shell.moment(one.at), one.what, one.path, (one.commit or "")[:10], one.subject),
        whole=("file",),
    )
    for source in dict.fromkeys(source for one in found for source in one.sources) if not shell.as_json() else ():
        click.echo(f"said in {source}")


@history_command.command("where")
@click.argument("what", metavar="TEXT|PATH|PATH:LINE")
def where(what: str) -> None:
    """Show who wrote the lines of a text or a file, when, and in which conversation."""
    _print_origins(shell.with_memory(lambda memory: history.where(memory, what)))


@history_command.command("blame")
@click.argument("path")
@click.option("--start", type=click.IntRange(1), help="First line.")
@click.option("--end", type=click.IntRange(1), help="Last line.")
def blame(path: str, start: int | None, end: int | None) -> None:
    """Show the commit of each line of a file."""
    _print_origins(shell.with_memory(lambda memory: history.blame(memory, path, start, end)))


@history_command.command("diff")
@click.argument("since", default="1 week ago")
@click.argument("until", required=False)
@click.option("--path", help="Only this file or folder.")
def diff(since: str, until: str | None, path: str | None) -> None:
    """Show what changed in the knowledge.

    SINCE and UNTIL are a day, `2 weeks ago`, `yesterday`, a week (2026-W07), a tag or a commit. UNTIL: default now.
    """
    _print_changed(lambda memory: history.diff(memory, since, until, path))


@history_command.command("today")
def today() -> None:
    """Show what was learned today, committed or not."""
    _print_changed(lambda memory: history.diff(memory, "today"))


@history_command.command("show")
@click.argument("commit")
def show(commit: str) -> None:
    """Show a commit's message and changes. (A file at a commit: `read PATH --at COMMIT`.)"""
    _print_changed(lambda memory: history.show(memory, commit))


@history_command.command("revert")
@click.argument("commit")
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@shell.apply_option
def revert(commit: str, paths: tuple[str, ...], apply: bool) -> None:
    """Revert a commit's changes of the knowledge with a new commit. Later changes stay.

    A commit can have changes of several projects. PATH reverts only those of a file or folder.
    """
    done = shell.with_memory(lambda memory: history.revert(memory, commit, shell.caller(), apply=apply, only=paths))
    shell.print_result(done, done.markdown)
    if done.paths and not done.commit:
        shell.say_not_applied(" ".join(("history revert", commit, *map(quote, paths))))
        if len(done.paths) > 1:
            shell.hint(f"Only some of these files: context-manager history revert {commit} PATH…")


def _print_origins(found: list[Origin]) -> None:
    if shell.printed_as_json(found):
        return
    for path, origins in groupby(found, key=lambda one: one.path):
        columns = ("line", "written (UTC)", "commit", "text", "from")
        rows = [
            (
                *(one.line, shell.moment(one.at), (one.commit or "")[:10]),
                *(without_sources(one.text), "\n".join(one.sources) or one.subject),
            )
            for one in origins
        ]
        shell.print_table(columns, rows, right=("line",), whole=("from",), title=path)


def _print_changed(ask: Callable[[Memory], Awaitable[Changed]]) -> None:
    found = shell.with_memory(ask)
    shell.print_result(found, found.markdown)


@history_command.command("tag")
@click.argument("name")
@shell.choice_option(
    "--kind",
    values=["milestone", "before", "extract"],
    about="The tag is memory/KIND/NAME. before: before a change; extract: made by another extraction algorithm.",
    default="milestone",
)
@click.option("--note", "-m", default="", help="A sentence about it.")
def tag_(name: str, kind: Kind, note: str) -> None:
    """Name the current state of the memory.

    `read --at` and `history diff` take the name. Days and weeks have their own tags.
    """
    made = shell.with_memory(lambda memory: tag(memory, kind, name, note))
    said = f"{made.name} is {made.commit[:10]}. Read a file as it was then: context-manager read PATH --at {made.name}"
    shell.print_result(made, said)


@history_command.command("tags")
def tags_() -> None:
    """List the tags of the memory, oldest first."""
    shell.print_list(
        shell.with_memory(tags),
        "No tags yet. Name the memory as it is now: context-manager history tag NAME",
        ("tag", "of (UTC)", "commit", "note"),
        lambda one: (one.name, shell.moment(one.at), one.commit[:10], one.message),
    )


@shell.command("sync", "sync", "sync backup")
@click.argument("remote", required=False)
def sync_command(remote: str | None) -> None:
    """Merge this memory with its copy on another machine: commit, fetch, merge, push. Nothing is lost.

    REMOTE is the name of a git remote of the workspace (default: git.remote in the settings, or the only one).
    """
    done = shell.with_memory(lambda memory: sync(memory, remote), title="Merging both copies")
    shell.print_result(done, done.markdown)
