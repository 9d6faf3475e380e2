"""The background jobs of the maintaining process: the functions `keep_…`. Each runs until it is cancelled."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from time import perf_counter

import anyio
from anyio.to_thread import run_sync

from mcp_server.checkpoints import checkpoint, restore
from mcp_server.checkpoints.stored import enrich_all
from mcp_server.context import briefs, windows
from mcp_server.conversations import closed_sessions, sessions
from mcp_server.errors import ContextManagerError
from mcp_server.forgetting import forget
from mcp_server.history import committing, explore, sync
from mcp_server.jobs import worker
from mcp_server.jobs.maintainer import attempt
from mcp_server.knowledge import extract, notes
from mcp_server.knowledge.extract import extract_pending, queue_outdated, waiting_conversations
from mcp_server.knowledge.reconstruct import RECONSTRUCTIONS
from mcp_server.knowledge.writing import ITEM_PAGES
from mcp_server.llm import metered
from mcp_server.memory import Memory
from mcp_server.pressure import cold
from mcp_server.pressure.reword import reword_all
from mcp_server.relevance import clarity
from mcp_server.storage import topics as activations
from mcp_server.storage.checkpoint_files import FOLDER
from mcp_server.storage.values import Change, Listener
from mcp_server.topics import gate_log

log = logging.getLogger(__name__)

LOOK_SECONDS = 30.0
"""Seconds between checks for work that no change notice announces."""

HOUSE_SECONDS = 60.0
"""Seconds between rounds of housekeeping."""

LAST_SECONDS = 5.0
"""Time limit of a duty's last work when the process ends. The next process does the rest."""

QUIET_SECONDS = 2.0
"""Seconds without a change after which briefs are rewritten and open conversations are read."""

BRIEFS_BURST_SECONDS, LIVE_BURST_SECONDS = 15.0, 10.0
"""Most seconds to wait for QUIET_SECONDS without a change."""

BRIEFS_SECONDS = 600.0
"""Seconds after which the briefs are rewritten without a change, because a day may have ended or a pause expired."""

BRIEF_SOURCES = tuple(f"knowledge/{name}" for name in ("identity", "memory", "journal", "projects", "reference"))

REST = 3.0
"""The pause after reading conversations in this process, as a multiple of the time that it took, so that calls are not
delayed."""


OF_SESSIONS = (
    *((clarity.NAMESPACE, f"{kind}:") for kind in (clarity.STATE, clarity.PRUNED)),
    *((namespace, "") for namespace in (notes.NAMESPACE, activations.ACTIVE, gate_log.NAMESPACE)),
)
"""Entries of sessions in the state, by namespace and the beginning of the key: counts, notes, topics. They are removed
long after the session has ended."""

READ_IN_A_STEP = 64
"""Passages that the recognizer's network reads without a pause, which takes one or two seconds."""


async def keep_in_order(memory: Memory) -> None:
    """Finishes a `forget` and a recovery that a crash interrupted, then runs `keep_house` once a minute.

    If they cannot be finished, `status` shows the failure; they are not tried again.
    """
    await attempt("finishing an interrupted `forget`", lambda: forget.finish(memory))
    await attempt("finishing a recovery", lambda: restore.finish(memory))
    while True:
        await attempt("housekeeping", lambda: keep_house(memory))
        await anyio.sleep(HOUSE_SECONDS)


async def keep_house(memory: Memory) -> None:
    """Runs one round of housekeeping: reads transcripts that came by git, retries failed commits, deletes leftovers of
    crashed writes and data of old sessions, records the costs of embeddings, and closes idle sessions.

    A second round right after it changes nothing.
    """
    await run_sync(memory.files.remove_leftovers)
    await sessions.ready(memory)
    await sync.take_in(memory)
    await closed_sessions.commit_pending(memory)
    await windows.forget_old(memory)
    await cold.expire(memory)
    await checkpoint.sweep(memory)
    await sessions.forget_old(memory, OF_SESSIONS)
    await metered.enter_embeddings(memory)
    await sessions.close_idle(memory)  # comes last, because it raises if a transcript is broken


async def keep_briefs(memory: Memory) -> None:
    """Rewrites the briefs shortly after their sources changed."""
    async with memory.changes.listen() as changes:
        while True:
            await attempt("writing the briefs", lambda: _ready_for(memory, briefs.refresh))
            with anyio.move_on_after(BRIEFS_SECONDS):
                await _next_burst(changes, concerns_briefs, BRIEFS_BURST_SECONDS)


def concerns_briefs(change: Change) -> bool:
    """Returns whether a brief may be different after this change."""
    if change.kind == "file":
        return change.path is None or change.path.startswith(BRIEF_SOURCES)
    return change.kind == "session"  # such as a pause, or a renamed project


async def keep_read(memory: Memory) -> None:
    """Lets the recognizer's network read the passages of large and imported files. Other passages are read when they
    are indexed. The first step reads most lines of a page."""
    async with memory.changes.listen() as changes:
        while True:
            began = perf_counter()
            read = await attempt("reading new passages", lambda: memory.index.read_ahead(READ_IN_A_STEP))
            await anyio.sleep(REST * (perf_counter() - began))
            if not read:
                while (await changes.receive()).kind != "index":
                    pass


async def keep_live(memory: Memory) -> None:
    """Writes the items of open conversations to their pages.

    When it is cancelled, it reads the last turns, so that the next window has their items, and updates briefs and
    index."""

    async def refresh() -> object:
        return await attempt("writing the items of open conversations", lambda: _ready_for(memory, extract.refresh))

    async with memory.changes.listen() as changes:
        try:
            while True:
                began = perf_counter()
                await refresh()
                await anyio.sleep(REST * (perf_counter() - began))
                await _next_burst(changes, concerns_live, LIVE_BURST_SECONDS)
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(LAST_SECONDS):
                if await refresh():
                    await briefs.refresh(memory)
                    await memory.index.refresh()
                    await memory.index.read_ahead(READ_IN_A_STEP)


def concerns_live(change: Change) -> bool:
    """Returns whether an open conversation, or a page that shows its items, may be different after this change."""
    if change.kind == "file":
        return change.path is None or change.path.startswith(ITEM_PAGES)
    return change.kind in ("turn", "session")


async def _ready_for(memory: Memory, act: Callable[[Memory], Awaitable[object]]) -> object:
    await sessions.ready(memory)
    return await act(memory)


async def _next_burst(changes: Listener, concerns: Callable[[Change], bool], most: float) -> None:
    """Waits for a change that `concerns` accepts, and then until no change came for QUIET_SECONDS, at most for `most`
    seconds."""
    while not concerns(await changes.receive()):
        pass
    with anyio.move_on_after(most):
        silent = False
        while not silent:
            with anyio.move_on_after(QUIET_SECONDS) as silence:
                await changes.receive()
            silent = silence.cancelled_caught


async def keep_extracted(memory: Memory, environ: Mapping[str, str] | None = None) -> None:
    """Extracts knowledge from closed conversations. After a crash the next process continues.

    First it queues the conversations that were read by an earlier version of the extractors. With the `environ` of
    `open_memory`, a worker process does the work; otherwise this process does.
    """
    is_queued = False

    async def extract() -> None:
        nonlocal is_queued
        is_queued = is_queued or await queue_outdated(memory) >= 0
        at_session_end = memory.settings.lifecycle.extraction_trigger == "on_session_end"
        waits = at_session_end and await waiting_conversations(memory) > 0
        if waits and (environ is None or not await worker.run("knowledge", memory.disk.root, environ)):
            await extract_pending(memory, REST)

    while True:
        await attempt("extracting knowledge from closed conversations", extract)
        await anyio.sleep(LOOK_SECONDS)


async def keep_enriching(memory: Memory) -> None:
    await _keep_asking(memory, enrich_all, lambda one: one.kind == "file" and (one.path or FOLDER).startswith(FOLDER))


async def keep_rewording(memory: Memory) -> None:
    await _keep_asking(memory, reword_all, lambda one: one.kind == "session")


async def _keep_asking(
    memory: Memory, ask: Callable[[Memory], Awaitable[int]], concerns: Callable[[Change], bool]
) -> None:
    async with memory.changes.listen() as changes:
        while True:
            await attempt("asking the LLM", lambda: ask(memory))
            while not concerns(await changes.receive()):
                pass


async def keep_committed(memory: Memory) -> None:
    """Calls `look` twice a minute; when it is cancelled, commits the remaining changes."""
    try:
        await run_sync(memory.git.merging.remove_leftovers)
        while True:
            await look(memory)
            await anyio.sleep(LOOK_SECONDS)
    finally:
        with anyio.CancelScope(shield=True), anyio.move_on_after(LAST_SECONDS):
            await attempt("the last commit", lambda: committing.commit_changes(memory, ask=False))


async def look(memory: Memory) -> None:
    """Commits if it is due, tags past days, deletes old explorations, and pushes if the settings say so.

    Logs a failed step; the next call tries it again.
    """
    if not await run_sync(memory.git.available):
        return
    await attempt("committing after a commit by hand", lambda: _after_foreign_commit(memory))
    await attempt("committing what changed", lambda: committing.commit_if_due(memory))
    await attempt("tagging", lambda: committing.tag_days(memory))
    for kind in (explore.EXPLORATIONS, RECONSTRUCTIONS):
        await attempt(f"deleting an unfinished {kind.noun}", partial(kind.clear, memory))
    await attempt("dropping old explorations", lambda: explore.drop_old(memory))
    await attempt("pushing", lambda: _pushed(memory))


async def _after_foreign_commit(memory: Memory) -> None:
    """Commits again if another program has committed, because files that our last commit left out may now be
    committable."""
    if await run_sync(memory.git.hooks.take_mark) is not None:
        last = await committing.report(memory)
        if last.left_out or last.waiting or last.note:
            await committing.commit_changes(memory)


async def _pushed(memory: Memory) -> None:
    """Pushes. After a failure, pushes again only after a new commit or the interval of commits."""
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


async def keep_exported(memory: Memory) -> None:
    while memory.settings.git.export_folder is not None:
        await attempt("exporting the history to git", lambda: committing.export_history(memory))
        await anyio.sleep(memory.settings.lifecycle.commit_interval_minutes * 60)
    await anyio.sleep_forever()


DUTIES = (keep_in_order, keep_briefs, keep_live, keep_read, keep_committed)
"""The duties that need neither an LLM nor a worker process."""
