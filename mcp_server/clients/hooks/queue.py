"""Events that no server saw: kept on disk by the hook command, worked on by the next process that maintains.

An entry is taken by renaming it to `NAME.taken-1`, so that a newer one of the same name is not lost with it, and
deleted when its work is done. A process that dies in between leaves it taken, and the next one takes it again
(`taken-2`). So each is worked on at least once; an event's work done twice is done once.
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

from mcp_server.clients.hooks import wire
from mcp_server.errors import ContextManagerError
from mcp_server.memory import Memory

log = logging.getLogger(__name__)

Handle = Callable[[Memory, str, Mapping[str, object]], Awaitable[dict[str, object]]]

TRIES = 3
"""After so many an entry is set aside."""

REJECTED = "queue/rejected"
KEPT_REJECTED = 100
LONGEST_ENTRY = 4_000_000
LOOK_SECONDS = 1.0
RETRY_SECONDS = 30.0
_TAKEN = re.compile(r"(?P<name>.+\.json)\.taken-(?P<tries>\d+)")


async def watch(memory: Memory, handle: Handle) -> None:
    """Works the queue off now, and whenever something is put into it; until it is cancelled."""
    folder = anyio.Path(memory.files.local / wire.QUEUE)
    seen: int | None = None
    while True:
        try:
            now = (await folder.stat()).st_mtime_ns
        except OSError:  # nobody has put anything there yet
            now = None
        pause = LOOK_SECONDS
        if now != seen:
            seen = now
            await drain(memory, handle)
            pause = RETRY_SECONDS if await run_sync(waiting, memory.files.local) else LOOK_SECONDS
        await anyio.sleep(pause)


async def drain(memory: Memory, handle: Handle) -> int:
    """Works off what is queued, oldest first; returns how many entries were done. 0 while another process does it.

    What fails stays for the next time; what failed `TRIES` times, and what is no entry, is moved to `queue/rejected/`.
    """
    folder = memory.files.local / wire.QUEUE
    if not await run_sync(_waiting, folder):
        return 0
    held = await run_sync(memory.locks.try_exclusive, "hook-queue")
    if held is None:
        return 0
    done = 0
    try:
        for place in await run_sync(_taken, folder):
            done += await _worked(memory, place, handle)
    finally:
        held.release()
    return done


def waiting(local: Path) -> int:
    """How many entries wait, for `status` and `doctor`."""
    return _waiting(local / wire.QUEUE)


async def _worked(memory: Memory, place: Path, handle: Handle) -> bool:
    """One entry, taken. True if its work is done."""
    entry = await run_sync(_entry, place)
    if entry is None:
        await run_sync(_reject, place, memory.files.local, "it is no event")
        return False
    try:
        await handle(memory, entry["event"], {**entry["given"], "at": entry["at"]})
    except Exception as error:  # one that fails must not keep the others from being done
        kind = str(error) if isinstance(error, ContextManagerError) else f"{type(error).__name__}: {error}"
        taken = _TAKEN.fullmatch(place.name)
        if taken and int(taken["tries"]) >= TRIES:
            await run_sync(_reject, place, memory.files.local, kind)
        else:
            log.warning("a queued %s could not be worked on, it is tried again: %s", entry["event"], kind)
        return False
    await run_sync(place.unlink, True)
    return True


def _waiting(folder: Path) -> int:
    try:
        return sum(name.name.endswith(".json") or _TAKEN.fullmatch(name.name) is not None for name in folder.iterdir())
    except OSError:
        return 0


def _taken(folder: Path) -> list[Path]:
    """Takes every entry, those that were taken before and not finished among them: reports of printed texts first,
    then the others, each oldest first."""
    taken: list[tuple[bool, float, str, Path]] = []
    for place in sorted(folder.iterdir(), reverse=True):  # what was taken before makes room for what is taken now
        before = _TAKEN.fullmatch(place.name)
        if before is None and place.suffix != ".json":
            continue
        name, tries = (before["name"], int(before["tries"])) if before else (place.name, 0)
        now = place.with_name(f"{name}.taken-{tries + 1}")
        if tries >= TRIES:  # it ends the process that takes it
            _reject(place, folder.parent.parent, "every process that worked on it ended")
            continue
        place.replace(now)
        entry = _entry(now)
        report = entry is not None and "printed" in entry["given"]  # takes no time, and the next prompt needs it
        taken.append((not report, entry["at"] if entry else 0.0, now.name, now))
    return [place for *_, place in sorted(taken)]


def _entry(place: Path) -> dict[str, Any] | None:
    """What the file holds, or None if it is no entry."""
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
    log.warning("a queued event was set aside as %s: %s", aside, why)
    for old in sorted(folder.iterdir(), key=lambda found: found.stat().st_mtime_ns)[:-KEPT_REJECTED]:
        old.unlink(missing_ok=True)
