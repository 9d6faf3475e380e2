"""How full the context of each conversation is, and what happens to it next. In `add` that is our mirror of it:
the client keeps its own window."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from anyio.to_thread import run_sync

from mcp_server.conversations import sessions
from mcp_server.memory import Memory
from mcp_server.model import Delivery
from mcp_server.relevance.chunks import Gauges
from mcp_server.relevance.live_set import live_set
from mcp_server.settings import Context
from mcp_server.storage.values import SessionRow

MOST = 20  # most open conversations in the list, those with the latest messages
MIRROR = "ours is a mirror: the client keeps its own window, in which /compact makes room"
PROMPT = "this is the prompt"


@dataclass(frozen=True, slots=True)
class Health:
    """The gauges of a conversation, with the fields of `context-health.jsonl`, and the next step in words. Shares are 0
    or more; over 1 the context exceeds its limit. `client_tokens` is the client's last count of its own window. `forms`
    counts the chunks by their form."""

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
        return max(self.pct_used, self.client_pct or 0.0)

    def as_dict(self) -> dict[str, Any]:
        """Returns JSON values, without those that are unknown."""
        shares = {name: round(value, 4) for name, value in asdict(self).items() if isinstance(value, float)}
        shown = asdict(self) | shares | {"timestamp": self.timestamp.isoformat(timespec="seconds")}
        return {name: value for name, value in shown.items() if value is not None}


async def health(memory: Memory, session: str | None = None) -> list[Health]:
    """Returns the open conversations, latest message first; or the named one, open or closed. Raises NotFound if there
    is no such session."""
    if session is not None:
        return [await _of(memory, await sessions.require(memory, session))]
    rows = await sessions.list_sessions(memory, open_only=True, limit=MOST)
    return [await _of(memory, row) for row in rows]


async def _of(memory: Memory, row: SessionRow) -> Health:
    opened = row.status == "open"
    chunks = await (live_set(memory, row.session) if opened else memory.live.of(row.session))
    cold = await run_sync(memory.cold.of, row.session)
    knobs = memory.settings.context
    readings = await memory.live.readings(row.session) if opened else []
    client = next((reading.client for reading in reversed(readings) if reading.client is not None), None)
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


OF_MIRRORS = (
    "Where the client keeps its own window, this is about our mirror of it. The window is as it was: only its user "
    "makes room in it, with /compact there, a new chat, or by clearing a file."
)


async def mirror_note(memory: Memory, sessions: Iterable[str]) -> str:
    """Returns the sentence about mirrors for a report on these conversations; empty if all of them use `replace`."""
    ours = {row.session for row in await memory.state.sessions() if row.delivery == "replace"}
    return "" if ours.issuperset(sessions) else OF_MIRRORS
