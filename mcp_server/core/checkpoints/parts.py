"""What of a checkpoint's file is more than a list or a text: exchanges, tool call, anchors, fields of the front
matter."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import cast, get_args

from mcp_server.core.anchors import Anchor, AnchorKind, kind_of
from mcp_server.core.checkpoints import layout
from mcp_server.core.checkpoints.threads import Exchange
from mcp_server.core.model import ToolCall
from mcp_server.core.pressure.gauges import Gauges
from mcp_server.errors import Invalid

_TURN = re.compile(r"### Turn (\d+)")
_USER, _AGENT = "User:", "Agent:"


def exchanges(shown: Sequence[Exchange]) -> list[str]:
    """A heading with the turn's number for each, and what both said."""
    lines: list[str] = []
    for one in shown:
        lines += [f"### Turn {one.turn}", _USER, *layout.quote(one.asked)]
        lines += [_AGENT, *layout.quote(one.answered)] if one.answered else []
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
    return tuple(Exchange(turn, layout.read_quote(user), layout.read_quote(agent)) for turn, user, agent in found)


def tool_call(call: ToolCall) -> list[str]:
    """Name, summary and result on one line, its files indented below."""
    return [layout.row(call.name, call.summary, call.result), *(f"  {line}" for line in layout.bullets(call.files))]


def read_tool_call(lines: Sequence[str]) -> ToolCall | None:
    fields = layout.read_row(lines[0], 3) if lines else None
    if fields is None:
        return None
    files = layout.read_bullets(line.removeprefix("  ") for line in lines[1:])
    name, summary, result = fields
    return ToolCall(name, summary, result, files)


def anchors(kept: Sequence[Anchor]) -> list[str]:
    """Item, kind, time and note of each."""
    return [layout.row(anchor.item, anchor.kind, anchor.at, anchor.note) for anchor in kept]


def read_anchors(lines: Sequence[str]) -> tuple[Anchor, ...]:
    found = []
    for line in lines:
        if fields := layout.read_row(line, 4):
            item, kind, at, note = fields
            known = cast(AnchorKind, kind) if kind in get_args(AnchorKind) else kind_of(item)
            found.append(Anchor(item, known, note, at))
    return tuple(found)


def read_pairs(lines: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """The rows of two fields; other lines are passed over."""
    rows = (layout.read_row(line, 2) for line in lines)
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
