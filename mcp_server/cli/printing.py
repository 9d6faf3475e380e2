"""How answers look: tables and text for people, JSON for programs."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from rich.console import Console

F = TypeVar("F", bound=Callable[..., Any])
PIPED_WIDTH = 120
"""Characters a line where the reader is a file or a pipe and `COLUMNS` does not say."""

READABLE = 14
"""Characters that a column of text needs: narrower, its words are cut into syllables."""

BETWEEN = 3
"""Blanks between two columns."""


def json_option(command: F) -> F:
    """`--json`, as every command has it."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON for a program.")(command)


def print_json(value: object) -> None:
    """One JSON document: what has `as_dict` says what it is, other dataclasses give their fields."""
    text = json.dumps(plain(value), ensure_ascii=False, indent=2)
    if not text.isascii():  # else nothing in it could drive the terminal: JSON escapes what is below a blank
        text = "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)
    click.echo(text)


def plain(value: object) -> Any:
    """`value` as JSON knows it; objects with `as_dict`, dataclasses, times, paths and sets become plain."""
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
    """Where people read: colours on a terminal, none in a pipe."""
    import os

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
) -> None:
    """A table; the columns named in `right` hold numbers, those in `whole` what is copied from here and must not be cut
    in two. Where a terminal is too narrow for it, a paragraph a row. Cells are text, never markup, without control
    characters."""
    from rich.text import Text

    cells = [[visible("" if cell is None else str(cell)) for cell in row] for row in rows]
    kept = [column in right or column in whole for column in columns]
    to = console()
    if (
        sum(_least(columns[place], [row[place] for row in cells], kept[place]) for place in range(len(columns)))
        > to.width
    ):
        _print_records(columns, cells, title, to)
        return
    from rich import box
    from rich.table import Table

    headed = any(columns)
    table = Table(title=title or None, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, show_header=headed)
    for place, column in enumerate(columns):
        table.add_column(column, justify="right" if column in right else "left", no_wrap=kept[place], overflow="fold")
        if column in whole:
            table.columns[-1].min_width = max((len(row[place]) for row in cells), default=0)
    for row in cells:
        table.add_row(*map(Text, row))
    to.print(table)


def _least(column: str, cells: Sequence[str], kept: bool) -> int:
    """Characters without which a column is no pleasure to read, with what stands between it and the next."""
    longest = max((len(cell) for cell in (column, *cells)), default=0)
    return (longest if kept else min(longest, max(len(column), READABLE))) + BETWEEN


def _print_records(columns: Sequence[str], cells: Sequence[Sequence[str]], title: str, to: Console) -> None:
    """Each row as a paragraph: its first cell, and below it the others with the names of their columns."""
    from rich.padding import Padding
    from rich.text import Text

    if title:
        to.print(Text(title, style="italic"))
    for first, *others in cells:
        to.print(Text(first, style="bold"))
        named = (f"{name} {cell}".strip() for name, cell in zip(columns[1:], others, strict=True) if cell)
        to.print(Padding(Text(" · ".join(named)), (0, 0, 0, 2)))


def print_text(text: str) -> None:
    """Text as it is, ending with a newline."""
    click.echo(visible(text, keep_lines=True).rstrip("\n"))


def visible(text: str, *, keep_lines: bool = False) -> str:
    """`text` without what could drive the terminal: control characters are shown as `\\x1b`."""
    kept = "\n\t" if keep_lines else ""
    if not keep_lines:
        text = " ".join(text.split("\n"))
    return "".join(c if c.isprintable() or c in kept or c == " " else ascii(c)[1:-1] for c in text)


def count(number: int, noun: str) -> str:
    """`1 file`, `2 files`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def moment(at: datetime | None) -> str:
    """A time as tables show it, in UTC."""
    return f"{at:%Y-%m-%d %H:%M}" if at else ""
