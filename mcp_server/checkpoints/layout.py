"""The pieces that a checkpoint's file is written with: any text goes in and comes back exactly, and none looks like
structure.

    ## Section          a heading: no line of a text begins so, since every line of a text begins with `> ` or `- `
    - one | two         a row of fields, each on one line; empty ones at its end are left out
    > text              a text, its lines one by one
    ```json … ```       a value as JSON, whose lines begin with white space, a bracket or a quotation mark

Characters that no file can hold, or that hide, are written `\\u{HEX}` as in transcripts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast, get_args

from mcp_server.checkpoints.threads import Exchange
from mcp_server.errors import Invalid
from mcp_server.knowledge.anchors import Anchor, AnchorKind, kind_of
from mcp_server.model import ToolCall
from mcp_server.relevance.gauges import Gauges
from mcp_server.text.escaping import escape, escape_line, unescape, unescape_line

_TURN = re.compile(r"### Turn (\d+)")
_USER, _AGENT = "User:", "Agent:"


def exchanges(shown: Sequence[Exchange]) -> list[str]:
    """A heading with the turn's number for each, and what both said."""
    lines: list[str] = []
    for one in shown:
        lines += [f"### Turn {one.turn}", _USER, *quote(one.asked)]
        lines += [_AGENT, *quote(one.answered)] if one.answered else []
    return lines


def read_exchanges(lines: Sequence[str]) -> tuple[Exchange, ...]:
    found: list[tuple[int, list[str], list[str]]] = []  # turn, lines of the user, lines of the agent
    said: list[str] = []
    for line in lines:
        if heading := _TURN.fullmatch(line):
            found.append((int(heading[1]), [], []))
        elif found and line in (_USER, _AGENT):
            _, user, agent = found[-1]
            said = user if line == _USER else agent
        elif found:
            said.append(line)
    return tuple(Exchange(turn, read_quote(user), read_quote(agent)) for turn, user, agent in found)


def tool_call(call: ToolCall) -> list[str]:
    """Name, summary and result on one line, its files indented below."""
    return [row(call.name, call.summary, call.result), *(f"  {line}" for line in bullets(call.files))]


def read_tool_call(lines: Sequence[str]) -> ToolCall | None:
    fields = read_row(lines[0], 3) if lines else None
    if fields is None:
        return None
    files = read_bullets(line.removeprefix("  ") for line in lines[1:])
    name, summary, result = fields
    return ToolCall(name, summary, result, files)


def anchors(kept: Sequence[Anchor]) -> list[str]:
    """Item, kind, time and note of each."""
    return [row(anchor.item, anchor.kind, anchor.at, anchor.note) for anchor in kept]


def read_anchors(lines: Sequence[str]) -> tuple[Anchor, ...]:
    found = []
    for line in lines:
        if fields := read_row(line, 4):
            item, kind, at, note = fields
            known = cast(AnchorKind, kind) if kind in get_args(AnchorKind) else kind_of(item)
            found.append(Anchor(item, known, note, at))
    return tuple(found)


def read_pairs(lines: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """The rows of two fields; other lines are passed over."""
    rows = (read_row(line, 2) for line in lines)
    return tuple((row[0], row[1]) for row in rows if row is not None)


def gauges(fields: Mapping[str, object], where: str) -> Gauges | None:
    """The gauges of a front matter, None if it has none."""
    if fields.get("limit_tokens") is None:
        return None
    client = None if fields.get("client_tokens") is None else number(fields, "client_tokens", where)
    return Gauges(number(fields, "live_tokens", where), number(fields, "limit_tokens", where), client)


def number(fields: Mapping[str, object], name: str, where: str) -> int:
    """A field that must be a number, 0 or more."""
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise Invalid(f"{where}: `{name}` must be a number, 0 or more, not {value!r}")
    return value


def text(fields: Mapping[str, object], name: str, where: str) -> str:
    """A field that must be there."""
    value = fields.get(name)
    if value is None or isinstance(value, list | dict):
        raise Invalid(f"{where}: `{name}` must be text, not {value!r}")
    return str(value)


def optional(fields: Mapping[str, object], name: str) -> str | None:
    """A field that may be missing."""
    value = fields.get(name)
    return None if value is None else str(value)


ONE_LINE = 160
"""Characters of JSON up to which a value stands on one line."""

_UNWRITABLE = re.compile(r"[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")


def row(*fields: str) -> str:
    """A bullet of fields."""
    written = [escape_line(field, "|") for field in fields]
    while len(written) > 1 and not written[-1]:
        written.pop()
    return "- " + " | ".join(written)


def read_row(line: str, count: int) -> list[str] | None:
    """The fields of a row, `count` of them; None if the line is no row of so many."""
    if line != "-" and not line.startswith("- "):
        return None
    fields = [unescape_line(field) for field in line[2:].split(" | ")]
    return fields + [""] * (count - len(fields)) if len(fields) <= count else None


def bullets(texts: Iterable[str]) -> list[str]:
    """One bullet for each text."""
    return [f"- {escape_line(text)}" for text in texts]


def read_bullets(lines: Iterable[str]) -> tuple[str, ...]:
    """The texts of a list of bullets; other lines are passed over."""
    return tuple(unescape_line(line[2:]) for line in lines if line == "-" or line.startswith("- "))


def quote(text: str) -> list[str]:
    """A text of any number of lines; nothing for an empty one."""
    return [f"> {line}" for line in escape(text).split("\n")] if text else []


def read_quote(lines: Iterable[str]) -> str:
    """What `quote` was given."""
    return unescape("\n".join(line[2:] for line in lines if line.startswith(">")))


def block(value: Any) -> list[str]:
    """A JSON value: what is short on one line, what is longer indented, so that differences show line by line."""
    text = "\n".join(_json_lines(value, ""))
    return ["```json", *_UNWRITABLE.sub(lambda found: f"\\u{ord(found.group()):04x}", text).split("\n"), "```"]


def _json_lines(value: Any, indent: str) -> list[str]:
    whole = json.dumps(value, ensure_ascii=False, sort_keys=True)
    if len(whole) <= ONE_LINE or not isinstance(value, Mapping | list | tuple):
        return [whole]
    if isinstance(value, Mapping):
        ends, inner = "{}", [(f"{json.dumps(str(key))}: ", value[key]) for key in sorted(value)]
    else:
        ends, inner = "[]", [("", one) for one in value]
    lines = [ends[0]]
    for place, (name, one) in enumerate(inner, start=1):
        first, *rest = _json_lines(one, indent + " ")
        lines += [f"{indent} {name}{first}", *rest]
        lines[-1] += "," if place < len(inner) else ""
    return [*lines, f"{indent}{ends[1]}"]


def read_block(lines: Sequence[str]) -> Any:
    """The value of the first JSON block, None without one. Raises ValueError if it is broken."""
    if "```json" not in lines:
        return None
    start = lines.index("```json") + 1
    end = lines.index("```", start)
    return json.loads("\n".join(lines[start:end]))


def sections(body: str) -> dict[str, list[str]]:
    """The lines under each `## ` heading, without the blank ones around them."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in body.split("\n"):
        if line.startswith("## "):
            lines = found.setdefault(line[3:].strip(), [])
        elif line:
            lines.append(line)
    return found
