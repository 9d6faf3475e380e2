"""Handles the events that no server received: the hook command queued them on disk.

An entry is taken by renaming it to `NAME.taken-1`, so that a newer entry of the same name is kept, and deleted when its
work is done. If the process dies in between, the next one takes the entry again (`taken-2`). Each entry is handled at
least once; handlers are idempotent.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import anyio
from anyio.to_thread import run_sync

from mcp_server.clients.hooks import protocol
from mcp_server.errors import ContextManagerError
from mcp_server.memory import Memory

log = logging.getLogger(__name__)

Handle = Callable[[Memory, str, Mapping[str, object]], Awaitable[dict[str, object]]]
"""Handles an event: memory, event, the hook's input → the hook's output, {} for none."""

TRIES = 3
"""Failed attempts after which an entry is rejected."""

REJECTED = "queue/rejected"
KEPT_REJECTED = 100
LONGEST_ENTRY = 4_000_000
LOOK_SECONDS = 1.0
"""Seconds between looks into the queue. They double at each look while an event waits for its client to write."""

RETRY_SECONDS = 30.0
"""Seconds after a failed entry, and the most between looks."""

_TAKEN = re.compile(r"(?P<name>.+\.json)\.taken-(?P<tries>\d+)")


async def watch(memory: Memory, handle: Handle) -> None:
    """Drains the queue now and whenever it changes, until it is cancelled."""
    folder = anyio.Path(memory.disk.local / protocol.QUEUE)
    seen: int | None = None
    pause = LOOK_SECONDS
    while True:
        try:
            now = (await folder.stat()).st_mtime_ns
        except OSError:  # the queue has never been used
            now = None
        if now == seen:
            pause = LOOK_SECONDS
        else:
            seen = now
            await drain(memory, handle)
            left = await run_sync(_names, memory.disk.local)
            failed = any(map(_TAKEN.fullmatch, left))
            pause = RETRY_SECONDS if failed else min(2 * pause, RETRY_SECONDS) if left else LOOK_SECONDS
        await anyio.sleep(pause)


async def drain(memory: Memory, handle: Handle) -> int:
    """Handles the queued entries, oldest first, and returns how many succeeded. 0 while another process does it.

    A failed entry stays for the next time. Invalid entries, and those that failed `TRIES` times, are moved to
    `queue/rejected/`.
    """
    if not await run_sync(waiting, memory.disk.local):
        return 0
    held = await run_sync(memory.locks.try_exclusive, "hook-queue")
    if held is None:
        return 0
    done = 0
    try:
        for place in await run_sync(_take_entries, memory.disk.local / protocol.QUEUE):
            done += await _handle_entry(memory, place, handle)
    finally:
        held.release()
    return done


def waiting(local: Path) -> int:
    """Returns the number of queued entries."""
    return len(_names(local))


def _names(local: Path) -> list[str]:
    """Returns the names of the queued entries. Those that failed, or that a process works on, are `taken`."""
    try:
        names = [place.name for place in (local / protocol.QUEUE).iterdir()]
    except OSError:  # the queue has never been used
        return []
    return [name for name in names if name.endswith(".json") or _TAKEN.fullmatch(name)]


async def _handle_entry(memory: Memory, place: Path, handle: Handle) -> bool:
    """Handles a taken entry. Returns True if that succeeded."""
    entry = await run_sync(_entry, place)
    if entry is None:
        await run_sync(_reject, place, memory.disk.local, "it is not a valid event")
        return False
    try:
        await handle(memory, entry["event"], {**entry["given"], "at": entry["at"]})
    except Exception as error:  # a failed entry must not block the others
        kind = str(error) if isinstance(error, ContextManagerError) else f"{type(error).__name__}: {error}"
        taken = _TAKEN.fullmatch(place.name)
        if taken and int(taken["tries"]) >= TRIES:
            await run_sync(_reject, place, memory.disk.local, kind)
        else:
            log.warning("a queued %s failed and will be retried: %s", entry["event"], kind)
        return False
    await run_sync(place.unlink, True)
    return True


def _take_entries(folder: Path) -> list[Path]:
    """Takes every entry, also those that were taken before and not finished.

    Returns reports of printed texts first, then the others, each oldest first.
    """
    taken: list[tuple[bool, float, str, Path]] = []
    for place in sorted(folder.iterdir(), reverse=True):  # an earlier `taken` makes room for the next
        before = _TAKEN.fullmatch(place.name)
        if before is None and place.suffix != ".json":
            continue
        name, tries = (before["name"], int(before["tries"])) if before else (place.name, 0)
        now = place.with_name(f"{name}.taken-{tries + 1}")
        if tries >= TRIES:  # it may be what ended those processes
            _reject(place, folder.parent.parent, "every process that worked on it ended")
            continue
        place.replace(now)
        entry = _entry(now)
        report = entry is not None and "printed" in entry["given"]  # quick, and the next prompt needs it
        taken.append((not report, entry["at"] if entry else 0.0, now.name, now))
    return [place for *_, place in sorted(taken)]


def _entry(place: Path) -> dict[str, Any] | None:
    """Returns the entry in a file, or None if it is invalid."""
    try:
        if place.stat().st_size > LONGEST_ENTRY:
            return None
        entry = json.loads(place.read_bytes())
        whole = isinstance(entry["event"], str) and isinstance(entry["given"], dict)
        return {**entry, "at": float(entry["at"])} if whole else None
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None


def _reject(place: Path, local: Path, why: str) -> None:
    folder = local / REJECTED
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    aside = folder / place.name
    place.replace(aside)
    log.warning("a queued event was moved to %s: %s", aside, why)
    for old in sorted(folder.iterdir(), key=lambda found: found.stat().st_mtime_ns)[:-KEPT_REJECTED]:
        old.unlink(missing_ok=True)
