"""The duties of the maintaining process: housekeeping, asking an LLM in the background, and commits.

`keep_house` runs once a minute: it restores lost state, reads transcripts that git brought, ends idle sessions, retries
failed commits, deletes leftovers of crashed writes, trees without a checkpoint and data of old sessions, and records
the costs of embeddings. Once a day it deletes expired cold records.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from functools import partial

import anyio
from anyio.to_thread import run_sync

from mcp_server.checkpoints import checkpoint
from mcp_server.checkpoints.enrich import enrich_all
from mcp_server.context import windows
from mcp_server.conversations import closed_sessions, sessions
from mcp_server.errors import ContextManagerError
from mcp_server.history import committing, explore, sync
from mcp_server.knowledge import notes
from mcp_server.knowledge.reconstruct import RECONSTRUCTIONS
from mcp_server.llm import metered
from mcp_server.memory import Memory
from mcp_server.pressure import cold
from mcp_server.pressure.reword import reword_all
from mcp_server.relevance import clarity
from mcp_server.storage.checkpoint_files import FOLDER
from mcp_server.storage.values import Change
from mcp_server.topics import listing

log = logging.getLogger(__name__)

LOOK_SECONDS = 30.0
LAST_SECONDS = 5.0
"""Time limit of the last commit when a process ends. The next process commits the rest."""


async def keep_house(memory: Memory) -> None:
    """Runs one round of housekeeping. It is idempotent: a second round right after it changes nothing."""
    await run_sync(memory.files.remove_leftovers)
    await sessions.ready(memory)
    await sync.take_in(memory)
    await closed_sessions.commit_pending(memory)
    await windows.forget_old(memory)
    await cold.expire(memory)
    await checkpoint.sweep(memory)
    await clarity.forget_old(memory)
    await notes.forget_old(memory)
    await listing.forget_old(memory)
    await metered.enter_embeddings(memory)
    await sessions.close_idle(memory)  # last: it raises if a transcript is broken


async def keep_enriching(memory: Memory) -> None:
    """Lets an LLM improve new checkpoints, until it is cancelled."""
    await _keep(memory, enrich_all, lambda one: one.kind == "file" and (one.path or FOLDER).startswith(FOLDER))


async def keep_rewording(memory: Memory) -> None:
    """Lets an LLM reword the summaries of compactions, until it is cancelled."""
    await _keep(memory, reword_all, lambda one: one.kind == "session")


async def _keep(memory: Memory, ask: Callable[[Memory], Awaitable[int]], concerns: Callable[[Change], bool]) -> None:
    async with memory.changes.listen() as changes:
        while True:
            try:
                await ask(memory)
            except ContextManagerError as error:
                log.warning("asking the LLM failed: %s", error)
            while not concerns(await changes.receive()):
                pass


async def keep_committed(memory: Memory) -> None:
    """Calls `look` twice a minute until it is cancelled, then commits the remaining changes."""
    try:
        await run_sync(memory.git.merging.remove_leftovers)
        while True:
            await look(memory)
            await anyio.sleep(LOOK_SECONDS)
    finally:
        with anyio.CancelScope(shield=True), anyio.move_on_after(LAST_SECONDS):
            await _attempt("the last commit", lambda: committing.commit_changes(memory, ask=False))


async def look(memory: Memory) -> None:
    """Commits if it is due, tags past days, deletes old explorations, and pushes if the settings say so.

    Logs a failed step; the next call tries it again.
    """
    if not await run_sync(memory.git.available):
        return
    await _attempt("looking at a commit", lambda: _after_foreign_commit(memory))
    await _attempt("committing what changed", lambda: committing.commit_if_due(memory))
    await _attempt("tagging", lambda: committing.tag_days(memory))
    for kind in (explore.EXPLORATIONS, RECONSTRUCTIONS):
        await _attempt(f"clearing away half a {kind.noun}", partial(kind.clear, memory))
    await _attempt("dropping old explorations", lambda: explore.drop_old(memory))
    await _attempt("pushing", lambda: _pushed(memory))


async def _after_foreign_commit(memory: Memory) -> None:
    """Commits again if another program has committed: that may have solved what kept files out of our last commit."""
    if await run_sync(memory.git.hooks.take_mark) is not None:
        last = await committing.report(memory)
        if last.left_out or last.waiting or last.note:
            await committing.commit_changes(memory)


async def _pushed(memory: Memory) -> None:
    """Pushes. After a failure it waits for a new commit, or for the interval of commits."""
    if not memory.settings.git.auto_push:
        return
    head, now = await run_sync(memory.git.head), memory.clock()
    last = await memory.state.get(committing.STATE, committing.PUSH)
    interval = timedelta(minutes=memory.settings.lifecycle.commit_interval_minutes)
    if last and last["said"] and last["head"] == head and now - datetime.fromisoformat(last["at"]) < interval:
        return
    try:
        said = await sync.push_if_wanted(memory)
    except ContextManagerError as error:
        said = str(error)
    if said or (last and last["said"]):
        await memory.state.put(committing.STATE, committing.PUSH, {"said": said, "head": head, "at": now.isoformat()})
    if said:
        log.warning("%s", said)


async def _attempt(what: str, act: Callable[[], Awaitable[object]]) -> None:
    try:
        await act()
    except ContextManagerError as error:  # a locked state, no network, a full disk: the next look may go better
        log.warning("%s failed, it is tried again: %s", what, error)
