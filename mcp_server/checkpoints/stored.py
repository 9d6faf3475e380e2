"""Reads, lists, rewrites and shows the checkpoints on disk, and gives a new or compacted window the state of one.

The module `checkpoint` makes checkpoints, `restore` restores them.

An LLM reviews the items of a checkpoint that is already on disk (`enrich`). No turn waits for it, and no lock is held
during the call. Without a usable answer the checkpoint does not change.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from anyio.to_thread import run_sync

from mcp_server.checkpoints.checkpoint import BEGAN_WITH, ENRICHING, make, of_notes
from mcp_server.checkpoints.document import Checkpoint, page, without_counts
from mcp_server.context.compile import CompileRequest, compile_context
from mcp_server.context.compiler import Compiled
from mcp_server.context.inputs import LeftOff, Recognized
from mcp_server.context.slots.checkpoint import is_news
from mcp_server.conversations import sessions
from mcp_server.conversations.projects import project_of
from mcp_server.conversations.sessions import last_visible_turn
from mcp_server.errors import Conflict, ContextManagerError, Invalid, NotFound
from mcp_server.knowledge import notes
from mcp_server.knowledge.derive import MESSAGES, review
from mcp_server.llm.metered import work_off
from mcp_server.memory import Memory
from mcp_server.model import Caller, Turn
from mcp_server.storage.checkpoint_files import PREFIX, CheckpointFiles, Head, folder_of
from mcp_server.storage.values import Change, SessionRow
from mcp_server.text.fencing import neutralise
from mcp_server.text.markdown import minute_text
from mcp_server.text.prose import clipped
from mcp_server.understanding.recognizer import is_real


async def read(memory: Memory, number: str) -> Checkpoint:
    """Returns the checkpoint of this id. Raises NotFound with the nearest id, Invalid if its file is broken."""
    files = CheckpointFiles(memory.files)
    return await run_sync(lambda: files.read(files.find(number.strip())))


async def listed(memory: Memory, session: str | None = None, limit: int | None = None) -> list[Head]:
    """Returns the checkpoints of a session, or of all sessions, newest first. `limit` is the largest number of
    checkpoints to return; if it is given, the subject and the next step of each are read, too."""
    files = CheckpointFiles(memory.files)
    heads = await run_sync(files.heads, session)
    return heads if limit is None else await run_sync(lambda: [files.described(head) for head in heads[:limit]])


async def latest(memory: Memory, session: str) -> Checkpoint | None:
    """Returns the last checkpoint of a session, or None if it has none."""
    files = CheckpointFiles(memory.files)

    def newest() -> Checkpoint | None:
        heads = files.heads(session)
        return files.read(heads[0].path) if heads else None

    return await run_sync(newest)


async def rewrite(memory: Memory, before: Checkpoint, after: Checkpoint) -> None:
    """Replaces `before` with `after`. Raises Conflict if the stored checkpoint no longer equals `before`."""
    async with memory.locks.files():
        path = await run_sync(CheckpointFiles(memory.files).write, after, before)
    memory.changes.publish(Change("file", path))


async def forget(memory: Memory, session: str) -> None:
    """Rewrites the words in a session's checkpoints from the transcript, after words were deleted there. Counts and
    compile inputs are removed: a recovery counts again. Call it under the transcript's lock, after the state was
    updated from the transcript."""
    files = CheckpointFiles(memory.files)
    turns = await sessions.session_turns(memory, session)

    def clean() -> None:
        recognizer = memory.recognizer()
        for head in files.heads(session):
            with suppress(Invalid):  # an unreadable one is cleaned as any other file
                before = files.read(head.path)
                seen = [turn for turn in turns if turn.number <= before.turn]
                said = notes.noted(seen, recognizer)
                files.replace(head.path, replace(without_counts(before), **of_notes(recognizer, said, seen)))

    async with memory.locks.files():
        await run_sync(clean)


def named_chunks(memory: Memory) -> frozenset[str]:
    """Returns the cold chunks that must not expire, because a checkpoint that was asked for names them. Automatic
    checkpoints do not count: they name all chunks that were ever cold, and going back to one recreates missing records.
    """
    files = CheckpointFiles(memory.files)
    found: set[str] = set()
    for head in files.heads():
        with suppress(ContextManagerError):  # a broken checkpoint names no chunks
            found.update(files.read(head.path).cold if head.reason == "asked" else ())
    return frozenset(found)


SURE = {"rule": 0.4, "open": 0.4}
"""Least probability with which an item counts as certain, by kind; 1 for the other kinds. With 1 for all kinds, fewer
rules and open items fit (`benchmarks continuity`, after a compaction: rules .78 instead of .82, open items .74 instead
of .80)."""


async def left_off(
    memory: Memory, row: SessionRow, turns: Sequence[Turn], in_window: int | None, until: int | None
) -> LeftOff | None:
    """Returns the state of a session before its window was compacted, from its last checkpoint.

    Sentences that only may state an item (`possible`) are left out. Returns None if the window was not compacted, if
    that is more than `EXCHANGES` exchanges ago, or without a checkpoint.

    `turns` are the session's newest turns, `in_window` is the number of the first turn in the client's window. Turns
    after number `until`, and checkpoints made after it, are ignored.
    """
    ours = row.delivery == "replace"  # then the server compacts the window, otherwise only the client does
    kept = [head for head in await listed(memory, row.session) if until is None or head.turn <= until]
    compacted = [head.turn + 1 for head in kept if ours and head.reason == "compaction"]
    emptied = max([*compacted, in_window or 0])
    if not kept or not emptied or not is_news(turns, emptied):
        return None
    last = of_checkpoint(await run_sync(CheckpointFiles(memory.files).read, kept[0].path))
    return replace(last, possible=())  # the hits for the message are a better use of the room


async def last_checkpoint(memory: Memory, session: str) -> LeftOff | None:
    """Returns the state of a session at its last checkpoint; None without a checkpoint."""
    kept = await latest(memory, session)
    return None if kept is None else of_checkpoint(kept)


def notes_in(checkpoint: Checkpoint) -> notes.Noted:
    """Returns the session's notes as of a checkpoint, without the texts of their context."""
    entries = (checkpoint.state or {}).get("entries", {})
    return notes.from_dict(entries.get(notes.NAMESPACE, {}).get(checkpoint.session))


def of_checkpoint(checkpoint: Checkpoint) -> LeftOff:
    """Returns the parts of a checkpoint that a context shows."""
    said = notes_in(checkpoint)
    same = ("id", "turn", "thread", "decisions", "open_items", "last_tool_call", "files", "rules", "next_step")
    return LeftOff(
        **{name: getattr(checkpoint, name) for name in same},
        path=f"{folder_of(checkpoint.session)}/{checkpoint.id}.md",
        at=minute_text(checkpoint.at),
        recognized=(
            *(
                Recognized(item.text, min(1.0, item.probability / SURE.get(item.kind, 1.0)), item.core, item.short)
                for item in (*said.items, *(said.recent or ()))
            ),
            *(Recognized(one.text, one.probability) for one in said.likely),
        ),
        possible=tuple(one.text for one in said.likely),
    )


NOTE = "before it was resumed elsewhere"


@dataclass(frozen=True, slots=True)
class Resumed:
    """The context of the new window. `earlier`: the checkpoint is of an earlier turn than the session's last one."""

    session: str
    title: str
    checkpoint: Checkpoint
    compiled: Compiled
    earlier: bool


async def resume(memory: Memory, what: str | None, caller: Caller, budget: int | None = None) -> Resumed:
    """Returns the context with which a conversation continues in an empty window. `what` is a session's id, or a
    checkpoint's id for an earlier state; without it, the last conversation of the caller's project is resumed. If the
    session has turns after its last checkpoint, makes a new one first. Raises NotFound if there is no such session or
    checkpoint, or no conversation in the project."""
    await sessions.ready(memory)
    checkpoint = await read(memory, what) if what is not None and what.startswith(PREFIX) else None
    session = checkpoint.session if checkpoint else what
    row = await sessions.require(memory, session) if session else await _last(memory, caller)
    last = await last_visible_turn(memory, row) or row.turns
    if checkpoint is None:
        known = await latest(memory, row.session)
        checkpoint = known if known and known.turn == last else await make(memory, row.session, "asked", NOTE)
    request = CompileRequest(session=row.session, budget=budget, resumed=of_checkpoint(checkpoint))
    compiled = await compile_context(memory, request, caller)
    await memory.state.put(sessions.RESUMED, row.session, row.turns)
    memory.changes.publish(Change("session", None, row.session))
    return Resumed(row.session, row.title, checkpoint, compiled, earlier=checkpoint.turn < last)


async def _last(memory: Memory, caller: Caller) -> SessionRow:
    project = await project_of(memory, caller)
    rows = [
        row
        for row in await memory.state.sessions()
        if row.project in (project.keys or {project.key}) and row.kind != "subagent" and row.session != caller.session
    ]
    if not rows:
        raise NotFound("no conversation to resume in this project; name one (`session list` shows them)")
    return max(rows, key=lambda row: row.last_arrival)


WHY: dict[str, str] = {
    "asked": "asked for",
    "compaction": "before compaction",
    "end": "session end",
    "full": "the window fills up",
    "hook": "the client compacts",
    "recovery": "before a recovery",
}

LISTED = 50
LONGEST_PART = 70  # characters of what a checkpoint is about, and of its next step, in a list
_NEXT = re.compile(r"^next(?: steps?)?:\s+", re.IGNORECASE)


async def listed_text(memory: Memory) -> str:
    """Returns the list for a resource."""
    heads = await listed(memory, limit=LISTED)
    if not heads:
        return "No checkpoints yet. The tool `checkpoint` makes one; compactions and ended sessions make them too."
    lines = ["# Checkpoints", ""]
    for head in heads:
        lines.append(f"- {minute_text(head.at)} UTC: {described_text(head)}; session {head.session}; `{head.id}`")
    if older := len(await listed(memory)) - len(heads):
        lines.append(f"- and {older:,} older ones")
    return neutralise("\n".join(lines))


def described_text(head: Head) -> str:
    """Returns the subject of a checkpoint, its next step, and why it was made, on one line."""
    about = head.thread.partition("\n")[0].removeprefix(BEGAN_WITH) or f"session {head.session}"
    step = f"; next: {clipped(_NEXT.sub('', head.next_step), LONGEST_PART)}" if head.next_step else ""
    return f"{clipped(about, LONGEST_PART)}{step} ({why_text(head)})"


def shown_text(checkpoint: Checkpoint) -> str:
    """Returns a checkpoint's page."""
    return neutralise(page(checkpoint))


def why_text(head: Head) -> str:
    """Returns the reason of a checkpoint, with its note."""
    return WHY.get(head.reason, head.reason) + (f": {head.note}" if head.note else "")


async def enrich(memory: Memory, number: str) -> bool:
    """Asks the LLM to review the items of a checkpoint's newest messages, and stores the result there and in the notes
    of the session. Returns False if nothing changed: there is no LLM, or no usable answer. Raises NotFound if the
    checkpoint was deleted."""
    before = await read(memory, number)
    said = notes_in(before)
    turns = [turn for turn in await sessions.session_turns(memory, before.session) if turn.number <= before.turn]
    newest = [turn for turn in turns if is_real(turn)][-MESSAGES:]
    recognizer = memory.recognizer()
    found, _, used = await review(memory, newest, await run_sync(notes.items, said, recognizer), before.id)
    if not used:
        return False
    kept = tuple(item for item in found.items if item not in found.settled)
    outcome = await notes.outcome_of(memory, replace(said, items=kept, recent=()))
    said = replace(said, items=kept, recent=(), estimates=outcome.estimates)
    after = replace(before, **await run_sync(of_notes, recognizer, said, turns))
    if after == before:
        return False
    try:
        await rewrite(memory, before, after)
    except Conflict:  # another program changed it: keep its version
        return False
    await notes.learn(memory, before.session, notes.Review(before.turn, outcome.decisions, outcome.open_items))
    return True


async def enrich_all(memory: Memory) -> int:
    """Reviews every waiting checkpoint once and returns how many changed."""
    return await work_off(memory, ENRICHING, lambda number, _: enrich(memory, number))
