"""Reports how full the context of each conversation is, and writes the logs of the chunks that left it or came back.

    drops.jsonl           reasons, and a histogram of scores
    curation.jsonl        tokens saved by each curation
    compaction.jsonl      tokens saved by each compaction
    recovery.jsonl        chunks that came back: they should not have been dropped
    context-health.jsonl  how full each session is

With the delivery `add`, the context is the memory's own copy (its mirror): the client keeps its own window. If a line
of a log cannot be written, it is lost, and nothing else fails.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import islice
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from anyio.to_thread import run_sync

from mcp_server.conversations import sessions
from mcp_server.memory import Memory
from mcp_server.model import Delivery, Turn
from mcp_server.relevance.chunks import ColdRecord, Gauges, grows_fast
from mcp_server.relevance.live_set import live_set
from mcp_server.settings import Context
from mcp_server.storage import logs
from mcp_server.storage.live_sets import path_of
from mcp_server.storage.logs import append_or_drop
from mcp_server.storage.values import LiveSetCounts, Reading, SessionRow
from mcp_server.text.markdown import read_moment, second_text

if TYPE_CHECKING:
    from mcp_server.pressure.pressure import Plan

MOST = 20  # most open conversations in the list, those with the latest messages
MIRROR = "ours is a mirror: the client keeps its own window, in which /compact makes room"
PROMPT = "this is the prompt itself"


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
        """Returns JSON values, without unknown ones."""
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
        return "it has ended: its transcript has all of it, and cold storage for a limited time"
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
    "If the client keeps its own window, this is about the memory's mirror of it. The window itself did not change: "
    "only its user can free space there, with /compact, a new chat, or by clearing a file."
)


async def mirror_note(memory: Memory, sessions: Iterable[str]) -> str:
    """Returns the sentence about mirrors for a report on these conversations; empty if all of them use `replace`."""
    ours = {row.session for row in await memory.state.sessions() if row.delivery == "replace"}
    return "" if ours.issuperset(sessions) else OF_MIRRORS


def log_relief(memory: Memory, plan: Plan, tokens_after: int, records: Sequence[ColdRecord]) -> None:
    """Writes one line for a curation or compaction, and one for each dropped chunk."""
    knobs = memory.settings.context
    dropped = sum(one.action == "drop" for one in plan.changes)
    whose = {"session_id": plan.session, "prompt": plan.query, "trigger_by": plan.trigger}
    if plan.event == "curation" and knobs.log_curation:
        line = {
            "event": "memfas_curation",
            "query": plan.query,
            "hits_found": plan.hits,
            "total_hits_before_curation": len(plan.decisions),
            "token_savings": plan.tokens_before - tokens_after,
            "drops_triggered": dropped,
        }
        _append(memory, "curation", line | whose)
    if plan.event != "curation" and knobs.log_compaction:
        is_limit = plan.event == "limit"
        name = "MAX_CONTEXT_PCT" if is_limit else "COMPACTION_TRIGGER_PCT"
        value = knobs.max_context_pct if is_limit else knobs.compaction_trigger_pct
        line = {
            "event": "compaction_triggered",
            "trigger": plan.trigger,
            "tokens_before": plan.tokens_before,
            "tokens_after": tokens_after,
            "chunks_dropped": dropped,
            "chunks_summarized": sum(one.action == "summarise" for one in plan.changes),
            "config_used": f"{name}={value:.2f}",
            "chunks_shortened": sum(one.action in ("one line", "excerpt") for one in plan.changes),
        }
        _append(memory, "compaction", line | whose)
    for record in records if knobs.log_drops else ():
        if record.form == "cold":
            line = {
                "event": "chunk_dropped",
                "chunk_id": record.chunk_id,
                "session_id": record.session_id,
                "reason": record.drop_reason,
                "relevance_score": round(record.relevance_score, 6),
                "threshold_used": knobs.relevance_cutoff,
                "cold_storage_path": path_of(record),
                "tokens": record.tokens,
                "turn": record.turn,
            }
            _append(memory, "drops", line)


def _append(memory: Memory, kind: str, line: Mapping[str, Any]) -> None:
    append_or_drop(memory.files, kind, {"timestamp": second_text(memory.clock()), **line})


def log_health(memory: Memory, session: str, gauges: Gauges, entered: LiveSetCounts) -> None:
    """Writes one line on how full a session is. `next_compaction_estimate` is the number of tokens that triggers
    compaction."""
    knobs = memory.settings.context
    if knobs.log_compaction:
        line = {
            "current_tokens": gauges.live_tokens,
            "limit": gauges.limit,
            "pct_used": round(gauges.live, 4),
            "next_compaction_estimate": int(knobs.compaction_trigger_pct * knobs.limit_tokens),
            "memcached_chunks": entered.live,
            "cold_storage_chunks": entered.cold,
            "session_id": session,
            "client_tokens": gauges.client_tokens,
            "growth_alarm": is_growing(entered.earlier, gauges, memory.clock()),
        }
        _append(memory, "context-health", line)


def is_growing(readings: Sequence[Reading], gauges: Gauges, now: datetime) -> bool:
    """Returns whether the context grows fast, by the client's gauge if it gives one, else by the live one."""
    if gauges.advised < GROWTH_FROM:
        return False
    if gauges.client_tokens is not None:
        seen = [(one.at, one.client) for one in readings if one.client is not None]
        return grows_fast(seen, now, gauges.client_tokens)
    return grows_fast([(one.at, one.live) for one in readings], now, gauges.live_tokens)


GROWTH_FROM = 0.2  # share of the limit below which fast growth raises no alarm


def log_recovery(
    memory: Memory, record: ColdRecord, turns: Sequence[Turn], trigger: str, score: float | None = None, query: str = ""
) -> None:
    """Writes one line for a chunk that came back. `turns` are all turns of its session."""
    knobs = memory.settings.context
    if not knobs.log_recovery:
        return
    line = {
        "event": "chunk_recovered",
        "chunk_id": record.chunk_id,
        "session_id": record.session_id,
        "trigger": trigger,
        "relevance_score": None if score is None else round(score, 6),
        "threshold_used": knobs.relevance_keep if trigger == "automatic" else None,
        "query": query,
        "tokens": record.tokens,
        "turn": record.turn,
        "drop_reason": record.drop_reason,
        "dropped_at": second_text(record.timestamp),
        "exchanges_since": sum(turn.role == "user" for turn in turns) - record.exchange if record.exchange else None,
    }
    _append(memory, "recovery", line)


Record = Mapping[str, Any]
SOON = 10  # a chunk that came back within this many exchanges should not have been dropped
BINS = 10  # bins of the histogram, a tenth each; the last one includes 1.0 and more


def log_stats(
    drops: Sequence[Record],
    curations: Sequence[Record],
    compactions: Sequence[Record],
    recoveries: Sequence[Record],
    healths: Sequence[Record],
) -> dict[str, Any]:
    """Returns a summary of five logs as JSON values: `reasons` with the most frequent first, the times of the `first`
    and the `last` line, and the chunks that came back within ten exchanges (`soon`). A field that is missing or has a
    wrong type counts as none."""
    lines = (*drops, *curations, *compactions, *recoveries, *healths)
    times = sorted(str(line["timestamp"]) for line in lines if line.get("timestamp"))
    later = [_number(line, "exchanges_since") for line in recoveries if line.get("exchanges_since") is not None]
    saved = [int(_number(line, "tokens_before") - _number(line, "tokens_after")) for line in compactions]
    return {
        "first": times[0] if times else None,
        "last": times[-1] if times else None,
        "reasons": dict(Counter(str(line.get("reason", "unknown")) for line in drops).most_common()),
        "scores": histogram(_number(line, "relevance_score") for line in drops if "relevance_score" in line),
        "thresholds": sorted({_number(line, "threshold_used") for line in drops if line.get("threshold_used")}),
        "curation": spread([int(_number(line, "token_savings")) for line in curations]),
        "compaction": spread(saved),
        "summarised": sum(int(_number(line, "chunks_summarized")) for line in compactions),
        "recovered": dict(Counter(str(line.get("trigger", "asked")) for line in recoveries).most_common()),
        "soon": sum(exchanges <= SOON for exchanges in later),
        "highest_pct": max((_number(line, "pct_used") for line in healths), default=0.0),
    }


def histogram(scores: Iterable[float]) -> list[dict[str, float]]:
    """Returns the number of scores from each `start` to below its `end`; the last bin has no upper bound."""
    counts = Counter(min(BINS - 1, max(0, int(score * BINS + 1e-9))) for score in scores)
    return [{"start": place / BINS, "end": (place + 1) / BINS, "count": counts[place]} for place in range(BINS)]


def spread(values: Sequence[int]) -> dict[str, float]:
    """Returns count, sum, least, median, mean and most of token counts; all 0 if there are none."""
    known = values or [0]
    return {
        "count": len(values),
        "total": sum(known),
        "least": min(known),
        "median": float(median(known)),
        "mean": round(fmean(known), 1),
        "most": max(known),
    }


def since(lines: Iterable[Record], moment: datetime | None, session: str | None) -> list[Record]:
    """Returns the lines of a session (None: of all) from a moment on (None: all)."""
    ours = [line for line in lines if session is None or line.get("session_id") == session]
    return [line for line in ours if moment is None or (read_moment(line.get("timestamp")) or moment) >= moment]


def _number(line: Record, field: str) -> float:
    value = line.get(field)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0


KINDS = ("drops", "curation", "compaction", "recovery", "context-health")
MAX_LINES_READ = 200_000  # most lines of each log that are read
KNOBS = ("relevance_cutoff", "relevance_keep", "memfas_weight", "recency_bonus", "importance_boost")


async def tuning(
    memory: Memory, session: str | None = None, start: datetime | None = None
) -> tuple[dict[str, Any], frozenset[str]]:
    """Returns a summary of the logs of a conversation (None: of all) from a moment on (None: all), and the
    conversations in them. Raises NotFound if there is no such session.

    The summary has JSON values: the number of `lines` of each log, the `stats` and the settings (`knobs`).
    """
    if session is not None:
        await sessions.require(memory, session)
    knobs = {name: getattr(memory.settings.context, name) for name in KNOBS}

    def read() -> tuple[dict[str, Any], frozenset[str]]:
        newest = {kind: islice(logs.newest_first(memory.files, kind), MAX_LINES_READ) for kind in KINDS}
        found = {kind: since(lines, start, session) for kind, lines in newest.items()}
        about = frozenset(str(line.get("session_id", "")) for lines in found.values() for line in lines)
        counts = {kind: len(lines) for kind, lines in found.items()}
        return {"lines": counts, "stats": log_stats(*found.values()), "knobs": knobs}, about

    return await run_sync(read)
