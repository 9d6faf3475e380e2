"""Functions for all commands: open the workspace, and print results as text for people or as JSON for programs."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from datetime import datetime
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click

if TYPE_CHECKING:
    from rich.console import Console

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
    title: str | None = None,
) -> T:
    """Opens the memory of `--workspace`, and returns the result of `act` for it.

    Args:
        fresh: updates the index first, and handles the queue of hooks' events.
        if_missing: what to do if there is no memory. Only commands that record pass "create".
        settings: settings for this command only, named as in the environment.
        title: the title of the progress bar while `act` works.
    """
    import anyio

    from mcp_server.app import catch_up, open_memory
    from mcp_server.home import team_address

    option = chosen_workspace()
    creates = if_missing == "create" and team_address(option, os.environ) is None
    if creates and click.get_current_context().info_name != "init" and sys.stderr.isatty() and not memory_exists():
        click.echo(f"context-manager: there is no memory in {folder()}: creating a new one", err=True)

    async def run() -> T:
        environ = {**os.environ, **(settings or {})}
        async with open_memory(option, environ, if_missing=if_missing) as memory:
            if fresh:
                with progress("Reading changes"):
                    await catch_up(memory)
            with progress(title) if title else nullcontext():
                return await act(memory)

    return anyio.run(run)


def from_memory(read: Callable[[Memory], T], *, if_missing: IfMissing = "refuse") -> T:
    """Opens the memory of `--workspace`, and returns the result of the synchronous function `read` for it."""

    async def act(memory: Memory) -> T:
        return read(memory)

    return with_memory(act, if_missing=if_missing)


def chosen_workspace() -> Path | str | None:
    """Returns the value of the option `--workspace`, or None."""
    chosen: Path | str | None = click.get_current_context().find_root().obj
    return chosen


def folder() -> Path:
    """Returns the folder of the command's memory."""
    from mcp_server.home import resolve_workspace

    return resolve_workspace(chosen_workspace(), os.environ)


def memory_exists(place: Path | None = None) -> bool:
    """Returns whether a folder is a workspace, by default the command's folder."""
    from mcp_server.storage.local.folders import is_workspace

    return is_workspace(place or folder())


def caller() -> Caller:
    """Returns this command as the caller, with the folder of the client or the shell."""
    from mcp_server.home import working_folder
    from mcp_server.model import Caller

    folder = os.environ.get("CLAUDE_PROJECT_DIR") or working_folder()
    return Caller(source="cli", client="context-manager", explicit_sessions=True, folder=folder)


F = TypeVar("F", bound=Callable[..., Any])
PIPED_WIDTH = 120
"""Characters of a line in a file or a pipe, if `COLUMNS` is not set."""

READABLE = 14
"""The least width of a column of text; in a narrower one most words would be broken."""

LONG, READABLE_LONG = 80, 40
"""Cells with more characters than LONG need a column of this width; in a narrower one a row would fill the screen."""

BETWEEN = 3
"""Blanks between two columns."""


apply_option = click.option("--apply", is_flag=True, help="Do it. Without this, only show what would change.")


def examples(*lines: str) -> str:
    """Returns the epilog of a command's help: one example a line, without the program's name."""
    return "\b\nExamples:\n" + "\n".join(f"  context-manager {line}" for line in lines)


def choice_option(
    *names: str, values: Sequence[str], about: str, default: str | None = None, metavar: str | None = None
) -> Callable[[F], F]:
    """Returns an option that takes one of `values`. The help shows its default, if it has one."""
    shown = default is not None
    kind = click.Choice(values)
    return click.option(*names, type=kind, default=default, show_default=shown, help=about, metavar=metavar)


def limit_option(default: int, about: str, most: int | None = None) -> Callable[[F], F]:
    """Returns the option `--limit`: a number from 1 to `most`."""
    return click.option("--limit", type=click.IntRange(1, most), default=default, show_default=True, help=about)


def _keep_json(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    context.meta[__name__] = value


JSON = click.Option(["--json"], is_flag=True, expose_value=False, callback=_keep_json, help="Print JSON for a program.")


class Command(click.Command):
    """A command with the option `--json`, which the functions below look up."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.params.append(JSON)


class Group(click.Group):
    """A group of commands with the option `--json`."""

    command_class = Command


def command(name: str, *shown: str, more: str = "") -> Callable[[Callable[..., Any]], Command]:
    """Returns a decorator for a command with `--json`. Its help ends with the examples `shown`, and with `more`."""
    return click.command(name, cls=Command, epilog=examples(*shown) + more if shown else None)


def group(name: str, *shown: str, **settings: Any) -> Callable[[Callable[..., Any]], Group]:
    """Returns a decorator for a group of commands with `--json`. Its help ends with the examples `shown`."""
    return click.group(name, cls=Group, epilog=examples(*shown), **settings)


def as_json() -> bool:
    """Returns whether the command was called with `--json`."""
    return bool(click.get_current_context().meta.get(__name__))


def printed_as_json(value: object) -> bool:
    """Prints `value` as JSON if that was asked for, and returns whether it was."""
    if as_json():
        print_json(value)
    return as_json()


def print_result(value: object, text: str) -> None:
    """Prints `value` as JSON if that was asked for, otherwise `text`."""
    if not printed_as_json(value):
        print_text(text)


def print_list(
    found: Sequence[T], empty: str, columns: Sequence[str], row: Callable[[T], Sequence[object]], **table: Any
) -> None:
    """Prints a list: as JSON, as the sentence `empty` if it has no entry, or as a table with a row for each entry."""
    if printed_as_json(found):
        return
    if found:
        print_table(columns, [row(one) for one in found], **table)
    else:
        click.echo(empty)


def say_not_applied(command: str, options: str = "") -> None:
    """Prints how to carry out a change that was only shown. `options` come after `--apply`."""
    hint(f"Nothing was changed yet; do it with: context-manager {command} --apply{options}")


def hint(text: str) -> None:
    """Prints a text for people, which `--json` leaves out."""
    if not as_json():
        print_text(text)


def print_json(value: object) -> None:
    """Prints one JSON document: the `as_dict` of an object that has it, otherwise a dataclass's fields."""
    text = json.dumps(plain(value), ensure_ascii=False, indent=2)
    if not text.isascii():  # ASCII text is safe for a terminal: JSON escapes control characters
        text = "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)
    click.echo(text)


def plain(value: object) -> Any:
    """Returns `value` in JSON's types: objects with `as_dict`, dataclasses, times, paths and sets are converted."""
    if hasattr(value, "as_dict"):
        return plain(value.as_dict())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted((plain(item) for item in value), key=str)
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value) if isinstance(value, PurePath) else value


def console() -> Console:
    """Returns a console with colors on a terminal, and without them in a pipe."""
    from rich.console import Console

    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else PIPED_WIDTH
    return Console(width=width, highlight=False, soft_wrap=False)


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    title: str = "",
    right: Sequence[str] = (),
    whole: Sequence[str] = (),
    to: Console | None = None,
) -> None:
    """Prints a table, or one paragraph per row if the terminal is too narrow.

    Columns in `right` are numbers; cells of columns in `whole` are never broken, so that they can be copied. Markup in
    cells is printed as it is, and control characters are escaped.
    """
    from rich.text import Text

    cells = [[visible("" if cell is None else str(cell)) for cell in row] for row in rows]
    kept = [column in right or column in whole for column in columns]
    to = to or console()
    if title:
        to.print(Text(title, style="bold"))
    widths = (_least(column, [row[place] for row in cells], kept[place]) for place, column in enumerate(columns))
    if sum(widths) > to.width:
        _print_records(columns, cells, to)
        return
    from rich import box
    from rich.table import Table

    headed = any(columns)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_header=headed)
    for place, column in enumerate(columns):
        table.add_column(column, justify="right" if column in right else "left", no_wrap=kept[place], overflow="fold")
        if column in whole:
            table.columns[-1].min_width = max((len(row[place]) for row in cells), default=0)
    for row in cells:
        table.add_row(*map(Text, row))
    to.print(table)


def _least(column: str, cells: Sequence[str], kept: bool) -> int:
    """Returns the least readable width of a column, with the gap to the next one."""
    longest = max((len(cell) for cell in (column, *cells)), default=0)
    readable = READABLE_LONG if longest > LONG else READABLE
    return (longest if kept else min(longest, max(len(column), readable))) + BETWEEN


def _print_records(columns: Sequence[str], cells: Sequence[Sequence[str]], to: Console) -> None:
    """Prints each row as a paragraph: its first cell, and below it the others with the names of their columns."""
    from rich.padding import Padding
    from rich.text import Text

    for first, *others in cells:
        to.print(Text(first, style="bold"))
        named = (f"{name} {cell}".strip() for name, cell in zip(columns[1:], others, strict=True) if cell)
        to.print(Padding(Text(" · ".join(named)), (0, 0, 0, 2)))


def print_facts(facts: Mapping[str, object], to: Console | None = None) -> None:
    """Prints a line for each name and value, without the empty ones."""
    from rich.text import Text

    to = to or console()
    for name, value in facts.items():
        if value:
            to.print(Text.assemble((f"{name:<9}", "dim"), visible(str(value))))


def print_text(text: str) -> None:
    """Prints text without control characters, with one newline at its end."""
    click.echo(visible(text, keep_lines=True).rstrip("\n"))


def visible(text: str, *, keep_lines: bool = False) -> str:
    """Returns `text` without control characters of a terminal: they are shown as `\\x1b`."""
    kept = "\n\t" if keep_lines else ""
    if not keep_lines:
        text = " ".join(text.split("\n"))
    return "".join(c if c.isprintable() or c in kept else ascii(c)[1:-1] for c in text)


def moment(at: datetime | None) -> str:
    """Returns a time as tables show it, in UTC."""
    return f"{at:%Y-%m-%d %H:%M}" if at else ""


PATIENCE = 1.0
"""Seconds after which the progress bar appears."""


class ShowProgress(Protocol):
    """Updates a progress bar."""

    def __call__(self, done: float, total: float, label: str = "", /) -> None: ...


@contextmanager
def progress(title: str) -> Iterator[ShowProgress]:
    """Shows a progress bar on a terminal, from PATIENCE seconds on. Yields a function that updates the bar."""
    if not sys.stderr.isatty():
        yield lambda done, total, label="", /: None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task(title, total=None)
    timer = threading.Timer(PATIENCE, bar.start)
    timer.daemon = True
    timer.start()

    def update(done: float, total: float, label: str = "", /) -> None:
        shown = escape(label if len(label) <= 40 else "…" + label[-39:])
        bar.update(task, completed=done, total=total, description=f"{title} [dim]{shown}[/dim]")

    try:
        yield update
    finally:
        timer.cancel()
        timer.join()
        bar.stop()
