"""A checkpoint as markdown: one page for people (`page`), and all of it, read back exactly (`render`, `parse`).

    ---
    schema: context-manager/checkpoint
    id: ckp_4f0c…
    …
    ---

    # Checkpoint before compaction, 2026-02-16 18:45

    ## Thread
    > Began with: …           a text, line by line

    ## Decisions
    - Use SQLite | two        a row of fields, each on one line; empty fields at the end are left out

    ## State                  only in `render`
    ```json … ```             a value as JSON, for programs

Empty sections are left out. No line of a text can look like structure: each begins with `> ` or `- `, and JSON is on
one line. Invisible characters, and those that a file cannot contain, are written `\\u{HEX}` as in transcripts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal, cast, get_args

from mcp_server.errors import Invalid
from mcp_server.knowledge.anchors import Anchor, AnchorKind, kind_of
from mcp_server.model import GLOBAL, ToolCall
from mcp_server.relevance.chunks import Gauges
from mcp_server.text.forgotten import MARK
from mcp_server.text.markdown import minute_text, read_moment, split_front_matter, yaml_line
from mcp_server.text.transcript import escape, escape_line, unescape, unescape_line
from mcp_server.text.transcript_head import own_fields

SCHEMA = "context-manager/checkpoint"
VERSION = 1
LONGEST_PAGE = 80  # a page has fewer lines than this
Reason = Literal["asked", "compaction", "end", "full", "hook", "recovery"]
"""Why it was made: by tool or command, before compaction, at session end, because the client's window fills up, by a
client's hook, before a recovery."""

_TITLES: Mapping[Reason, str] = {
    "asked": "on demand",
    "compaction": "before compaction",
    "end": "at the end of the session",
    "full": "as the window fills up",
    "hook": "before the client compacts",
    "recovery": "before a recovery",
}


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """All that a session's state can be restored from, and a summary for people.

    `turn` is the number of the last turn that it covers. `replaced` are the decisions that are no longer in force.
    `live` and `cold` are chunk ids. `compile_inputs` are the fields of `CompileInputs` with references instead of
    texts, `compiled_sha256` is the hash of the compiled text. `knowledge_tree` names the tree (or copy) of the
    knowledge files, `left_out` the files that it lacks, each with the reason. `state` is the session's state by name;
    None if only the page is on this machine. Times have milliseconds.
    """

    id: str
    session: str
    at: datetime
    turn: int
    project: str = GLOBAL
    reason: Reason = "asked"
    note: str = ""
    thread: str = ""
    decisions: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    open_items: tuple[str, ...] = ()
    next_step: str = ""
    facts: tuple[str, ...] = ()
    last_tool_call: ToolCall | None = None
    files: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    anchors: tuple[Anchor, ...] = ()
    gauges: Gauges | None = None
    live: tuple[str, ...] = ()
    cold: tuple[str, ...] = ()
    compile_inputs: Mapping[str, Any] | None = None
    compiled_sha256: str | None = None
    knowledge_tree: str | None = None
    left_out: tuple[tuple[str, str], ...] = ()
    state: Mapping[str, Any] | None = None


def render(checkpoint: Checkpoint) -> str:
    """Returns all of the checkpoint as a text that `parse` reads."""
    gauges = checkpoint.gauges
    more = {
        "live_tokens": gauges.live_tokens if gauges else None,
        "limit_tokens": gauges.limit if gauges else None,
        "client_tokens": gauges.client_tokens if gauges else None,
        "compiled_sha256": checkpoint.compiled_sha256,
        "knowledge_tree": checkpoint.knowledge_tree,
    }
    return _written(checkpoint, more, [(one.title, one.write(getattr(checkpoint, one.field))) for one in _SECTIONS])


def page(checkpoint: Checkpoint) -> str:
    """Returns the checkpoint's page for people: under 80 lines. Decisions have the room that other sections leave."""
    texts = (_page(checkpoint, most) for most in range(len(checkpoint.decisions), -1, -1))
    return next(text for text in texts if text.count("\n") < LONGEST_PAGE or "## Decisions" not in text)


def _page(checkpoint: Checkpoint, decisions: int) -> str:
    sections = []
    for one in _SECTIONS:
        most = decisions if one.field == "decisions" else one.most
        value = getattr(checkpoint, one.field)
        if most and isinstance(value, tuple) and len(value) > most:
            lines = [f"({len(value) - most} older ones: `resume`)", *one.write(value[-most:])]
        else:
            lines = one.write(value)[:most] if most and value else []
        sections.append((one.title, lines))
    return _written(checkpoint, {}, sections)


def _written(checkpoint: Checkpoint, more: Mapping[str, object], sections: Iterable[tuple[str, list[str]]]) -> str:
    gauges, names = checkpoint.gauges, ("id", "session", "project", "at", "reason", "note", "turn")
    fields = {"schema": SCHEMA, "version": VERSION, **{name: getattr(checkpoint, name) for name in names}, **more}
    head = ["---", *map(": ".join, zip(fields, map(yaml_line, fields.values()), strict=True)), "---"]
    title = f"# Checkpoint {_TITLES[checkpoint.reason]}, {minute_text(checkpoint.at)} UTC"
    live = f", live context at {gauges.live:.0%} of {gauges.limit:,} tokens" if gauges else ""
    lines = [*head, "", title, "", f"After turn {checkpoint.turn}{live}."]
    for name, content in sections:
        lines += ["", f"## {name}", *content] if content else []
    return "\n".join(lines) + "\n"


def parse(text: str, where: str = "checkpoint") -> Checkpoint:
    """Returns the checkpoint that `render` wrote. Raises Invalid naming file and field."""
    found = split_front_matter(text.replace("\r\n", "\n"))
    fields = own_fields(found.raw)
    if not fields or fields.get("schema") != SCHEMA:
        raise Invalid(f"{where}: not a checkpoint: its front matter does not have `schema: {SCHEMA}`")
    if _number(fields, "version", where) > VERSION:
        raise Invalid(f"{where}: `version` is newer than {VERSION}; update context-manager to read it")
    at, reason = read_moment(fields.get("at")), fields.get("reason")
    if at is None:
        raise Invalid(f"{where}: `at` must be a time such as 2026-02-16T18:45:00Z, not {fields.get('at')!r}")
    if reason not in get_args(Reason):
        raise Invalid(f"{where}: `reason` must be one of {', '.join(get_args(Reason))}, not {reason!r}")
    body = _split(found.body)
    try:
        content: dict[str, Any] = {one.field: one.read(body.get(one.title, ())) for one in _SECTIONS}
    except ValueError as error:
        raise Invalid(f"{where}: a JSON block is broken ({error}); restore the file from git") from error
    for name in ("compiled_sha256", "knowledge_tree"):
        content[name] = None if fields.get(name) is None else str(fields[name])
    return Checkpoint(
        id=_text(fields, "id", where),
        session=_text(fields, "session", where),
        at=at,
        turn=_number(fields, "turn", where),
        project=str(fields.get("project") or ""),
        reason=cast(Reason, reason),
        note=str(fields.get("note") or ""),
        gauges=_gauges(fields, where),
        **content,
    )


def without_counts(checkpoint: Checkpoint) -> Checkpoint:
    """Returns the checkpoint without compile inputs and counts of the conversation's words, which a recovery counts
    again. For a conversation in which something was deleted."""
    state = {**(checkpoint.state or {}), "entries": {}}
    return replace(checkpoint, compile_inputs=None, compiled_sha256=None, state=state)


def without_texts(checkpoint: Checkpoint) -> Checkpoint:
    """Returns the checkpoint without everything that quotes the conversation, for an old version in git's history: its
    lines do not say which turns they quote."""
    empty: dict[str, Any] = dict.fromkeys(("decisions", "replaced", "rules", "open_items", "facts", "files"), ())
    return replace(without_counts(checkpoint), thread=MARK, note="", next_step="", last_tool_call=None, **empty)


def _gauges(fields: Mapping[str, object], where: str) -> Gauges | None:
    if fields.get("limit_tokens") is None:
        return None
    client = None if fields.get("client_tokens") is None else _number(fields, "client_tokens", where)
    return Gauges(_number(fields, "live_tokens", where), _number(fields, "limit_tokens", where), client)


def _number(fields: Mapping[str, object], name: str, where: str) -> int:
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise Invalid(f"{where}: `{name}` must be a number, 0 or more, not {value!r}")
    return value


def _text(fields: Mapping[str, object], name: str, where: str) -> str:
    value = fields.get(name)
    if value is None or isinstance(value, list | dict):
        raise Invalid(f"{where}: `{name}` must be text, not {value!r}")
    return str(value)


_UNWRITABLE = re.compile(r"[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")


def _split(body: str) -> dict[str, list[str]]:
    """Returns the lines under each `## ` heading that are not empty."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in body.split("\n"):
        if line.startswith("## "):
            lines = found.setdefault(line[3:].strip(), [])
        elif line:
            lines.append(line)
    return found


def _row(*fields: str) -> str:
    written = [escape_line(field, "|") for field in fields]
    while len(written) > 1 and not written[-1]:
        written.pop()
    return "- " + " | ".join(written)


def _read_row(line: str, count: int) -> list[str] | None:
    """Returns the `count` fields of a row, or None if the line is not such a row."""
    if line != "-" and not line.startswith("- "):
        return None
    fields = [unescape_line(field) for field in line[2:].split(" | ")]
    return fields + [""] * (count - len(fields)) if len(fields) <= count else None


def _bullets(texts: Iterable[str]) -> list[str]:
    return [f"- {escape_line(text)}" for text in texts]


def _read_bullets(lines: Iterable[str]) -> tuple[str, ...]:
    return tuple(unescape_line(line[2:]) for line in lines if line == "-" or line.startswith("- "))


def _quote(text: str) -> list[str]:
    return [f"> {line}" for line in escape(text).split("\n")] if text else []


def _read_quote(lines: Iterable[str]) -> str:
    return unescape("\n".join(line[2:] for line in lines if line.startswith(">")))


def _tool_call(call: ToolCall | None) -> list[str]:
    """Returns a row of name, summary and result, and the files indented below it."""
    if call is None:
        return []
    return [_row(call.name, call.summary, call.result), *(f"  {line}" for line in _bullets(call.files))]


def _read_tool_call(lines: Sequence[str]) -> ToolCall | None:
    fields = _read_row(lines[0], 3) if lines else None
    if fields is None:
        return None
    return ToolCall(fields[0], fields[1], fields[2], _read_bullets(line.removeprefix("  ") for line in lines[1:]))


def _read_anchors(lines: Sequence[str]) -> tuple[Anchor, ...]:
    found = []
    for line in lines:
        if fields := _read_row(line, 4):
            item, kind, at, note = fields
            known = cast(AnchorKind, kind) if kind in get_args(AnchorKind) else kind_of(item)
            found.append(Anchor(item, known, note, at))
    return tuple(found)


def _read_pairs(lines: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(row) for line in lines if (row := _read_row(line, 2)))


def _block(value: Any) -> list[str]:
    """Returns a JSON block on one line."""
    if value is None:
        return []
    text = json.dumps(value, ensure_ascii=False, sort_keys=True)
    return ["```json", _UNWRITABLE.sub(lambda found: f"\\u{ord(found.group()):04x}", text), "```"]


def _read_block(lines: Sequence[str]) -> Any:
    """Returns the value of the first JSON block, None without one. Raises ValueError if it is broken."""
    if "```json" not in lines:
        return None
    start = lines.index("```json") + 1
    end = lines.index("```", start)
    return json.loads("\n".join(lines[start:end]))


@dataclass(frozen=True, slots=True)
class _Section:
    """A section of the file: its heading, the field that it holds, how that is written and read, and how many entries
    of it the page shows; 0 for sections only for programs, and for decisions, which have the rest of the page."""

    title: str
    field: str
    write: Callable[[Any], list[str]]
    read: Callable[[Sequence[str]], Any]
    most: int = 0


_SECTIONS = (
    _Section("Thread", "thread", _quote, _read_quote, 2),
    _Section("Decisions", "decisions", _bullets, _read_bullets),
    _Section("Replaced decisions", "replaced", _bullets, _read_bullets, 2),
    _Section("Rules", "rules", _bullets, _read_bullets, 8),
    _Section("Open items", "open_items", _bullets, _read_bullets, 8),
    _Section("Next step", "next_step", _quote, _read_quote, 1),
    _Section("Key facts", "facts", _bullets, _read_bullets, 5),
    _Section("Last tool call", "last_tool_call", _tool_call, _read_tool_call, 1),
    _Section("Files touched", "files", _bullets, _read_bullets, 5),
    _Section("Topics", "topics", _bullets, _read_bullets),
    _Section("Anchors", "anchors", lambda some: [_row(a.item, a.kind, a.at, a.note) for a in some], _read_anchors, 100),
    _Section("Live chunks", "live", _bullets, _read_bullets),
    _Section("Cold chunks", "cold", _bullets, _read_bullets),
    _Section("Left out", "left_out", lambda rows: [_row(*row) for row in rows], _read_pairs),
    _Section("Compile inputs", "compile_inputs", _block, _read_block),
    _Section("State", "state", _block, _read_block),
)
"""In the order of the file."""
