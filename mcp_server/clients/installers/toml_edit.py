"""Changes one table in the text of a TOML file; all other bytes stay as they are.

`tomllib` reads the content, and finds the end of a statement: the first `#` or line end before which it is valid.
`tomlkit` does not fit: removing a table also removes the comments between it and the next table.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mcp_server.clients.installers.jsonc import newline_of
from mcp_server.errors import Invalid, Refused

Table = tuple[str, ...]

_BEGINS = re.compile(r"(?:\s|#[^\n]*+)*+(?P<statement>[^\s#])")
_MAY_END = re.compile(r"[#\n]|\Z")
_BARE = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class _Statement:
    """A header, or a key with its value, at `text[start:end]`, without space and comments around it."""

    start: int
    end: int
    table: Table
    """The table that it opens or belongs to."""
    key: str
    """Its first key; "" for a header."""


def read(text: str, where: str) -> dict[str, Any]:
    """Returns the content of the file named `where`. Raises Invalid with file, line and reason."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        at = re.search(r" \(at (?:line (\d+), column (\d+)|end of document)\)$", str(error))
        line = (at[1] if at else None) or text.count("\n") + 1
        what = str(error)[: at.start()] if at else str(error)
        raise Invalid(f"{where}: line {line}: {what}; fix the file and try again") from None


def put(text: str, table: Table, fields: Mapping[str, Any], where: str) -> str:
    """Returns `text` with `fields` in `table`, which is added at the end of the file or updated.

    Raises Invalid for a broken file, Refused if the table is written inline.
    """
    before = read(text, where)
    present = _inside(before, table)
    if present is None:
        newline = newline_of(text)
        lines = [f"[{'.'.join(map(_key, table))}]", *(f"{_key(key)} = {_value(item)}" for key, item in fields.items())]
        gap = "" if not text.strip() else newline if text.endswith("\n") else newline * 2
        after = text + gap + newline.join(lines) + newline
    else:
        after = text
        for key, item in fields.items():
            if present.get(key) != item:
                after = _with_field(after, table, key, item)
    _check(before, after, table, {**(present or {}), **fields}, where)
    return after


def remove(text: str, table: Table, where: str) -> str:
    """Returns `text` without `table` and its subtables; comments stay. Unchanged if there is no such table."""
    before = read(text, where)
    if _inside(before, table) is None:
        return text
    after = text
    for statement in reversed([found for found in _statements(text) if found.table[: len(table)] == table]):
        begin, end = text.rfind("\n", 0, statement.start) + 1, _line_end(text, statement.end)
        before_it = text.rfind("\n", 0, max(begin - 1, 0)) + 1
        if text[statement.end : end].strip():  # a comment, which stays
            end = statement.end
        elif not statement.key and not text[before_it:begin].strip():  # remove the empty line that `put` added
            begin = before_it
        after = after[:begin] + after[end:]
    _check(before, after, table, None, where)
    return after


def _with_field(text: str, table: Table, key: str, item: Any) -> str:
    written = f"{_key(key)} = {_value(item)}"
    found = {statement.key: statement for statement in _statements(text) if statement.table == table}
    if key in found:
        return text[: found[key].start] + written + text[found[key].end :]
    if "" not in found:
        return text  # `_check` refuses it
    at = _line_end(text, found[""].end)
    gap = "" if text.endswith("\n", 0, at) else newline_of(text)
    return text[:at] + gap + written + newline_of(text) + text[at:]


def _line_end(text: str, at: int) -> int:
    """Returns the position after the line of `at`."""
    newline = text.find("\n", at)
    return len(text) if newline < 0 else newline + 1


def _check(before: dict[str, Any], after: str, table: Table, wanted: Mapping[str, Any] | None, where: str) -> None:
    """Raises Refused unless `table` equals `wanted` in the new text, and the rest of the content is unchanged."""
    try:
        found = tomllib.loads(after)
        well = _inside(found, table) == wanted and _bare(found, table) == _bare(before, table)
    except tomllib.TOMLDecodeError:
        well = False
    if not well:
        raise Refused(
            f"{where}: {'.'.join(table[:-1])} is not written as separate tables ([{'.'.join(table)}]), so it cannot "
            "be changed without touching the rest; change it by hand (install --print shows the entry)"
        )


def _bare(document: dict[str, Any], table: Table) -> dict[str, Any]:
    """Returns `document` without `table`, and without its parents that are then empty."""
    rest = {key: item for key, item in document.items() if key != table[0]}
    if len(table) > 1 and (inner := _bare(document.get(table[0], {}), table[1:])):
        return {**rest, table[0]: inner}
    return rest


def _inside(document: Mapping[str, Any], table: Table) -> Mapping[str, Any] | None:
    found: Any = document
    for step in table:
        found = found.get(step) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else None


def _statements(text: str) -> list[_Statement]:
    """Returns the headers and the keys with their values in a valid file."""
    found: list[_Statement] = []
    table: Table = ()
    end = 0
    while begins := _BEGINS.match(text, end):
        start = begins.start("statement")
        end, inner = _read_one(text, start)
        path: list[str] = []
        while isinstance(inner, dict) and len(inner) == 1:
            ((key, inner),) = inner.items()
            path.append(key)
        if text[start] == "[":
            table = tuple(path)
        found.append(_Statement(start, end, table, "" if text[start] == "[" else path[0]))
    return found


def _read_one(text: str, start: int) -> tuple[int, Any]:
    """Returns the end of the statement that begins at `start`, and its content."""
    for stop in _MAY_END.finditer(text, start):
        statement = text[start : stop.start()].rstrip()
        try:
            return start + len(statement), tomllib.loads(statement)
        except tomllib.TOMLDecodeError:  # the statement continues, as a list of several lines does
            continue
    raise AssertionError("the file is not valid")


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _value(key)


def _value(item: Any) -> str:
    """Returns a string, a list of strings or a table of strings in TOML."""
    if isinstance(item, list):
        return "[" + ", ".join(map(_value, item)) + "]"
    if isinstance(item, dict):
        return "{ " + ", ".join(f"{_key(key)} = {_value(inner)}" for key, inner in item.items()) + " }"
    return json.dumps(item, ensure_ascii=False).replace("\x7f", "\\u007f")
