"""`gate tune`: thresholds that the log speaks for, and writing them into the topics' files when asked to."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from anyio.to_thread import run_sync

from mcp_server.errors import Unavailable
from mcp_server.memory import Memory
from mcp_server.storage.local.changes import Change
from mcp_server.topics import front_matter
from mcp_server.topics.gate_log import decisions
from mcp_server.topics.gate_review import Nuisance, Past, Proposal, Quality, nuisances, proposals, quality

FIELD = "similarity_threshold"


@dataclass(frozen=True, slots=True)
class GateTuning:
    """What the log says: of `logged` decisions the use of `known` is known. `before` and `after` are all known
    decisions with the thresholds as they are and as proposed; `written` the files that were changed."""

    logged: int
    known: int
    before: Quality
    after: Quality
    proposals: tuple[Proposal, ...]
    nuisances: tuple[Nuisance, ...]
    written: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """What a program reads."""
        return asdict(self)


async def tune(memory: Memory, *, apply: bool = False) -> GateTuning:
    """What to change, from the decisions in `gate.jsonl`; with `apply`, the proposals stand in the topics' files when
    it returns. Raises Conflict or Unavailable where a file cannot be changed."""
    lines = await run_sync(lambda: list(decisions(memory)))
    past = [one for one in map(_past, reversed(lines)) if one is not None]
    topics = (await run_sync(memory.topics.read)).topics
    past = [one for one in past if one.topic in topics]
    proposed = proposals(past)
    written: tuple[str, ...] = ()
    if apply and proposed:
        written = await _written(memory, {topics[one.topic].path: one.proposed for one in proposed})
    new = {one.topic: one.proposed for one in proposed}
    now = {one.topic: one.threshold for one in past}  # of a topic's decisions the last one's
    return GateTuning(
        logged=len(lines),
        known=len(past),
        before=_quality(past, now),
        after=_quality(past, now | new),
        proposals=tuple(proposed),
        nuisances=tuple(nuisances(past)),
        written=written,
    )


def _quality(past: Sequence[Past], thresholds: Mapping[str, float]) -> Quality:
    return quality((one.at(thresholds[one.topic]), one.useful) for one in past)


async def _written(memory: Memory, thresholds: Mapping[str, float]) -> tuple[str, ...]:
    def write() -> None:
        for path, threshold in thresholds.items():
            text = memory.files.read_text(path)
            memory.files.write_atomic(path, front_matter.with_field(text, FIELD, threshold), text)

    async with memory.locks.files():
        await run_sync(write)
    for path in thresholds:
        memory.changes.publish(Change("file", path, None))
    async with memory.locks.git():
        with contextlib.suppress(Unavailable):  # without git the files are changed all the same
            await run_sync(memory.git.commit, list(thresholds), "maintenance: thresholds of topics\n\nBy `gate tune`.")
    return tuple(thresholds)


def _past(line: Mapping[str, Any]) -> Past | None:
    """A decision whose use is known; None for others, and for a line that is none."""
    useful = line.get("was_useful")
    if not isinstance(useful, bool):
        return None
    matched = line.get("matched")
    try:
        return Past(
            topic=str(line["topic_name"]),
            tier1=line["tier1_matched"] is True,
            score=float(line["tier2_score"]),
            value=float(line["value"]),
            threshold=float(line["threshold"]),
            margin=float(line["margin"]),
            active=line["gate_result"] is True,
            useful=useful,
            fixed=line.get("decided_by") != "arithmetic",
            matched=str(matched[0]) if isinstance(matched, list) and matched else "",
        )
    except (KeyError, TypeError, ValueError):
        return None
