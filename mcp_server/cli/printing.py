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


def json_option(command: F) -> F:
    """`--json`, as every command has it."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON for a program.")(command)


def print_json(value: object) -> None:
    """One JSON document: what has `as_dict` says what it is, other dataclasses give their fields."""
    click.echo(json.dumps(plain(value), ensure_ascii=False, indent=2))


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
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str = "", right: Sequence[str] = ()
) -> None:
    """A table; the columns named in `right` hold numbers. Cells are text, never markup, without control characters."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title or None, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        number = column in right
        table.add_column(column, justify="right" if number else "left", no_wrap=number, overflow="fold")
    for row in rows:
        table.add_row(*(Text(visible("" if cell is None else str(cell))) for cell in row))
    console().print(table)


def print_text(text: str) -> None:
    """Text as it is, ending with a newline."""
    click.echo(visible(text, keep_lines=True).rstrip("\n"))


def visible(text: str, *, keep_lines: bool = False) -> str:
    """`text` without what could drive the terminal: control characters are shown as `\\x1b`."""
    kept = "\n\t" if keep_lines else ""
    if not keep_lines:
        text = " ".join(text.split("\n"))
    return "".join(c if c.isprintable() or c in kept or c == " " else ascii(c)[1:-1] for c in text)


def moment(at: datetime | None) -> str:
    """A time as tables show it, in UTC."""
    return f"{at:%Y-%m-%d %H:%M}" if at else ""
