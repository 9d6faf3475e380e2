"""What the logs keep of pressure: S1's fields and `event` values, and some of ours (SPEC §15).

A log that cannot be written costs nothing but its line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from anyio.to_thread import run_sync

from mcp_server.conversations import sessions
from mcp_server.logs import append, written
from mcp_server.memory import Memory
from mcp_server.pressure.cold_records import ColdRecord
from mcp_server.relevance.gauges import Gauges, grows_fast
from mcp_server.storage.local import logs
from mcp_server.storage.local.cold_storage import path_of
from mcp_server.storage.local.live_sets import Entered, Reading

if TYPE_CHECKING:
    from mcp_server.pressure.pressure import Plan


Record = Mapping[str, Any]
BINS = 10
"""Of the histogram: a tenth each; the last one takes 1.0 and what lies above it."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Numbers of tokens summed up, as `| stats` would; all 0 where there are none."""

    count: int = 0
    total: int = 0
    least: int = 0
    median: float = 0.0
    mean: float = 0.0
    most: int = 0


@dataclass(frozen=True, slots=True)
class Bin:
    """Scores from `start` on, under `end` (the last one: and over it), and how many there are."""

    start: float
    end: float
    count: int


@dataclass(frozen=True, slots=True)
class LogStats:
    """The logs on one page. `reasons` are the most frequent first; times are those of the oldest and newest line."""

    first: str | None
    last: str | None
    reasons: Mapping[str, int]
    scores: tuple[Bin, ...]
    thresholds: tuple[float, ...]
    curation: Spread
    compaction: Spread
    summarised: int
    recovered: Mapping[str, int]
    highest_pct: float

    @property
    def dropped(self) -> int:
        """How many chunks went cold."""
        return sum(self.reasons.values())


def log_stats(
    drops: Iterable[Record],
    curations: Iterable[Record],
    compactions: Iterable[Record],
    recoveries: Iterable[Record],
    healths: Iterable[Record],
) -> LogStats:
    """The lines of five logs, in any order, summed up; a field that is missing or of a wrong type counts as none."""
    drops, curations, compactions = list(drops), list(curations), list(compactions)
    recoveries, healths = list(recoveries), list(healths)
    times = sorted(
        str(line["timestamp"])
        for lines in (drops, curations, compactions, recoveries, healths)
        for line in lines
        if line.get("timestamp")
    )
    return LogStats(
        first=times[0] if times else None,
        last=times[-1] if times else None,
        reasons=dict(Counter(str(line.get("reason", "unknown")) for line in drops).most_common()),
        scores=histogram(_number(line, "relevance_score") for line in drops if "relevance_score" in line),
        thresholds=tuple(sorted({_number(line, "threshold_used") for line in drops if line.get("threshold_used")})),
        curation=spread(int(_number(line, "token_savings")) for line in curations),
        compaction=spread(int(_number(line, "tokens_before") - _number(line, "tokens_after")) for line in compactions),
        summarised=sum(int(_number(line, "chunks_summarized")) for line in compactions),
        recovered=dict(Counter(str(line.get("trigger", "asked")) for line in recoveries).most_common()),
        highest_pct=max((_number(line, "pct_used") for line in healths), default=0.0),
    )


def histogram(scores: Iterable[float]) -> tuple[Bin, ...]:
    """How many scores lie in each tenth."""
    counts = Counter(min(BINS - 1, max(0, int(score * BINS + 1e-9))) for score in scores)
    return tuple(Bin(place / BINS, (place + 1) / BINS, counts[place]) for place in range(BINS))


def spread(values: Iterable[int]) -> Spread:
    """Count, sum, least, median, mean and most."""
    known = list(values)
    if not known:
        return Spread()
    return Spread(len(known), sum(known), min(known), float(median(known)), round(fmean(known), 1), max(known))


def since(lines: Iterable[Record], moment: datetime | None, session: str | None) -> list[Record]:
    """The lines of a session (None: of all) that are not older than a moment (None: all)."""
    return [
        line
        for line in lines
        if (session is None or line.get("session_id") == session) and (moment is None or _at(line, moment) >= moment)
    ]


def _at(line: Record, like: datetime) -> datetime:
    try:
        at = datetime.fromisoformat(str(line.get("timestamp")))
    except ValueError:
        return like
    return at if at.tzinfo else at.replace(tzinfo=like.tzinfo)


def _number(line: Record, field: str) -> float:
    value = line.get(field)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0


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


def health(memory: Memory, session: str, gauges: Gauges, entered: Entered) -> None:
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
