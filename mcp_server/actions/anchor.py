"""Anchor: what the user marks as important stays (S0 "Anchoring", S1 "important").

Anchors are truth, so they stand in `anchors.yaml`, where a person can read and change them. An anchored item protects
the chunks that name it; an anchored chunk, file or passage protects itself.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from anyio.to_thread import run_sync

from mcp_server.actions import sessions
from mcp_server.core.anchors import Anchor, items_of, kind_of, read_anchors
from mcp_server.core.clarity.extraction import extract
from mcp_server.core.model import Caller
from mcp_server.core.pressure.chunks import LiveChunk, text_of
from mcp_server.errors import ContextManagerError, Invalid, NotFound
from mcp_server.memory import Memory
from mcp_server.store.changes import Change
from mcp_server.store.yaml_text import dump_line, load

FILE = "anchors.yaml"
HEADER = (
    "# What must not be forgotten: items, chunks, files, passages. `context-manager anchor|unanchor` edits this too.\n"
)
LONGEST = 500


@dataclass(frozen=True, slots=True)
class Anchored:
    """What an anchor call did. `changed` is False where it stood so already."""

    anchor: Anchor
    on: bool
    changed: bool
    note: str = ""

    @property
    def markdown(self) -> str:
        """The answer in one or two lines."""
        done = "anchored" if self.on else "no longer anchored"
        line = f"{self.anchor.kind} {self.anchor.item}: {done}{'' if self.changed else ' (it was so already)'}"
        return f"{line}\n{self.note}" if self.note else line


async def anchor(memory: Memory, item: str, on: bool, note: str | None, caller: Caller) -> Anchored:
    """Anchors an item, a chunk, a file or a passage, or takes the anchor off; on disk before this returns.

    Raises:
        Invalid: an empty or unreadable name.
        NotFound: a file, chunk or anchor that is not there; the nearest is named.
    """
    item = " ".join(item.split())
    if not item or len(item) > LONGEST or not item.isprintable():
        raise Invalid(f"an anchor needs 1 to {LONGEST} printable characters")
    kind = kind_of(item)
    if kind == "item":
        item = item.lower()
    named = Anchor(item, kind, note or "", f"{memory.clock():%Y-%m-%d}")
    if on:
        await _must_exist(memory, named, caller)
    async with memory.locks.files():
        changed = await run_sync(_changed, memory, named, on)
    if changed:
        memory.changes.publish(Change("file", FILE))
    return Anchored(named, on, changed)


def anchors(memory: Memory) -> list[Anchor]:
    """The anchors as they stand; a file that cannot be read holds none (`status` names it)."""
    return read_anchors(_document(memory, strict=False))[0]


def problems(memory: Memory) -> tuple[str, ...]:
    """What is wrong with `anchors.yaml`, for `status` and `doctor`."""
    try:
        return tuple(read_anchors(_document(memory, strict=True))[1])
    except ContextManagerError as error:
        return (str(error),)


async def anchored_ids(memory: Memory, session: str, chunks: Sequence[LiveChunk]) -> frozenset[str]:
    """The chunks that an anchor protects: by their id, by an item that they name, by the file or turn they are."""
    held = await run_sync(anchors, memory)
    if not held:
        return frozenset()
    turns = {turn.number: turn for turn in await sessions.session_turns(memory, session)}
    row = await sessions.require(memory, session)
    ids = {anchor.item for anchor in held if anchor.kind == "chunk"}
    places = {anchor.item for anchor in held if anchor.kind in ("file", "passage")}
    items = items_of(held)

    def protected(chunk: LiveChunk) -> bool:
        if chunk.id in ids or f"{row.path}#{chunk.turn}" in places or row.path in places or chunk.name in places:
            return True
        turn = turns.get(chunk.turn)
        text = text_of(turn, chunk.part) if turn and chunk.part <= len(turn.tool_calls) else chunk.name
        return bool(items) and _names(text, items)

    return await run_sync(lambda: frozenset(chunk.id for chunk in chunks if protected(chunk)))


def _names(text: str, items: Iterable[str]) -> bool:
    folded = text.lower()
    likely = [item for item in items if item.removeprefix("tool:") in folded]
    return bool(likely) and not extract(text).keys().isdisjoint(likely)


async def _must_exist(memory: Memory, named: Anchor, caller: Caller) -> None:
    """A file, a passage or a chunk must be there; a name may be one that nobody has said yet."""
    if named.kind in ("file", "passage"):
        path = named.item.partition("#")[0]
        await run_sync(memory.files.stat, path)
    elif named.kind == "chunk" and not await memory.live.knows(named.item):
        await run_sync(memory.cold.find, named.item)


def _changed(memory: Memory, named: Anchor, on: bool) -> bool:
    before = _text(memory)
    held, _ = read_anchors(_document(memory, strict=True))
    same = [one for one in held if one.item.lower() == named.item.lower()]
    if on == bool(same):
        if not on:
            close = difflib.get_close_matches(named.item, [one.item for one in held], n=1)
            near = f"; did you mean {close[0]!r}?" if close else ""
            raise NotFound(f"{named.item!r} is not anchored{near} (read {FILE})")
        return False
    left = [one for one in held if one not in same] + ([named] if on else [])
    memory.files.write_atomic(FILE, HEADER + "anchors:\n" + "".join(map(_line, left)), before or None)
    return True


def _line(held: Anchor) -> str:
    fields = [f"item: {dump_line(held.item)}", f"kind: {held.kind}"]
    fields += [f"note: {dump_line(held.note)}"] if held.note else []
    fields += [f"at: {dump_line(held.at)}"] if held.at else []
    return "  - " + "\n    ".join(fields) + "\n"


def _text(memory: Memory) -> str:
    return memory.files.read_text(FILE) if memory.files.exists(FILE) else ""


def _document(memory: Memory, *, strict: bool) -> dict[str, object]:
    try:
        return load(_text(memory), FILE)
    except ContextManagerError:
        if strict:
            raise
        return {}
