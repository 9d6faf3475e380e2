"""Removes forgotten text from a file's bytes and keeps the file valid.

A transcript keeps its turns, their numbers and its lines; JSON stays JSON; a line of knowledge that has no other words
is removed. The same functions clean current files and blobs in git's history.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from mcp_server.errors import ContextManagerError
from mcp_server.knowledge.pages import reopened, without_emptied
from mcp_server.model import KnowledgeChange, TranscriptHead
from mcp_server.text import entries
from mcp_server.text.destinations import MEMORY
from mcp_server.text.entries import is_state
from mcp_server.text.forgotten import MARK, NAME, Forgotten, values
from mcp_server.text.markdown import load, split_front_matter
from mcp_server.text.transcript import (
    PlacedChange,
    PlacedTurn,
    Transcript,
    escape_line,
    parse,
    render_memory,
    render_turn,
    replace_head,
)
from mcp_server.text.transcript_head import slug_in, title_of
from mcp_server.topics.front_matter import with_field

TRANSCRIPTS = "raw/conversations/"
MANY_LINES = 2_000


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a file and what is done there. `line` is None if the file has no lines."""

    line: int | None
    what: str


@dataclass(frozen=True, slots=True)
class Cleaned:
    """A file without forgotten text. `data` is None if the file is deleted. Without places nothing was found.

    `stuck` says why the text was found but could not be removed. `path` is the file's new path, if its name was made
    from forgotten text.
    """

    data: bytes | None
    places: tuple[Place, ...] = ()
    stuck: str = ""
    path: str | None = None


def cleaned(path: str, data: bytes, request: Forgotten) -> Cleaned:
    """Returns the file's bytes after a request. The kind of file follows from `path`."""
    if request.covers(path):
        return Cleaned(None, (Place(None, "deleted"),))
    text, decoded = _text(data)
    if not decoded:
        found = request.find(text)
        return Cleaned(data, stuck="a binary file: parts of it cannot be removed") if found else Cleaned(data)
    fresh = _by_kind(path)(path, text, request)
    named = request.path(path)
    if fresh != text and _by_kind(path) is _transcript and named == path:
        named = _untitled(path, text, request)
    new_path = named if named != path else None
    if fresh == text:
        return Cleaned(data, path=new_path)
    return Cleaned(fresh.encode("utf-8", "surrogateescape"), _places(text, fresh), path=new_path)


def finds(data: bytes, request: Forgotten) -> bool:
    return request.holds(_text(data)[0])


def _text(data: bytes) -> tuple[str, bool]:
    """Returns the bytes as text, and whether they are text."""
    text = data.decode("utf-8", "surrogateescape")
    return text, "\0" not in text[:8000]


def _by_kind(path: str) -> Callable[[str, str, Forgotten], str]:
    name = path.rsplit("/", 1)[-1].lower()
    if TRANSCRIPTS in path and name.endswith(".md"):
        return _transcript
    if name.endswith((".md", ".markdown")):
        return _markdown
    if name.endswith(".json"):
        return _json
    if ".jsonl" in name or ".ndjson" in name:  # also rotated ones: turns.jsonl.1
        return _json_lines
    if name.endswith((".yaml", ".yml", ".toml", ".ini", ".cfg")):
        return lambda path, text, request: request.clean(text, NAME)  # the mark's brackets have a meaning there
    return lambda path, text, request: request.clean(text)


def _places(before: str, after: str) -> tuple[Place, ...]:
    """Returns the changed lines, numbered as in the old file."""
    old, new = before.split("\n"), after.split("\n")
    if len(old) == len(new):
        return tuple(
            Place(number, "marked") for number, (one, other) in enumerate(zip(old, new, strict=True), 1) if one != other
        )
    same = next((index for index, (one, other) in enumerate(zip(old, new, strict=False)) if one != other), len(new))
    found: list[Place] = []
    # `autojunk` ignores lines that occur often, such as blank ones: with them, long files take hours.
    changes = difflib.SequenceMatcher(None, old[same:], new[same:], autojunk=len(old) > MANY_LINES)
    for kind, first, last, to, end in changes.get_opcodes():
        if kind == "equal":
            continue
        marked = end - to if kind == "replace" else 0
        for index in range(first, last):
            found.append(Place(same + index + 1, "marked" if index - first < marked else "removed"))
    return tuple(found)


# ---------------------------------------------------------------- JSON


def _json(path: str, text: str, request: Forgotten) -> str:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return request.clean(text)
    fresh = _value(value, request)
    if fresh == value:
        return text
    indent = 2 if "\n" in text.strip() else None
    return json.dumps(fresh, ensure_ascii=False, indent=indent) + ("\n" if text.endswith("\n") else "")


def _json_lines(path: str, text: str, request: Forgotten) -> str:
    return "\n".join(_json(path, line, request) for line in text.split("\n"))


def _value(value: object, request: Forgotten) -> object:
    return values(value, request.clean, request.name)


# ---------------------------------------------------------------- markdown

_LEFT = re.compile(
    r"\[src:[^\]\n]*\](?:\(/raw/[^()\s]+\))?|<!--.*?-->|\b\d{4}-\d\d-\d\d\b|\b\d\d?:\d\d\b|\[[ xX]\]|"
    + re.escape(MARK),
    re.DOTALL,
)
_HEADING_OR_TABLE = re.compile(r"\s*(?:#{1,6}\s|\|)")
_BULLET = re.compile(r"[-*+] |\d+[.)] ")


def _markdown(path: str, text: str, request: Forgotten) -> str:
    start = split_front_matter(text)
    head = start.head
    fresh_head = _front_matter(head, start.raw, path, request) if start.raw else head
    body = _body(start.body, request)
    if body != start.body and path.startswith(("knowledge/", "archive/")):
        body = without_emptied(start.body, body)
    if body == start.body:
        return fresh_head + body
    fresh = fresh_head + body
    if path == MEMORY and start.raw and "line_count:" in start.raw:
        fresh = with_field(fresh, "line_count", fresh.count("\n"))
    return fresh


def _front_matter(head: str, raw: str, path: str, request: Forgotten) -> str:
    """Cleans front matter field by field, so that it stays valid YAML. Invalid front matter is cleaned as one name."""
    try:
        fields: Mapping[str, object] = load(raw, path)
    except ContextManagerError:
        return request.name(head)
    fresh = head
    for name, value in fields.items():
        clean = _value(value, request)
        if clean != value and _is_plain(value):
            fresh = with_field(fresh, name, clean)
    return request.name(fresh) if request.holds(fresh) else fresh


def _is_plain(value: object) -> bool:
    """Returns whether `yaml_line` can write a value without changing its type, unlike dates in lists."""
    if isinstance(value, Mapping):
        return all(_is_plain(inner) for inner in value.values())
    if isinstance(value, list):
        return all(_is_plain(inner) for inner in value)
    return value is None or isinstance(value, str | int | float | bool)


def _body(body: str, request: Forgotten) -> str:
    """Cleans the lines below the front matter. A line that has no other words is removed, with its bullet."""
    if request.sources and "[src:" in body:
        body = reopened(body, lambda source: request.derived(source.mark))
    lines = body.split("\n")
    drop: set[int] = set()
    if request.sources and "[src:" in body:
        for entry in entries.entries(body):
            if request.derived(entry.text):
                drop.update(range(entry.start - 1, entry.end))
        drop.update(index for index, line in enumerate(lines) if request.derived(line))
    fresh = request.clean(body).split("\n")
    fenced = False
    for index, (old, new) in enumerate(zip(lines, fresh, strict=True)):
        if new.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
        if old != new and is_state(old):  # it only repeats another line
            drop.add(index)
        elif old != new and not fenced and not _HEADING_OR_TABLE.match(new) and _nothing_left(new):
            following = fresh[index + 1] if index + 1 < len(fresh) else ""
            goes_on = _BULLET.match(new) and following.startswith(("  ", "\t")) and not _nothing_left(following)
            if not goes_on:
                drop.add(index)
    return "\n".join(line for index, line in enumerate(fresh) if index not in drop)


def _nothing_left(line: str) -> bool:
    return not re.search(r"[^\W_]", _LEFT.sub("", line))


# ---------------------------------------------------------------- transcripts


def _transcript(path: str, text: str, request: Forgotten) -> str:
    text = text.replace("\r\n", "\n")
    try:
        whole = parse(text, path)
    except ContextManagerError:
        return _markdown(path, text, request)
    data = text.encode("utf-8", "surrogateescape")[: whole.complete_bytes]  # the rest is an unfinished write
    intact = data.decode("utf-8", "surrogateescape")
    fresh = _blocks(intact, whole, request)
    head = clean_head(whole, request)
    if head != whole.head:
        fresh = _with_head(fresh, whole.head, head)
    if fresh == intact:
        # The unfinished write is kept, unless it contains the forgotten text.
        return intact if request.find(text[len(intact) :]) else text
    return fresh


def _untitled(path: str, text: str, request: Forgotten) -> str:
    """Returns a transcript's path without the words of a title that was forgotten."""
    try:
        whole = parse(text.replace("\r\n", "\n"), path)
    except ContextManagerError:
        return path
    slug = slug_in(path, whole.head.session_id)
    if slug == NAME or clean_head(whole, request).title == whole.head.title:
        return path
    return f"{path.removesuffix(f'{slug}.md')}{NAME}.md" if path.endswith(f"-{slug}.md") else path


def clean_head(whole: Transcript, request: Forgotten) -> TranscriptHead:
    """Returns the front matter and title without forgotten text. The session's id stays, because clients use it."""
    head = whole.head
    title = request.clean(head.title)
    for placed in whole.turns[:5]:  # a title is the beginning of the first message
        if head.title == title_of(placed.turn.content):
            title = title_of(request.turn(placed.turn, head.session_id).content)
            break
    changes = tuple(_change(change, request) for change in head.knowledge_changes)
    if request.session_hash(head.session_id) in request.sessions:
        title = MARK
        changes = tuple(replace(change, summary=MARK) for change in changes)
    topic = title if head.topic == head.title else request.clean(head.topic) if head.topic else head.topic
    extra = _value(dict(head.extra), request) if head.extra else head.extra
    return replace(
        head,
        title=title,
        topic=topic,
        project=request.name(head.project),
        model=request.clean(head.model) if head.model else head.model,
        channel=request.clean(head.channel) if head.channel else head.channel,
        tags=tuple(request.clean(tag) for tag in head.tags),
        knowledge_changes=changes,
        continues=request.path(head.continues) if head.continues else head.continues,
        extra=extra if isinstance(extra, Mapping) else head.extra,
    )


def _change(change: KnowledgeChange, request: Forgotten) -> KnowledgeChange:
    return replace(change, path=request.path(change.path), summary=request.clean(change.summary))


def _with_head(text: str, before: TranscriptHead, head: TranscriptHead) -> str:
    fresh = replace_head(text, head)
    if head.title == before.title:
        return fresh
    start = split_front_matter(fresh)
    lines = start.body.split("\n")
    for index, line in enumerate(lines):
        if line.startswith("# "):
            lines[index] = f"# {escape_line(head.title)}"
            break
        if line.startswith("## "):
            break
    return start.head + "\n".join(lines)


def _blocks(text: str, whole: Transcript, request: Forgotten) -> str:
    """Rewrites every block that contains forgotten text, within its own lines."""
    lines = text.split("\n")
    session = whole.head.session_id
    previous = whole.head.started
    placed: list[PlacedTurn | PlacedChange] = [*whole.turns, *whole.placed_changes]
    placed.sort(key=lambda block: block.start)
    forgotten = request.session_hash(session) in request.sessions
    for block in placed:
        if isinstance(block, PlacedTurn):
            at = block.turn.at
            turn = request.turn(block.turn, session)
            fresh = render_turn(turn, previous) if turn != block.turn else ""
        else:
            at = block.change.at
            change = _change(block.change, request)
            if forgotten and at <= request.at:
                change = replace(change, summary=MARK)
            fresh = render_memory(change, previous, block.after) if change != block.change else ""
        if fresh:
            _put(lines, block.start, block.end, fresh.removeprefix("\n").removesuffix("\n").split("\n"))
        previous = at
    # A person may have written between the front matter and the first block.
    start, first = split_front_matter(text).body_line - 1, placed[0].start - 1 if placed else len(lines)
    lines[start:first] = request.clean("\n".join(lines[start:first])).split("\n")
    return "\n".join(lines)


def _put(lines: list[str], start: int, end: int, fresh: list[str]) -> None:
    """Replaces a block's lines and keeps their number. A person's edit may have added lines, but never removed any."""
    room = end - start + 1
    while len(fresh) > room and not fresh[-1]:
        fresh.pop()
    if len(fresh) <= room:
        lines[start - 1 : end] = [*fresh, *[""] * (room - len(fresh))]
    else:
        lines[start - 1 : end] = [*fresh[: room - 1], " ".join(fresh[room - 1 :])]
