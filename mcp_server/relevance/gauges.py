"""The two gauges of a session and their triggers.

`live` is the share of the limit that our mirror of the session has; `client` is what the client reports of its own
window. Curation, compaction and the limit go by `live`; advice, journal and checkpoints by `client`, else by `live`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime, timedelta

AGAIN_PER = 0.05
"""Curation is due again with every further 5% of the limit."""

CHECKPOINT_PER = 0.10
"""A checkpoint is due again with every further 10% of the client's window."""

GROWTH_SHARE, GROWTH_WINDOW = 0.20, timedelta(minutes=5)
"""Growth by more than a fifth in five minutes raises an alarm."""


@dataclass(frozen=True, slots=True)
class Triggers:
    """The triggers, as shares of the limit between 0 and 1."""

    curation: float = 0.40
    compaction: float = 0.50
    most: float = 0.85


@dataclass(frozen=True, slots=True)
class Gauges:
    """The tokens of the live chunks and of the client's window, with the limit (1 or more)."""

    live_tokens: int
    limit: int
    client_tokens: int | None = None

    @property
    def live(self) -> float:
        return self.live_tokens / self.limit

    @property
    def advised(self) -> float:
        """Returns the gauge for advice: the client's, else the live one."""
        return self.live if self.client_tokens is None else self.client_tokens / self.limit


def curation_step(live: float, triggers: Triggers) -> int:
    """Returns 0 below the curation trigger, 1 from there on, and one more for each further 5%. Curation is due when it
    rises."""
    if live < triggers.curation:
        return 0
    return 1 + math.floor((live - triggers.curation) / AGAIN_PER + 1e-9)


def checkpoint_step(client: float, triggers: Triggers) -> int:
    """Returns 0 below the compaction trigger, 1 from there on, and one more for each further 10%. A checkpoint is due
    when it rises, because the client may compact its window without notice."""
    if client < triggers.compaction:
        return 0
    return 1 + math.floor((client - triggers.compaction) / CHECKPOINT_PER + 1e-9)


def grows_fast(seen: list[tuple[datetime, int]], now: datetime, tokens: int) -> bool:
    """Returns whether the context grew by more than a fifth within five minutes. `seen` are earlier readings, oldest
    first."""
    earlier = [count for moment, count in seen if now - moment <= GROWTH_WINDOW and count > 0]
    return bool(earlier) and tokens > earlier[0] * (1 + GROWTH_SHARE)
