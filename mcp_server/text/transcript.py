"""The transcript format: one conversation as markdown that people can read and that is parsed back exactly.

    ---
    session_id: ses_a1b2c3d4
    …
    ---

    # Autopoiesis restructuring

    ## 18:45 — user
    <!-- {"turn":1,"at":"2026-02-16T18:45:03.120Z","source":"tool","bytes":50} -->
    Read all open issues and give me a summary.

    ## 18:52 — agent [memory]
    <!-- {"after":2,"at":"2026-02-16T18:52:10.004Z","bytes":72} -->
    > [knowledge:appended] knowledge/memory/MEMORY.md — added the plan

A file is a head (front matter and title) and blocks. A block begins with the empty line before its header, so that an
append is one write and the file ends with one line feed. `bytes` is the length of the block after the comment line; a
block that is shorter was cut by a crash. `complete_bytes` says where the intact part of the file ends.

Rendering is injective: in text, control characters (except tab and line feed) and lone surrogates are written
`\\u{HEX}`, a literal `\\u{` as `\\u{5c}u{`, and a line that would look like a header, a tool line or a comment gets one
more backslash.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, cast

from mcp_server.errors import Invalid
from mcp_server.model import KnowledgeChange, Role, ToolCall, TranscriptHead, Turn
from mcp_server.text.markdown import json_line, load, moment_text, read_moment, split_front_matter, to_utc
from mcp_server.text.transcript_head import head_from_fields, own_fields, render_front_matter

STEP = 1 << 16
"""Characters that are encoded at once."""


def size_in_bytes(text: str, start: int, end: int) -> int:
    """Returns the size of text[start:end] in bytes."""
    if text.isascii():
        return max(0, end - start)
    return sum(len(_encoded(text, at, min(at + STEP, end))) for at in range(start, end, STEP))


def after_bytes(text: str, start: int, size: int) -> int | None:
    """Returns the position `size` bytes after `start`; None if the text is shorter. A character in which the bytes end
    is included."""
    if text.isascii():
        return start + size if start + size <= len(text) else None
    for at in range(start, len(text), STEP):
        piece = _encoded(text, at, at + STEP)
        if len(piece) >= size:
            return at + len(piece[:size].decode("utf-8", "surrogateescape"))
        size -= len(piece)
    return None if size else len(text)


def _encoded(text: str, start: int, end: int) -> bytes:
    return text[start:end].encode("utf-8", "surrogateescape")


def escape(text: str) -> str:
    """Returns the text in the form for the body of a block."""
    return _LOOKS_LIKE_OURS.sub(r"\\", _UNWRITABLE.sub(_as_code, text))


def unescape(text: str) -> str:
    """Returns the original of an escaped text."""
    if "\\" not in text:
        return text
    return _CODE.sub(_from_code, _ESCAPED_LINE.sub("", text))


_UNWRITABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]|\\(?=u\{)")
_LOOKS_LIKE_OURS = re.compile(r"^(?=\\*(?:## |> \[|<!--))", re.MULTILINE)
_ESCAPED_LINE = re.compile(r"^\\(?=\\*(?:## |> \[|<!--))", re.MULTILINE)
_CODE = re.compile(r"\\u\{([0-9a-f]{1,6})\}")


def _as_code(match: re.Match[str]) -> str:
    return f"\\u{{{ord(match.group()):x}}}"


def _from_code(match: re.Match[str]) -> str:
    value = int(match.group(1), 16)
    return chr(value) if value <= 0x10FFFF else match.group()


def escape_line(text: str, also: str = "") -> str:
    """Returns the text on one line, without the characters of `also`."""
    text = _UNWRITABLE.sub(_as_code, text)
    for character in "\n" + also:
        text = text.replace(character, f"\\u{{{ord(character):x}}}")
    return text


def unescape_line(text: str) -> str:
    """Returns the original of an escaped line."""
    return _CODE.sub(_from_code, text)


LARGEST = 2**53
"""Limit of the numbers in a comment line: JSON and SQLite can store smaller ones."""


@dataclass(frozen=True, slots=True)
class PlacedTurn:
    """A turn and its place: lines `start` (its header) to `end`, its content from line `content_line` on.

    Escaping adds no lines: line n of `turn.content`, counted from 0, is line `content_line + n` of the file.
    """

    turn: Turn
    start: int
    end: int
    content_line: int


@dataclass(frozen=True, slots=True)
class PlacedChange:
    """A memory operation, the number of the turn before it (0 for none), and its lines."""

    change: KnowledgeChange
    after: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Tail:
    """The blocks in a part of a transcript, and how many of its bytes are intact.

    `next_line` is the number of the line after the last intact block, `last_at` the time of that block (None without
    one).
    """

    turns: tuple[PlacedTurn, ...]
    placed_changes: tuple[PlacedChange, ...]
    complete_bytes: int
    next_line: int
    last_at: datetime | None


@dataclass(frozen=True, slots=True)
class Transcript(Tail):
    """A whole transcript. Bytes after `complete_bytes` are the rest of an append that was never acknowledged.

    From `parse`, `head.slug` is empty: only the file's name has it.
    """

    head: TranscriptHead

    @property
    def changes(self) -> tuple[KnowledgeChange, ...]:
        """Returns the memory operations without their places."""
        return tuple(placed.change for placed in self.placed_changes)


# ---------------------------------------------------------------- writing


def render_head(head: TranscriptHead) -> str:
    """Returns the beginning of a transcript: front matter, each field on one line, and the title."""
    return f"{render_front_matter(head)}\n# {escape_line(head.title)}\n"


def replace_head(text: str, head: TranscriptHead) -> str:
    """Returns `text` with the fields of `head`. The title and all lines of the body stay where they are."""
    found = split_front_matter(text)
    if found.body_line == 1:
        raise Invalid("the transcript has no front matter between `---` lines at its beginning")
    fresh = render_front_matter(head)
    missing = found.body_line - 1 - fresh.count("\n")
    if missing > 0:  # a person edited the head, and it has more lines
        fresh = fresh.removesuffix("---\n") + "#\n" * missing + "---\n"
    return fresh + found.body


def render_turn(turn: Turn, previous_at: datetime | None) -> str:
    """Returns the block of a turn. `previous_at` is the time of the block before it, or the start of the conversation.

    The header has the date if it differs from that of `previous_at`. Times keep milliseconds.
    """
    name = "" if turn.name is None else f" ({escape_line(turn.name)})"
    lines = [_tool_line(call) for call in turn.tool_calls]
    lines += [f"> [attachment:{escape_line(path, ']')}]\n" for path in turn.attachments]
    if lines and turn.content:
        lines.append("\n")
    if turn.content:
        lines.append(f"{escape(turn.content)}\n")
    meta: dict[str, object] = {"turn": turn.number}
    if turn.turn_id is not None:
        meta["turn_id"] = turn.turn_id
    at = to_utc(turn.at)
    meta["at"] = moment_text(at)
    meta["source"] = turn.source
    if turn.important:
        meta["important"] = True
    if turn.context_tokens is not None:
        meta["context_tokens"] = turn.context_tokens
    if any(call.files for call in turn.tool_calls):
        meta["tools"] = [[call.name, list(call.files)] for call in turn.tool_calls]
    if turn.redacted:
        meta["redacted"] = list(turn.redacted)
    return _block(f"{turn.role}{name}", at, previous_at, meta, "".join(lines))


def render_memory(change: KnowledgeChange, previous_at: datetime | None, turn_number: int) -> str:
    """Returns the block of a memory operation that was made after turn `turn_number`."""
    path = escape_line(change.path, "—")
    body = f"> [knowledge:{escape_line(change.action, ']')}] {path} — {escape_line(change.summary)}\n"
    at = to_utc(change.at)
    return _block("agent [memory]", at, previous_at, {"after": turn_number, "at": moment_text(at)}, body)


def _tool_line(call: ToolCall) -> str:
    line = f"> [tool:{escape_line(call.name, ']')}]"
    if call.summary or call.result:
        line += f" {escape_line(call.summary, '→')}"
    if call.result:
        line += f" → {escape_line(call.result)}"
    return line + "\n"


def _block(who: str, at: datetime, previous_at: datetime | None, meta: dict[str, object], body: str) -> str:
    meta["bytes"] = size_in_bytes(body, 0, len(body))
    day = "" if previous_at and at.date() == to_utc(previous_at).date() else f"{at.date().isoformat()} "
    return f"\n## {day}{at:%H:%M} — {who}\n<!-- {json_line(meta)} -->\n{body}"


# ---------------------------------------------------------------- reading


def parse(text: str, where: str = "transcript") -> Transcript:
    """Returns the transcript in `text`, without the rest of an append that a crash interrupted.

    `text` is the file's bytes decoded as UTF-8 with `surrogateescape`, so that a cut character is recognized. Raises
    Invalid naming file and field.
    """
    found = split_front_matter(text)
    raw, body, body_line = found.raw, len(found.head), found.body_line
    del found  # it holds a copy of the body, which may have many megabytes
    if body_line == 1:
        raise Invalid(f"{where}: line 1: a transcript begins with front matter between two `---` lines")
    start = _next_block(text, body)
    title = re.compile(r"^# ?(.*)$", re.MULTILINE).search(text, body, start)
    if start == len(text) and title and text[title.end() + 1 : title.end() + 5] in _TORN_HEADERS:
        start = title.end() + 1  # the first append was cut short
    fields = own_fields(raw)
    if fields is None:
        fields = load(raw, where)
    head = head_from_fields(fields, where, unescape_line(title.group(1).rstrip("\r")) if title else "")
    tail = parse_tail(text, body_line + text.count("\n", body, start), 0, head.started, start)
    complete = size_in_bytes(text, 0, start) + tail.complete_bytes
    return Transcript(tail.turns, tail.placed_changes, complete, tail.next_line, tail.last_at, head)


def parse_tail(text: str, first_line: int, last_number: int, last_at: datetime, start: int = 0) -> Tail:
    """Returns the blocks of a transcript from `start` on, which is the empty line before a header.

    `first_line` is the number of that empty line, `last_number` and `last_at` those of the block before it. Sizes count
    from `start`. Only the contents of turns are copied: a text may have many megabytes.
    """
    if text.find("\r\n", start) >= 0:  # git or an editor has changed the line ends; ours are \n
        tail = parse_tail(text[start:].replace("\r\n", "\n"), first_line, last_number, last_at)
        size = size_in_bytes(text, start, len(text))
        return Tail(tail.turns, tail.placed_changes, size, tail.next_line, tail.last_at)
    turns: list[PlacedTurn] = []
    changes: list[PlacedChange] = []
    line = first_line
    position = _next_block(text, start)
    complete = start if text[start : start + 4] in _TORN_HEADERS else position
    line += text.count("\n", start, complete)
    while position < len(text):
        following = _next_block(text, position + 4)
        block = _read_block(text, position, following, line + 1, last_number, last_at)
        if block is None:
            break
        placed, last_at, complete = block
        if isinstance(placed, PlacedTurn):
            turns.append(placed)
            last_number = placed.turn.number
        else:
            changes.append(placed)
        line += text.count("\n", position, complete)
        position = following
    size = size_in_bytes(text, start, complete)
    return Tail(tuple(turns), tuple(changes), size, line, last_at if turns or changes else None)


_HEADER = re.compile(
    r"## (?:(\d{4}-\d\d-\d\d) )?([0-2]\d):([0-5]\d) — (user|agent|system)(?: \((.*)\))?( \[memory\])?", re.DOTALL
)
_TORN_HEADERS = ("\n", "\n#", "\n##")  # the part of a block that a crash may leave
_TOOL = re.compile(r"> \[tool:([^\]]*)\](?: (.*))?", re.DOTALL)
_ATTACHMENT = re.compile(r"> \[attachment:([^\]]*)\]", re.DOTALL)
_KNOWLEDGE = re.compile(r"> \[knowledge:([^\]]*)\] (.*?) — (.*)", re.DOTALL)


def _next_block(text: str, position: int) -> int:
    """Returns the position of the next block (the line feed of its empty line), or the end of the text."""
    while True:
        position = text.find("\n## ", position)
        if position < 0:
            return len(text)
        end = text.find("\n", position + 4)
        # A line at the end of the file may be a header that a crash cut short; any other line must be a whole header.
        if end < 0 or _HEADER.fullmatch(text, position + 1, end - 1 if text[end - 1] == "\r" else end):
            return position
        position = end


def _read_block(
    text: str, position: int, end: int, line: int, last_number: int, last_at: datetime
) -> tuple[PlacedTurn | PlacedChange, datetime, int] | None:
    """Returns the block in text[position:end], its time, and its end; None if a crash cut it."""
    last = end == len(text)
    header_end = text.find("\n", position + 4)
    if header_end < 0:
        return None
    header = _HEADER.fullmatch(text, position + 1, header_end)
    assert header is not None  # _next_block has checked it
    body_at = header_end + 1
    meta: dict[str, Any] = {}
    if text.startswith("<!-- {", body_at):
        meta_end = text.find("\n", body_at)
        if meta_end < 0:
            return None
        meta = _read_meta(text[body_at + 5 : meta_end - 4])
        body_at = meta_end + 1
    elif last and "<!-- {".startswith(text[body_at:]):
        return None
    size = _number(meta.get("bytes"))
    if last and size is not None:
        intact = after_bytes(text, body_at, size)
        if intact is None:
            return None
        if text.find("\0", body_at, intact) >= 0:  # a power failure left zeros in place of the bytes
            return None
        if text[intact : intact + 4] in _TORN_HEADERS or text.find("\0", intact) >= 0:
            end = intact
    at = read_moment(meta.get("at")) or _guess_moment(header, last_at)
    first = line + text.count("\n", position + 1, body_at)
    last_line = max(line, first + text.count("\n", body_at, end) - 1)
    if header.group(6):
        after = _number(meta.get("after"))
        change = _read_change(text[body_at:end], at)
        return PlacedChange(change, last_number if after is None else after, line, last_line), at, end
    calls, attachments, content, skipped = _read_body(text, body_at, end, meta)
    name = header.group(5)
    turn = Turn(
        number=_number(meta.get("turn")) or last_number + 1,
        role=cast(Role, header.group(4)),
        content=content if meta else content.strip("\n"),
        at=at,
        turn_id=_text(meta.get("turn_id")),
        name=None if name is None else unescape_line(name),
        source=_text(meta.get("source")) or "tool",
        important=meta.get("important") is True,
        context_tokens=_number(meta.get("context_tokens")),
        tool_calls=calls,
        attachments=attachments,
        redacted=_texts(meta.get("redacted")),
    )
    return PlacedTurn(turn, line, last_line, first + skipped), at, end


def _read_body(
    text: str, start: int, end: int, meta: Mapping[str, Any]
) -> tuple[tuple[ToolCall, ...], tuple[str, ...], str, int]:
    """Returns tool calls, attachments, content, and the number of lines before the content, of the body
    text[start:end]."""
    tools = meta.get("tools")
    listed = tools if isinstance(tools, list) else []
    files = [_texts(entry[1]) if isinstance(entry, list) and len(entry) == 2 else () for entry in listed]
    calls: list[ToolCall] = []
    attachments: list[str] = []
    skipped, position = 0, start
    while text.startswith("> [", position, end):
        line_end = text.find("\n", position, end)
        line_end = end if line_end < 0 else line_end
        if tool := _TOOL.fullmatch(text, position, line_end):
            summary, _, result = (tool.group(2) or "").partition(" → ")
            of_call = files[len(calls)] if len(calls) < len(files) else ()
            calls.append(ToolCall(unescape_line(tool.group(1)), unescape_line(summary), unescape_line(result), of_call))
        elif attachment := _ATTACHMENT.fullmatch(text, position, line_end):
            attachments.append(unescape_line(attachment.group(1)))
        else:
            break
        skipped += 1
        position = min(line_end + 1, end)
    if skipped and text.startswith("\n", position, end):
        position += 1
        skipped += 1
    last = end - 1 if text.endswith("\n", position, end) else end
    return tuple(calls), tuple(attachments), unescape(text[position:last]), skipped


def _read_change(body: str, at: datetime) -> KnowledgeChange:
    found = _KNOWLEDGE.match(body.split("\n", 1)[0])
    if found is None:
        return KnowledgeChange("", "", unescape(body.strip()), at)
    action, path, summary = (unescape_line(part) for part in found.groups())
    return KnowledgeChange(path, action, summary, at)


def _read_meta(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _guess_moment(header: re.Match[str], last_at: datetime) -> datetime:
    """Returns the time of a block that a person wrote, from its header alone."""
    day, hour, minute = header.group(1, 2, 3)
    try:
        on = date.fromisoformat(day) if day else to_utc(last_at).date()
        return datetime(on.year, on.month, on.day, tzinfo=UTC) + timedelta(hours=int(hour), minutes=int(minute))
    except (ValueError, OverflowError):
        return last_at


def _number(value: object) -> int | None:
    """Returns a number that a database can store; None for any other value."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < LARGEST else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _texts(value: object) -> tuple[str, ...]:
    return tuple(entry for entry in value if isinstance(entry, str)) if isinstance(value, list | tuple) else ()
