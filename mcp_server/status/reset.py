"""Reset: deletes index, state and logs, and makes again what can be made from the files.

Never deleted: conversations, knowledge, topics, archive, checkpoints, anchors, changes that wait for approval, undo
data of `recover`, and cold records that have not expired. The plan says for each part whether it is made again or lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from anyio.to_thread import run_sync

from mcp_server.context import never_pushed, pauses
from mcp_server.conversations import closed_sessions, sessions
from mcp_server.errors import Unavailable
from mcp_server.memory import Memory
from mcp_server.pressure.cold import expired_records
from mcp_server.storage.cold_storage import path_of
from mcp_server.storage.values import FileStat

INDEX, STATE, ADVISOR = ".local/index/", ".local/state.db", ".local/advisor/"
LOGS, COLD = ".local/logs/", ".local/cold-storage/"
KEPT_ENTRIES = (
    pauses.NAMESPACE,
    never_pushed.NAMESPACE,
    closed_sessions.PENDING_COMMITS,
    closed_sessions.PENDING_EXTRACTION,
    closed_sessions.LIVE_ITEMS,
    closed_sessions.LIVE_PAGES,
)
"""Namespaces of the state that survive: the user's pauses and texts that are never pushed, pending commits and
extractions, and the pages without the items of open conversations."""

STAYS = (
    "raw/ (conversations)",
    "knowledge/, topics/, archive/, checkpoints/, anchors.yaml, forgotten.jsonl",
    "cold records whose time is not over, or that a checkpoint names",
    "what waits for approval, a commit or an extraction, pauses, and what recover keeps for its undo",
)


@dataclass(frozen=True, slots=True)
class Part:
    """A part that is deleted: its place, its size (files, bytes), and what happens afterwards."""

    what: str
    where: str
    files: int
    bytes: int
    then: str


@dataclass(frozen=True, slots=True)
class Reset:
    """What a reset deletes, or has deleted (`done`). `notes` name files that could not be deleted."""

    parts: tuple[Part, ...]
    done: bool = False
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Returns JSON values."""
        return {"done": self.done, "deletes": self.parts, "stays": STAYS, "notes": self.notes}


async def plan_reset(memory: Memory) -> Reset:
    """Returns what a reset would delete now."""
    return await run_sync(_planned, memory)


async def reset(memory: Memory, progress: Callable[[int, int], None] | None = None) -> Reset:
    """Deletes the parts, reads the transcripts back into the state and rebuilds the index.

    Raises:
        Unavailable: a server is working on this memory.
    """
    held = await run_sync(memory.locks.try_maintainer)
    if held is None:
        raise Unavailable(
            "a server (or another command) is working on this memory; close the clients that use it and reset again"
        )
    try:
        planned = await plan_reset(memory)
        await run_sync(_delete, memory)
        await memory.state.empty(KEPT_ENTRIES)
        await sessions.ready(memory)
        left = await memory.index.renew(progress)
    finally:
        held.release()
    notes = (f"still used by another process, deleted when it ends: {', '.join(left)}",) if left else ()
    return Reset(planned.parts, True, notes)


def _planned(memory: Memory) -> Reset:
    state = [stat for stat in memory.files.walk(".local/") if stat.path.startswith(STATE)]
    expired = [path_of(record) for record in expired_records(memory)]
    parts = (
        _part("search index", INDEX, memory.files.walk(INDEX), "built anew from the files, at once"),
        _part(
            "live state",
            STATE,
            state,
            "conversations, live sets and Clarity are made again from transcripts and cold storage; gone for good: how "
            "often files were read, how far imports have read, what hooks have pushed, copies of damaged files",
        ),
        _part("advisor's state", ADVISOR, memory.files.walk(ADVISOR), "gone; it begins again with the next message"),
        _part("logs", LOGS, memory.files.walk(LOGS), "gone for good"),
        _part("expired cold records", COLD, map(memory.files.stat, expired), "gone for good; their time is over"),
    )
    return Reset(parts)


def _part(what: str, where: str, found: Iterable[FileStat], then: str) -> Part:
    sizes = [stat.size for stat in found]
    return Part(what, where, len(sizes), sum(sizes), then)


def _delete(memory: Memory) -> None:
    """Deletes files. The state and the index are emptied by their own ports."""
    memory.cold.remove_all(expired_records(memory))
    damaged = [stat for stat in memory.files.walk(".local/") if stat.path.startswith(f"{STATE}.damaged-")]
    for stat in (*memory.files.walk(LOGS), *memory.files.walk(ADVISOR), *damaged):
        memory.files.remove(stat.path)
