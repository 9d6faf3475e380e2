"""Anchors and unanchors items that the user marks as important.

Anchors are stored in `anchors.yaml`, which a person can read and edit. An anchored item protects the chunks that name
it. An anchored chunk, file or passage is itself protected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from anyio.to_thread import run_sync

from mcp_server.conversations import sessions
from mcp_server.errors import ContextManagerError, Invalid, NotFound, Refused
from mcp_server.knowledge.anchors import (
    Anchor,
    items_of,
    kind_of,
    names_one_of,
    read_anchors,
    with_entries,
    without_entries,
)
from mcp_server.memory import Memory
from mcp_server.relevance.chunks import LiveChunk, original_of
from mcp_server.storage.values import Change
from mcp_server.text.markdown import load
from mcp_server.text.prose import did_you_mean, item_id
from mcp_server.text.redaction import redact

FILE = "anchors.yaml"
LONGEST = 500
FOLDERS = ("knowledge", "topics", "archive", "raw", "checkpoints", "scratch", "tmp")
"""Folders of the workspace. A path that begins with one of them means a file, even if that file does not exist."""


@dataclass(frozen=True, slots=True)
class Anchored:
    """The result of an anchor call. `on`: the item is anchored now. `changed` is False if the call changed nothing."""

    anchor: Anchor
    on: bool
    changed: bool

    @property
    def markdown(self) -> str:
        """The answer in one line."""
        done = "anchored" if self.on else "no longer anchored"
        return f"{self.anchor.kind} {self.anchor.item}: {done}{'' if self.changed else ' (no change)'}"


async def anchor(memory: Memory, item: str, on: bool, note: str | None = None) -> Anchored:
    """Anchors an item, a chunk, a file or a passage, or removes the anchor. The change is on disk when this returns.

    Raises:
        Invalid: an empty or unreadable name.
        NotFound: no such file, chunk or anchor; the error names the nearest one.
        Refused: the text holds a secret, and the file is tracked by git.
    """
    item, note = _checked(item), _checked(note) if note and note.strip() else ""
    named = await _named(memory, item)
    named = replace(named, note=note, at=f"{memory.clock():%Y-%m-%d}")
    if on:
        await _must_exist(memory, named)
    async with memory.locks.files():
        changed = await run_sync(_changed, memory, named, on)
    if changed:
        memory.changes.publish(Change("file", FILE))
    return Anchored(named, on, changed)


def anchors(memory: Memory) -> list[Anchor]:
    """Returns the anchors; none if the file cannot be read (`status` says so)."""
    try:
        return list(_parsed(_text(memory))[0])
    except ContextManagerError:
        return []


def anchors_text(memory: Memory) -> str:
    """Returns the anchors as text for people, one on each line."""
    listed = [f"- {one.kind} {one.item}{f' ({one.note})' if one.note else ''}" for one in anchors(memory)]
    return "\n".join(listed) or "Nothing is anchored."


def problems(memory: Memory) -> tuple[str, ...]:
    """Returns the problems of `anchors.yaml`, for `status` and `doctor`."""
    try:
        return _parsed(_text(memory))[1]
    except ContextManagerError as error:
        return (str(error),)


async def anchored_ids(memory: Memory, session: str, chunks: Sequence[LiveChunk]) -> frozenset[str]:
    """Returns the ids of the chunks that an anchor protects: by their id, by an item that they name, or by their file
    or turn."""
    held = await run_sync(anchors, memory)
    if not held or not chunks:
        return frozenset()
    shown = await sessions.show_session(memory, session)
    turns = {turn.number: turn for turn in shown.turns}
    ids = {anchor.item for anchor in held if anchor.kind == "chunk"}
    places = {anchor.item for anchor in held if anchor.kind in ("file", "passage")}
    whole = not places.isdisjoint(shown.paths)
    items = items_of(held)

    def protected(chunk: LiveChunk) -> bool:
        if whole or chunk.id in ids or chunk.name in places:
            return True
        if any(f"{path}#{chunk.turn}" in places for path in shown.paths):
            return True
        said = original_of(chunk, turns.get(chunk.turn))
        return names_one_of(chunk.name if said is None else said, items)

    return await run_sync(lambda: frozenset(chunk.id for chunk in chunks if protected(chunk)))


def _checked(text: str) -> str:
    text = " ".join(text.split())
    if not text or len(text) > LONGEST or not text.isprintable():
        raise Invalid(f"an anchor and its note need 1 to {LONGEST} printable characters")
    if kinds := redact(text).kinds:
        raise Refused(f"this holds a secret ({', '.join(kinds)}), and {FILE} is a tracked file; leave it out")
    return text


async def _named(memory: Memory, item: str) -> Anchor:
    """Returns the anchor that `item` names. `SESSION#TURN` names a passage. A path outside of the workspace's folders
    is an item."""
    kind = kind_of(item)
    session, _, number = item.rpartition("#")
    if kind == "item" and number.isdigit() and await memory.state.session(session):
        for path in await run_sync(memory.transcripts.find, session):
            turns = (await run_sync(memory.transcripts.read, path)).turns
            if any(placed.turn.number == int(number) for placed in turns):
                return Anchor(f"{path}#{number}", "passage")
        raise NotFound(f"session {session} has no turn {number} (session show {session})")
    if kind == "file" and item.split("/")[0] not in FOLDERS and not await run_sync(memory.files.exists, item):
        kind = "item"
    return Anchor(item_id(item) if kind == "item" else item, kind)


async def _must_exist(memory: Memory, named: Anchor) -> None:
    """Raises NotFound if a file, passage or chunk does not exist. Items need not exist yet."""
    if named.kind in ("file", "passage"):
        path = named.item.rpartition("#")[0] if named.kind == "passage" else named.item
        await run_sync(memory.files.stat, path)
    elif named.kind == "chunk" and not await memory.live.knows(named.item):
        await run_sync(memory.cold.find, named.item)


def _changed(memory: Memory, named: Anchor, on: bool) -> bool:
    before = _text(memory)
    held = _parsed(before)[0]
    same = [one for one in held if one.item.lower() == named.item.lower()]
    if on == bool(same):
        if not on:
            near = did_you_mean(named.item, [one.item for one in held])
            raise NotFound(f"{named.item!r} is not anchored{near} (`anchor` without an item lists them)")
        return False
    after = with_entries(before, [named]) if on else without_entries(before, [one.place for one in same])
    _parsed(after)  # raises Invalid before an unreadable text is written
    exists = memory.files.exists(FILE)
    memory.files.write_atomic(FILE, after, before if exists else None, new=not exists)
    return True


def _text(memory: Memory) -> str:
    return memory.files.text_or_none(FILE) or ""


@lru_cache(maxsize=4)
def _parsed(text: str) -> tuple[tuple[Anchor, ...], tuple[str, ...]]:
    """Returns the anchors of a file's text, and its problems. Raises Invalid if the text is not valid YAML."""
    try:
        found, wrong = read_anchors(load(text, FILE)) if text else ([], [])
    except Invalid as error:
        raise Invalid(f"{error}; repair it by hand or restore it from git") from error
    return tuple(found), tuple(wrong)
