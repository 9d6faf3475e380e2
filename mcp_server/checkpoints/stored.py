"""Checkpoints on disk: reads, lists, rewrites and shows them. `checkpoint` makes one, `restore` restores one.

An LLM reviews the decisions and open items of a checkpoint that is already on disk (`enrich`). No turn waits for it,
and no lock is held during the call. Without an answer the checkpoint does not change.
"""

from __future__ import annotations

import logging
import re
from contextlib import suppress
from dataclasses import replace

from anyio.to_thread import run_sync

from mcp_server.checkpoints import enrichment
from mcp_server.checkpoints.checkpoint import BEGAN_WITH, ENRICHING, of_notes
from mcp_server.checkpoints.document import Checkpoint, page, without_counts
from mcp_server.checkpoints.enrichment import Enrichment
from mcp_server.conversations import sessions
from mcp_server.errors import Conflict, ContextManagerError, Invalid
from mcp_server.knowledge import notes
from mcp_server.llm import LlmUnavailable
from mcp_server.llm.metered import work_off
from mcp_server.memory import Memory
from mcp_server.storage.checkpoint_files import CheckpointFiles, Head
from mcp_server.storage.values import Change
from mcp_server.text.fencing import neutralise
from mcp_server.text.markdown import minute_text
from mcp_server.text.prose import clipped
from mcp_server.text.redaction import redact


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
    """Rewrites the words in a session's checkpoints from the transcript, after words were deleted there.

    Counts and compile inputs are removed: a recovery counts again. Call it under the transcript's lock, after the state
    was updated from the transcript.
    """
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
    """Returns the cold chunks that must not expire, because a checkpoint that was asked for names them.

    Automatic checkpoints do not count: they name all chunks that were ever cold, and going back to one recreates
    missing records.
    """
    files = CheckpointFiles(memory.files)
    found: set[str] = set()
    for head in files.heads():
        if head.reason != "asked":
            continue
        with suppress(ContextManagerError):  # a broken checkpoint names no chunks
            found.update(files.read(head.path).cold)
    return frozenset(found)


WHY: dict[str, str] = {
    "asked": "asked for",
    "compaction": "before compaction",
    "end": "session end",
    "hook": "the client compacts",
    "recovery": "before a recovery",
}

LISTED = 50
LONGEST_PART = 70
"""Characters of what a checkpoint is about, and of its next step, in a list."""

_NEXT = re.compile(r"^next(?: steps?)?:\s+", re.IGNORECASE)


async def listed_text(memory: Memory) -> str:
    """Returns the list for a resource."""
    heads = await listed(memory, limit=LISTED)
    if not heads:
        return "No checkpoints yet. The tool `checkpoint` makes one; compactions and ended sessions make them too."
    rows = [
        f"- {minute_text(head.at)} UTC: {described_text(head)}; session {head.session}; `{head.id}`" for head in heads
    ]
    older = len(await listed(memory)) - len(heads)
    rest = [f"- and {older:,} older ones"] if older else []
    return neutralise("\n".join(["# Checkpoints", "", *rows, *rest]))


def described_text(head: Head) -> str:
    """Returns what a checkpoint is about, its next step, and why it was made, on one line."""
    about = head.thread.partition("\n")[0].removeprefix(BEGAN_WITH) or f"session {head.session}"
    step = f"; next: {clipped(_NEXT.sub('', head.next_step), LONGEST_PART)}" if head.next_step else ""
    return f"{clipped(about, LONGEST_PART)}{step} ({why_text(head)})"


def shown_text(checkpoint: Checkpoint) -> str:
    """Returns a checkpoint's page."""
    return neutralise(page(checkpoint))


def reason_text(head: Head) -> str:
    """Returns the last turn and the reason of a checkpoint."""
    return f"after turn {head.turn}, {why_text(head)}"


def why_text(head: Head) -> str:
    """Returns the reason of a checkpoint, with its note."""
    return WHY.get(head.reason, head.reason) + (f": {head.note}" if head.note else "")


TEMPLATE = "enrich_checkpoint"

log = logging.getLogger(__name__)


async def enrich(memory: Memory, number: str) -> bool:
    """Asks the LLM to review a checkpoint and stores the result. Returns False if nothing changed: there is no LLM, or
    no usable answer. Raises NotFound if the checkpoint was deleted."""
    before = await read(memory, number)
    answer = await _asked(memory, before)
    if answer is None:
        return False
    found = await run_sync(enrichment.merged, before.decisions, before.open_items, answer)
    if (found.decisions, found.open_items) == (before.decisions, before.open_items):
        return False
    try:
        await rewrite(memory, before, replace(before, decisions=found.decisions, open_items=found.open_items))
    except Conflict:  # another program changed it: keep that
        return False
    await notes.learn(memory, before.session, before.turn, answer)
    return True


async def enrich_all(memory: Memory) -> int:
    """Reviews every waiting checkpoint once and returns how many changed."""
    return await work_off(memory, ENRICHING, lambda number, _: enrich(memory, number))


async def _asked(memory: Memory, checkpoint: Checkpoint) -> Enrichment | None:
    if memory.llm is None:
        return None
    turns = [
        turn for turn in await sessions.session_turns(memory, checkpoint.session) if turn.number <= checkpoint.turn
    ]

    entries, newest = (checkpoint.decisions, checkpoint.open_items), turns[-10 * enrichment.MOST_MESSAGES :]
    prompt = await run_sync(
        lambda: enrichment.request(memory.templates(TEMPLATE), *entries, newest, memory.tokens.count)
    )
    try:
        said = await memory.llm.complete(prompt, purpose="enrichment", max_tokens=enrichment.ANSWER_TOKENS)
    except LlmUnavailable as error:
        log.info("checkpoint %s stays as it is: %s", checkpoint.id, error)
        return None
    return enrichment.parse(redact(said).text)
