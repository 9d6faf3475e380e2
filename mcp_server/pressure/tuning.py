"""Tuning: what the logs of pressure say together, beside the settings that made it so (S1 "Tuning Workflow")."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any

from anyio.to_thread import run_sync

from mcp_server.conversations import sessions
from mcp_server.memory import Memory
from mcp_server.pressure.log_stats import LogStats, log_stats, since
from mcp_server.storage import logs

KINDS = ("drops", "curation", "compaction", "recovery", "context-health")
LOOKED_BACK = 200_000
"""Lines of each log that are looked through."""

KNOBS = ("relevance_cutoff", "relevance_keep", "memfas_weight", "recency_bonus", "importance_boost")


@dataclass(frozen=True, slots=True)
class Tuning:
    """The logs summed up. `lines` says how many of each were read; `knobs` are what to turn, as they are set;
    `sessions` are the conversations that they are about."""

    stats: LogStats
    lines: Mapping[str, int]
    knobs: Mapping[str, float]
    sessions: frozenset[str] = frozenset()

    def as_dict(self) -> dict[str, Any]:
        """What a program reads."""
        return {"lines": dict(self.lines), "stats": self.stats, "knobs": dict(self.knobs)}


async def tuning(memory: Memory, session: str | None = None, start: datetime | None = None) -> Tuning:
    """The logs of one conversation (None: of all) from a moment on (None: all of them).

    Raises:
        NotFound: no such session.
    """
    if session is not None:
        session = (await sessions.require(memory, session)).session
    context = memory.settings.context
    knobs = {name: getattr(context, name) for name in KNOBS}

    def read() -> Tuning:
        found = {
            kind: since(islice(logs.newest_first(memory.files, kind), LOOKED_BACK), start, session) for kind in KINDS
        }
        stats = log_stats(*(found[kind] for kind in KINDS))
        about = frozenset(str(line.get("session_id", "")) for lines in found.values() for line in lines)
        return Tuning(stats, {kind: len(lines) for kind, lines in found.items()}, knobs, about)

    return await run_sync(read)
