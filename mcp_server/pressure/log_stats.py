"""What the logs of pressure say, summed up (S1 "Tuning Workflow"): why things were dropped, at which scores, and what
that saved.

    drops.jsonl       → reasons, and a histogram of scores
    curation.jsonl    → tokens saved by each curation
    compaction.jsonl  → tokens saved by each compaction
    recovery.jsonl    → what came back, asked for or by itself: what should not have gone
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from statistics import fmean, median
from typing import Any

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
