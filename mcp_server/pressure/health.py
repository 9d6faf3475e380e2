"""Health: how full the context of each conversation is, and when something will happen to it (S1 `health`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from anyio.to_thread import run_sync

from mcp_server.conversations import sessions
from mcp_server.memory import Memory
from mcp_server.model import Delivery
from mcp_server.relevance.gauges import Gauges
from mcp_server.relevance.live_set import live_set
from mcp_server.settings import Context
from mcp_server.storage.values import SessionRow

MOST = 20
"""Open conversations that are looked at, the last heard of first."""

MIRROR = "ours is a mirror: the client keeps its own window, in which /compact makes room"
PROMPT = "this is the prompt"


@dataclass(frozen=True, slots=True)
class Health:
    """One conversation's gauges, with S1's fields of `context-health.jsonl`, and what comes next in words.

    Shares are between 0 and 1, or more where the context is over its limit. `client_tokens` is what the client last
    said that its own window holds. `forms` counts the chunks by how they stand in the live context.
    """

    session_id: str
    title: str
    delivery: Delivery
    timestamp: datetime
    current_tokens: int
    limit: int
    pct_used: float
    next_compaction_estimate: int
    memcached_chunks: int
    cold_storage_chunks: int
    forms: Mapping[str, int]
    client_tokens: int | None = None
    client_pct: float | None = None
    next_step: str = ""

    @property
    def highest_pct(self) -> float:
        """The fuller one of the two gauges."""
        return max(self.pct_used, self.client_pct or 0.0)

    def as_dict(self) -> dict[str, Any]:
        """What a program reads; what is not known is left out."""
        shown: dict[str, Any] = {
            "session_id": self.session_id,
            "title": self.title,
            "delivery": self.delivery,
            "timestamp": self.timestamp.isoformat(timespec="seconds"),
            "current_tokens": self.current_tokens,
            "limit": self.limit,
            "pct_used": round(self.pct_used, 4),
            "next_compaction_estimate": self.next_compaction_estimate,
            "memcached_chunks": self.memcached_chunks,
            "cold_storage_chunks": self.cold_storage_chunks,
            "forms": dict(self.forms),
            "next_step": self.next_step,
        }
        if self.client_tokens is not None and self.client_pct is not None:
            shown |= {"client_tokens": self.client_tokens, "client_pct": round(self.client_pct, 4)}
        return shown


async def health(memory: Memory, session: str | None = None) -> list[Health]:
    """The open conversations, the last heard of first; or the one that is named, also when it has ended.

    Raises:
        NotFound: no such session.
    """
    if session is not None:
        return [await _of(memory, await sessions.require(memory, session))]
    rows = await sessions.list_sessions(memory, open_only=True, limit=MOST)
    return [await _of(memory, row) for row in rows]


async def _of(memory: Memory, row: SessionRow) -> Health:
    opened = row.status == "open"
    chunks = await (live_set(memory, row.session) if opened else memory.live.of(row.session))
    cold = await run_sync(memory.cold.of, row.session)
    knobs = memory.settings.context
    client = await _client_tokens(memory, row.session) if opened else None
    gauges = Gauges(sum(chunk.tokens for chunk in chunks if chunk.form != "cold"), knobs.limit_tokens, client)
    return Health(
        session_id=row.session,
        title=row.title,
        delivery=row.delivery or "add",
        timestamp=memory.clock(),
        current_tokens=gauges.live_tokens,
        limit=gauges.limit,
        pct_used=gauges.live,
        next_compaction_estimate=int(knobs.compaction_trigger_pct * knobs.limit_tokens),
        memcached_chunks=sum(chunk.form != "cold" for chunk in chunks),
        cold_storage_chunks=len(cold),
        forms=dict(sorted(Counter(chunk.form for chunk in chunks).items())),
        client_tokens=client,
        client_pct=None if client is None else gauges.advised,
        next_step=_next_step(gauges, knobs, row),
    )


def _next_step(gauges: Gauges, knobs: Context, row: SessionRow) -> str:
    whose = PROMPT if row.delivery == "replace" else MIRROR
    if row.status != "open":
        return "it has ended: all of it is in its transcript, and in cold storage for a time"
    if not knobs.cold_storage_enabled:
        return "cold storage is switched off: nothing is ever dropped"
    if gauges.live >= knobs.compaction_trigger_pct:
        return f"compaction is due with the next message ({whose})"
    if gauges.live >= knobs.curation_trigger_pct:
        left = int(knobs.compaction_trigger_pct * gauges.limit) - gauges.live_tokens
        return f"curation has begun; compaction in {left:,} tokens ({whose})"
    left = int(knobs.curation_trigger_pct * gauges.limit) - gauges.live_tokens
    return f"curation in {left:,} tokens ({whose})"


async def _client_tokens(memory: Memory, session: str) -> int | None:
    """What the client last said of its own window."""
    readings = await memory.live.readings(session)
    return next((reading.client for reading in reversed(readings) if reading.client is not None), None)
