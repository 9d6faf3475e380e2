"""The two gauges of a session and what they set off (SPEC §5).

`live` is what our mirror of the session holds; `client` is what the client says its window holds, if it says so.
Curation, compaction and the limit go by `live`; advice, flush and checkpoints by `client`, else `live`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime, timedelta

AGAIN_PER = 0.05
"""Curation comes again with every further 5% of the limit."""

CHECKPOINT_PER = 0.10
"""A checkpoint is made again with every further 10% of the client's window."""

GROWTH_SHARE, GROWTH_WINDOW = 0.20, timedelta(minutes=5)
"""S2 "Rapid context growth": more than a fifth in five minutes."""


@dataclass(frozen=True, slots=True)
class Triggers:
    """S1's thresholds as shares of the limit, between 0 and 1."""

    curation: float = 0.40
    compaction: float = 0.50
    most: float = 0.85


@dataclass(frozen=True, slots=True)
class Gauges:
    """Tokens of the live chunks and of the client's window over `limit` (1 or more)."""

    live_tokens: int
    limit: int
    client_tokens: int | None = None

    @property
    def live(self) -> float:
        return self.live_tokens / self.limit

    @property
    def advised(self) -> float:
        """The gauge that advice goes by."""
        return self.live if self.client_tokens is None else self.client_tokens / self.limit


def curation_step(live: float, triggers: Triggers) -> int:
    """0 below the curation trigger, 1 from there on, one more for each further 5%: curation is due when it rises."""
    if live < triggers.curation:
        return 0
    return 1 + math.floor((live - triggers.curation) / AGAIN_PER + 1e-9)


def checkpoint_step(client: float, triggers: Triggers) -> int:
    """0 below the compaction trigger, 1 from there on, one more for each further 10%: a checkpoint is due when it
    rises, since the client may compact its window without a word."""
    if client < triggers.compaction:
        return 0
    return 1 + math.floor((client - triggers.compaction) / CHECKPOINT_PER + 1e-9)


def grows_fast(seen: list[tuple[datetime, int]], now: datetime, tokens: int) -> bool:
    """Whether the context grew by more than a fifth within five minutes. `seen` are earlier readings, oldest first."""
    earlier = [count for moment, count in seen if now - moment <= GROWTH_WINDOW and count > 0]
    return bool(earlier) and tokens > earlier[0] * (1 + GROWTH_SHARE)
