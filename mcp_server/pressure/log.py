"""What the logs keep of pressure: S1's fields and `event` values, and some of ours (SPEC §15).

A log that cannot be written costs nothing but its line.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from mcp_server.logs import append, written
from mcp_server.memory import Memory
from mcp_server.pressure.cold_records import ColdRecord
from mcp_server.relevance.gauges import Gauges, grows_fast
from mcp_server.storage.cold_storage import path_of
from mcp_server.storage.live_values import LiveSetCounts, Reading

if TYPE_CHECKING:
    from mcp_server.pressure.pressure import Plan


def relieved(memory: Memory, plan: Plan, tokens_after: int, records: Sequence[ColdRecord]) -> None:
    """One line for the curation or compaction, and one for each chunk that went."""
    knobs = memory.settings.context
    at = {"timestamp": written(memory.clock())}
    dropped = sum(one.action == "drop" for one in plan.changes)
    whose = {"session_id": plan.session, "prompt": plan.query, "gate_open": plan.gate_open, "trigger_by": plan.trigger}
    if plan.event == "curation":
        if knobs.log_curation:
            append(
                memory,
                "curation",
                at
                | {
                    "event": "memfas_curation",
                    "query": plan.query,
                    "hits_found": plan.hits,
                    "total_hits_before_curation": len(plan.decisions),
                    "token_savings": plan.tokens_before - tokens_after,
                    "drops_triggered": dropped,
                }
                | whose,
            )
    elif knobs.log_compaction:
        name, value = ("MAX_CONTEXT_PCT", knobs.max_context_pct) if plan.event == "limit" else _compaction(memory)
        append(
            memory,
            "compaction",
            at
            | {
                "event": "compaction_triggered",
                "trigger": plan.trigger,
                "tokens_before": plan.tokens_before,
                "tokens_after": tokens_after,
                "chunks_dropped": dropped,
                "chunks_summarized": sum(one.action == "summarise" for one in plan.changes),
                "config_used": f"{name}={value:.2f}",
                "chunks_shortened": sum(one.action in ("one line", "excerpt") for one in plan.changes),
            }
            | whose,
        )
    if knobs.log_drops:
        for record in records:
            if record.form == "cold":
                append(memory, "drops", at | _drop(memory, record))


def _compaction(memory: Memory) -> tuple[str, float]:
    return "COMPACTION_TRIGGER_PCT", memory.settings.context.compaction_trigger_pct


def _drop(memory: Memory, record: ColdRecord) -> dict[str, Any]:
    return {
        "event": "chunk_dropped",
        "chunk_id": record.chunk_id,
        "session_id": record.session_id,
        "reason": record.drop_reason,
        "relevance_score": round(record.relevance_score, 6),
        "threshold_used": memory.settings.context.relevance_cutoff,
        "cold_storage_path": path_of(record),
        "tokens": record.tokens,
        "turn": record.turn,
    }


def health(memory: Memory, session: str, gauges: Gauges, entered: LiveSetCounts) -> None:
    """One line on how full a session is. `next_compaction_estimate`: the tokens at which it is compacted."""
    knobs = memory.settings.context
    if not knobs.log_compaction:
        return
    append(
        memory,
        "context-health",
        {
            "timestamp": written(memory.clock()),
            "current_tokens": gauges.live_tokens,
            "limit": gauges.limit,
            "pct_used": round(gauges.live, 4),
            "next_compaction_estimate": int(knobs.compaction_trigger_pct * knobs.limit_tokens),
            "memcached_chunks": entered.live,
            "cold_storage_chunks": entered.cold,
            "session_id": session,
            "client_tokens": gauges.client_tokens,
            "growth_alarm": growing(entered.earlier, gauges, memory.clock()),
        },
    )


def growing(readings: Sequence[Reading], gauges: Gauges, now: datetime) -> bool:
    """S2's growth alarm, for the client's gauge where it tells one, else for the live one; silent while little is
    used."""
    if gauges.advised < GROWTH_FROM:
        return False
    if gauges.client_tokens is not None:
        seen = [(one.at, one.client) for one in readings if one.client is not None]
        return grows_fast(seen, now, gauges.client_tokens)
    return grows_fast([(one.at, one.live) for one in readings], now, gauges.live_tokens)


GROWTH_FROM = 0.2
"""Share of the limit below which growing fast is what conversations do."""


def recovered(memory: Memory, record: ColdRecord, trigger: str, score: float | None, query: str) -> None:
    """One line for a chunk that came back."""
    if memory.settings.context.log_recovery:
        append(
            memory,
            "recovery",
            {
                "timestamp": written(memory.clock()),
                "event": "chunk_recovered",
                "chunk_id": record.chunk_id,
                "session_id": record.session_id,
                "trigger": trigger,
                "relevance_score": None if score is None else round(score, 6),
                "threshold_used": memory.settings.context.relevance_keep if trigger == "automatic" else None,
                "query": query,
                "tokens": record.tokens,
                "turn": record.turn,
                "drop_reason": record.drop_reason,
                "dropped_at": written(record.timestamp),
            },
        )
