"""The Jinja templates of the page and their filters."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined

FOLDER = Path(__file__).parent


@cache
def templates() -> Environment:
    """Returns the templates. They escape all text, and undefined names raise an error."""
    made = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["number"] = lambda value: f"{value:,}"
    made.filters["plural"] = _plural
    made.filters["address"] = lambda values: urlencode({name: one for name, one in values.items() if one})
    made.filters["size"] = _size
    return made


def _plural(count: int, noun: str, plural: str = "") -> str:
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def _size(count: int) -> str:
    for unit, size in (("MB", 1_000_000), ("KB", 1_000)):
        if count >= size:
            return f"{count / size:,.0f} {unit}"
    return f"{count:,} bytes"
