"""Makes the views of Clarity for commands, resources, the prompt and `status`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from mcp_server.conversations import sessions
from mcp_server.errors import Invalid, NotFound
from mcp_server.memory import Memory
from mcp_server.relevance import clarity
from mcp_server.relevance.clarity_scores import BlockItem, Verdict, block
from mcp_server.text.fencing import neutralise

View = Literal["status", "state", "scores", "stats", "config"]
TOP = 10
STATUS_HEAD, STATUS_ROW = 500, 50
"""Approximate tokens of Clarity in `status` without its items, and of each item."""

MOST_ROWS = 100
COLUMNS = ("item", "kind", "said", "referred to", "silent", "terms", "score", "", "why")


@dataclass(frozen=True, slots=True)
class ClarityView:
    """A view of a session's Clarity: `data` for programs, `markdown` for people and models. `session` may be ""."""

    view: View
    session: str
    data: Mapping[str, Any]
    markdown: str

    def as_dict(self) -> dict[str, Any]:
        return dict(self.data)


async def view(memory: Memory, name: str, session: str | None = None) -> ClarityView:
    """Returns a view of a session's Clarity; without a session, of the one with the latest message.

    Raises:
        Invalid: no such view.
        NotFound: no such session, or there is no session.
    """
    if name == "config":
        return _config(memory)
    if name not in get_args(View):
        raise Invalid(f"view {name!r} is not one of {', '.join(get_args(View))}")
    meant = await session_meant(memory, session)
    found = await clarity.judged(memory, meant)
    title, counts = _title(memory, meant), found.counts
    if name == "state":
        state = {"session": meant, **counts.as_dict(memory.clock())}
        return ClarityView("state", meant, state, json.dumps(state, ensure_ascii=False, indent=1))
    stats = clarity.stats_of(found)
    if name == "stats":
        return ClarityView("stats", meant, stats, "\n".join([title, "", *_bullets(stats)]))
    rows = [_row(one, counts.exchange) for one in found.verdicts]
    if name == "scores":
        data = {"session": meant, "exchange": counts.exchange, "scores": rows}
        return ClarityView("scores", meant, data, "\n".join([title, "", *_table(rows)]))
    return _status(memory, found, rows, stats)


async def session_meant(memory: Memory, session: str | None) -> str:
    """Returns the named session, else the open one with the latest message, else the last one."""
    await sessions.ready(memory)
    if session:
        return (await sessions.require(memory, session)).session
    for open_only in (True, False):
        for row in await sessions.list_sessions(memory, open_only=open_only, limit=1):
            return row.session
    raise NotFound("no conversation yet: observe opens one, import brings some in")


async def items_of(memory: Memory, session: str | None) -> list[str]:
    """Returns the ids of a session's items, highest score first; none if nothing was said yet."""
    try:
        found = await clarity.judged(memory, await session_meant(memory, session))
    except NotFound:
        return []
    return [one.item.id for one in found.verdicts]


async def for_status(memory: Memory, session: str | None, max_tokens: int | None) -> dict[str, Any]:
    """Returns the part of `status` about Clarity: statistics and the first items; with `max_tokens`, all items that
    fit, with their terms, and the settings."""
    enabled = memory.settings.clarity.enabled
    try:
        meant = await session_meant(memory, session)
    except NotFound:
        if session:
            raise
        return {"enabled": enabled, "session": "none yet"}
    found = await clarity.judged(memory, meant)
    stats, judged = clarity.stats_of(found), found.verdicts
    head = {"enabled": enabled, "strict_mode": memory.settings.clarity.strict_mode, **stats}
    if max_tokens is None:
        top = [{"item": neutralise(one.item.id), "score": round(one.score, 1), "state": one.word} for one in judged]
        return {**head, "top": top[:TOP]}
    most = max(TOP, (max_tokens - STATUS_HEAD) // STATUS_ROW)
    shown = [
        {
            "item": neutralise(one.item.id),
            "score": round(one.score, 1),
            "terms": " ".join(f"{name} {value:+.1f}" for name, value in one.terms.items() if value),
            "state": one.word,
            "why": one.why,
        }
        for one in judged[:most]
    ]
    left = f"{len(judged) - most} more with lower scores; max_tokens" if len(judged) > most else "none"
    return {**head, "scores": shown, "left_out": left, "config": clarity.config_of(memory.settings)}


def pruned_text(pruned: clarity.ItemsPruned) -> str:
    """Returns the changes of pruning, in words."""
    if not pruned.gone:
        return "Nothing to prune: every item that is shown has earned its place."
    what = "leave the block (their counts stay; a mention or an anchor brings them back)"
    lines = [f"{len(pruned.gone)} items {what if pruned.done else 'would ' + what}:", ""]
    return "\n".join([*lines, *(f"- {neutralise(one.item.id)} ({one.score:.0f}): {one.why}" for one in pruned.gone)])


def _title(memory: Memory, session: str) -> str:
    off = "" if memory.settings.clarity.enabled else " (switched off: clarity.enabled)"
    return f"# Clarity of {neutralise(session)}{off}"


def _status(
    memory: Memory, found: clarity.Judged, rows: Sequence[Mapping[str, Any]], stats: Mapping[str, Any]
) -> ClarityView:
    knobs, session, counts = memory.settings.clarity, found.session, found.counts
    kept = [BlockItem(one.item.id, one.score, one.item.anchored) for one in found.verdicts if one.keep]
    shown, _ = block(kept, memory.tokens.count, knobs.block_tokens)
    data = {
        "enabled": knobs.enabled,
        "strictMode": knobs.strict_mode,
        **stats,
        "block": shown,
        "top": list(rows[:TOP]),
        "state": counts.as_dict(memory.clock()),
    }
    lines = [
        _title(memory, session),
        "",
        f"Exchange {counts.exchange}; {stats['items']} items ({stats['anchored']} anchored): {stats['keep']} keep, "
        f"{stats['fading']} fading, {stats['gone']} gone; {stats['candidates']} words said once."
        + (" Strict mode." if knobs.strict_mode else ""),
        "",
        shown or "The block is empty.",
    ]
    return ClarityView("status", session, data, "\n".join(lines))


def _config(memory: Memory) -> ClarityView:
    config = clarity.config_of(memory.settings)
    return ClarityView("config", "", config, json.dumps(config, indent=1))


def _row(verdict: Verdict, exchange: int) -> dict[str, Any]:
    item = verdict.item
    return {
        "id": item.id,
        "category": item.category,
        "tier": "essential" if verdict.essential else "normal",
        "anchored": item.anchored,
        "mentions": item.mentions,
        "references": item.references,
        "silent": exchange - item.last_mention if item.mentions else None,
        "score": round(verdict.score, 6),
        "terms": {name: round(value, 6) for name, value in verdict.terms.items()},
        "state": verdict.word,
        "why": verdict.why,
    }


def cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns a row of the table of scores, by `COLUMNS`."""
    terms = " ".join(f"{name} {value:+.1f}" for name, value in row["terms"].items() if value)
    return (
        ("⚓ " if row["anchored"] else "") + row["id"],
        row["category"] + (", essential" if row["tier"] == "essential" else ""),
        str(row["mentions"]),
        str(row["references"]),
        "–" if row["silent"] is None else str(row["silent"]),
        terms,
        f"{row['score']:.1f}",
        row["state"],
        row["why"],
    )


def _table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    if not rows:
        return ["No items yet: a user's message names them."]
    lines = [f"| {' | '.join(COLUMNS)} |", "|" + "---|" * len(COLUMNS)]
    lines += [
        f"| {' | '.join(neutralise(cell).replace('|', '¦') for cell in cells(row))} |" for row in rows[:MOST_ROWS]
    ]
    left = len(rows) - MOST_ROWS
    return [
        *lines,
        *([f"\n… and {left} more, with lower scores (`status clarity --scores --json` has all)"] if left > 0 else []),
    ]


def _bullets(stats: Mapping[str, Any]) -> list[str]:
    lines = []
    for name, value in list(stats.items())[1:]:  # the title names the session
        if isinstance(value, Mapping):
            value = ", ".join(f"{inner} {kind}" for kind, inner in value.items())
        lines.append(f"- {name.replace('_', ' ')}: {neutralise(str(value))}")
    return lines
