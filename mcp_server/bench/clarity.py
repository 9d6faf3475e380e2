"""The curve of `bench speed`: what an exchange costs Clarity's tracker, and what it holds, however long a talk gets."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from mcp_server.bench import made_up
from mcp_server.bench.server_process import resident
from mcp_server.relevance.clarity_scores import ClarityWeights, Tracker

POINTS = (100, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000)
"""Exchanges at which somebody looks."""


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """After so many exchanges: microseconds (of this process) that an exchange took, mean since the point before, and
    that all scores took; items and candidates held; bytes of the stored state; this process's resident memory in MB."""

    exchanges: int
    exchange_us: float
    scores_us: float
    items: int
    candidates: int
    state_bytes: int
    resident_mb: float | None


def curve(points: Sequence[int], show: Callable[[int], None] = lambda _: None) -> tuple[CurvePoint, ...]:
    """One talk of as many exchanges as the last point says: a user who names something new each time, an agent who
    answers. `show` is told the exchanges so far."""
    talk, tracker, at = made_up.Talk(6), Tracker(), made_up.START
    found, done = [], 0
    for point in points:
        seconds = 0.0
        for number in range(done, point):
            asked = f"ClaraCore, NewThing{number} and src/part{number}.py: {talk.sentence(12)}"
            answer = f"ClaraCore and NewThing{number}: {talk.sentence(12)}"
            began = time.process_time()
            tracker.hear("user", asked, at)
            tracker.hear("agent", answer, at, ["web_search"])
            seconds += time.process_time() - began
        found.append(_point(tracker, point, 1e6 * seconds / (point - done), at))
        done = point
        show(point)
    return tuple(found)


def _point(tracker: Tracker, exchanges: int, exchange_us: float, at: datetime) -> CurvePoint:
    began = time.process_time()
    tracker.scores(ClarityWeights())
    scores_us = 1e6 * (time.process_time() - began)
    return CurvePoint(
        exchanges,
        exchange_us,
        scores_us,
        len(tracker.items),
        len(tracker.candidates),
        len(json.dumps(tracker.as_dict(at))),
        resident(os.getpid()),
    )
