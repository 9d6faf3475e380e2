"""Shows what can be removed from the context or the memory, and why; with `dry_run=False` removes it, recoverably.

    strategy   reads                           removes
    auto       a session's context             chunks that its gauge proposes: to cold storage
    compact    a session's context             chunks by the steps of compaction: to cold storage
    advisor    files, skills, agent outputs    what the advisor recommends: to cold storage
    clarity    the session's items             items without relevance: out of the block
    memory     MEMORY.md                       its oldest entries: to archive/
    files      knowledge files                 files that are no longer used: to archive/

A dry run does everything but the last step and changes no file.
"""

from __future__ import annotations

import difflib
from dataclasses import replace
from typing import get_args

from mcp_server.conversations import sessions
from mcp_server.errors import Invalid, NotFound, Refused
from mcp_server.knowledge.prune_knowledge import prune_files, prune_memory
from mcp_server.knowledge.pruning import Pruned, Strategy
from mcp_server.memory import Memory
from mcp_server.model import Caller
from mcp_server.pressure.prune_session import prune_advised, prune_clarity, prune_ladder
from mcp_server.storage.values import SessionRow

STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)
OF_KNOWLEDGE = ("memory", "files")


async def prune(
    memory: Memory,
    strategy: str,
    session: str | None,
    dry_run: bool,
    caller: Caller,
    *,
    target: int | None = None,
) -> Pruned:
    """Returns what would be removed (`dry_run`), or what was removed.

    `session` is by default the caller's own; `memory` and `files` need none. `target` is the size to reach:
    percent of the limit for `auto` and `compact`, lines for `memory`.

    Raises:
        Invalid: an unknown strategy, or a target for one that takes none.
        NotFound: no such session, or none was named and the caller has none.
        Refused: the session has ended and has no live context; or cold storage is off.
    """
    chosen = next((known for known in STRATEGIES if known == strategy), None)
    if chosen is None:
        close = difflib.get_close_matches(strategy, STRATEGIES, n=1)
        near = f"; did you mean {close[0]!r}?" if close else ""
        raise Invalid(f"strategy {strategy!r} is not one of {', '.join(STRATEGIES)}{near}")
    _check_target(chosen, target)
    if chosen == "memory":
        return await prune_memory(memory, target, dry_run)
    if chosen == "files":
        return await prune_files(memory, dry_run)
    row = await _row(memory, session or caller.session)
    if chosen == "clarity":
        return await prune_clarity(memory, row, dry_run)
    if not memory.settings.context.cold_storage_enabled:
        raise Refused("context.cold_storage_enabled is off, so nothing is dropped; set it in memory-config.yaml")
    if chosen == "advisor":
        return await prune_advised(memory, row, dry_run)
    done = await prune_ladder(memory, row, chosen, target, dry_run)
    return replace(done, notes=(*done.notes, *await _elsewhere(memory, row))) if chosen == "auto" else done


async def last_session(memory: Memory) -> str | None:
    """Returns the open session with the latest message."""
    await sessions.ready(memory)
    rows = await sessions.list_sessions(memory, open_only=True, limit=1)
    return rows[0].session if rows else None


def _check_target(strategy: Strategy, target: int | None) -> None:
    if target is None:
        return
    if strategy in ("auto", "compact"):
        if not 0 <= target <= 100:
            raise Invalid(f"target {target}: for {strategy} it is percent of the limit, 0 to 100")
    elif strategy != "memory":
        raise Invalid(f"strategy {strategy!r} takes no target; auto and compact (percent) and memory (lines) do")


async def _row(memory: Memory, session: str | None) -> SessionRow:
    await sessions.ready(memory)
    if session is None:
        raise NotFound("which session? give its handle (status shows them), or a strategy without one: memory, files")
    row = await sessions.require(memory, session)
    if row.status == "closed":
        raise Refused(f"session {row.session} is over: nothing of it is live any more; `recover` lists what is cold")
    return row


async def _elsewhere(memory: Memory, row: SessionRow) -> tuple[str, ...]:
    """Returns a line for each other strategy with what it would remove."""
    others = [
        await prune_clarity(memory, row, dry_run=True),
        await prune_memory(memory, None, dry_run=True),
        await prune_files(memory, dry_run=True),
    ]
    found = ((other.strategy, len(other.of_fate("gone")), other.of) for other in others)
    return tuple(f'strategy="{name}" would take {count} from {of}.' for name, count, of in found if count)
