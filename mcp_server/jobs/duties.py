"""Commits in the maintaining process: it checks twice a minute, and commits once more when it ends."""

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
from mcp_server.history import committing as tagging
from mcp_server.knowledge import session_notes
from mcp_server.knowledge.reconstruct import RECONSTRUCTIONS
from mcp_server.llm import metered
from mcp_server.memory import Memory
from mcp_server.pressure import cold
from mcp_server.pressure.reword import reword_all
from mcp_server.relevance import clarity
from mcp_server.storage.local.changes import Change
from mcp_server.storage.local.checkpoint_files import FOLDER
from mcp_server.storage.local.git.merging import remove_leftovers
from mcp_server.topics import listing


async def keep_house(memory: Memory) -> None:
    """Runs one round. A second round right after it changes nothing."""
    await run_sync(memory.files.remove_leftovers)
    await sessions.ready(memory)
    await sync.take_in(memory)
    await closed_sessions.commit_pending(memory)
    await windows.forget_old(memory)
    await cold.expire(memory)
    await checkpoint.sweep(memory)
    await clarity.forget_old(memory)
    await session_notes.forget_old(memory)
    await listing.forget_old(memory)
    await metered.enter_embeddings(memory)
    await sessions.close_idle(memory)  # last: it raises if a transcript is broken


log_asking_llm = logging.getLogger(__name__)


async def keep_enriching(memory: Memory) -> None:
    """New checkpoints, until it is cancelled."""
    await _keep(memory, enrich_all, lambda one: one.kind == "file" and (one.path or FOLDER).startswith(FOLDER))


async def keep_rewording(memory: Memory) -> None:
    """Summaries of compactions, until it is cancelled."""
    await _keep(memory, reword_all, lambda one: one.kind == "session")


async def _keep(memory: Memory, ask: Callable[[Memory], Awaitable[int]], concerns: Callable[[Change], bool]) -> None:
    async with memory.changes.listen() as heard:
        while True:
            try:
                await ask(memory)
            except ContextManagerError as error:
                log_asking_llm.warning("asking the LLM failed: %s", error)
            while not concerns(await heard.receive()):
                pass


log = logging.getLogger(__name__)

LOOK_SECONDS = 30.0
LAST_SECONDS = 5.0
"""So long the last commit may keep a process that ends; what it does not manage is committed by the next one."""


async def keep_committed(memory: Memory) -> None:
    """Commits on the cadence, tags days that are over, drops old explorations, pushes where that is wanted, until it is
    cancelled; then commits what is left."""
    try:
        await run_sync(remove_leftovers, memory.files.local)
        while True:
            await look(memory)
            await anyio.sleep(LOOK_SECONDS)
    finally:
        with anyio.CancelScope(shield=True), anyio.move_on_after(LAST_SECONDS):
            await _attempt("the last commit", lambda: committing.commit_changes(memory, ask=False))


async def look(memory: Memory) -> None:
    """One look at everything that may be due; what fails is told, and tried again at the next one."""
    if not await run_sync(memory.git.available):
        return
    await _attempt("looking at a commit", lambda: _by_hand(memory))
    await _attempt("committing what changed", lambda: committing.commit_if_due(memory))
    await _attempt("tagging", lambda: tagging.tag_days(memory))
    for kind in (explore.EXPLORATIONS, RECONSTRUCTIONS):
        await _attempt(f"clearing away half a {kind.noun}", partial(kind.clear, memory))
    await _attempt("dropping old explorations", lambda: explore.drop_old(memory))
    await _attempt("pushing", lambda: _pushed(memory))


async def _by_hand(memory: Memory) -> None:
    """A commit that somebody else made may have mended what was left out, or let go what was staged."""
    if await run_sync(memory.git.hooks.take_mark) is not None:
        last = await committing.report(memory)
        if last.left_out or last.waiting or last.note:
            await committing.commit_changes(memory)


async def _pushed(memory: Memory) -> None:
    """Pushes; after a failure not again until there is a new commit, or the interval of commits is over."""
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
