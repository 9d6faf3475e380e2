"""Drops: what left a conversation's live context, when and why, and whether it can still come back (S1 `drops`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from anyio.to_thread import run_sync

from mcp_server.conversations import sessions
from mcp_server.memory import Memory
from mcp_server.pressure.cold_records import ColdRecord
from mcp_server.storage import logs

LOOKED_BACK = 100_000
"""Lines of the log that are looked through."""


@dataclass(frozen=True, slots=True)
class Drop:
    """One chunk that went. `summary` is one line of it, empty where its record is gone; `recoverable` says whether
    `recover` has it. `threshold_used` is None where none was (a dry rule, or a line that only cold storage has)."""

    chunk_id: str
    session_id: str
    timestamp: str
    reason: str
    relevance_score: float
    threshold_used: float | None
    tokens: int
    turn: int
    summary: str
    recoverable: bool
    recoverable_until: str


async def drops(memory: Memory, session: str | None = None, limit: int = 100) -> list[Drop]:
    """The drops of a conversation (None: of all), the newest first: what the log says, and what it does not (its
    switch is off, it was rotated) while cold storage does.

    Raises:
        NotFound: no such session.
    """
    if session is not None:
        session = (await sessions.require(memory, session)).session
    records = {(record.session_id, record.chunk_id): record for record in await cold_records(memory, session)}
    return await run_sync(lambda: list(islice(_listed(memory, session, records), limit)))


async def cold_records(memory: Memory, session: str | None = None) -> list[ColdRecord]:
    """Everything in cold storage, or what a conversation has there; the newest first. The record of a chunk that stands
    whole in a live context is none: a crash left it when the chunk was about to go, or had just come back.

    Raises:
        NotFound: no such session.
    """
    if session is not None:
        session = (await sessions.require(memory, session)).session
    records = await run_sync(lambda: memory.cold.of(session) if session is not None else list(memory.cold.all()))
    live = await memory.live.whole(session)
    records = [record for record in records if record.chunk_id not in live]
    return sorted(records, key=lambda record: (record.timestamp, record.turn, record.part), reverse=True)


def one_line(record: ColdRecord, most: int = 80) -> str:
    """The beginning of what a record holds; for what a client only named, its name."""
    said = " ".join(record.content[: most * 8].split()) or record.name or f"a {record.kind} that the client named"
    return said if len(said) <= most else said[: most - 1] + "…"


def _listed(memory: Memory, session: str | None, kept: Mapping[tuple[str, str], ColdRecord]) -> Iterator[Drop]:
    found: list[Drop] = []
    told: set[tuple[str, str]] = set()
    for line in islice(logs.newest_first(memory.files, "drops"), LOOKED_BACK):
        place = (str(line.get("session_id", "")), str(line.get("chunk_id", "")))
        if not place[1] or (session is not None and place[0] != session):
            continue
        # A chunk may come back and go again: only its last drop still has the record.
        record = kept.get(place) if place not in told else None
        record = record if record and record.form == "cold" else None
        told.add(place)
        score, threshold = line.get("relevance_score"), line.get("threshold_used")
        found.append(
            Drop(
                chunk_id=place[1],
                session_id=place[0],
                timestamp=str(line.get("timestamp", "")),
                reason=str(line.get("reason", "unknown")),
                relevance_score=float(score) if isinstance(score, int | float) else 0.0,
                threshold_used=float(threshold) if isinstance(threshold, int | float) else None,
                tokens=record.tokens if record else int(line.get("tokens") or 0),
                turn=record.turn if record else int(line.get("turn") or 0),
                summary=one_line(record) if record else "",
                recoverable=record is not None,
                recoverable_until=_date(record.recoverable_until) if record else "",
            )
        )
    found += [_of(record) for place, record in kept.items() if place not in told and record.form == "cold"]
    yield from sorted(found, key=lambda drop: drop.timestamp, reverse=True)


def _of(record: ColdRecord) -> Drop:
    return Drop(
        chunk_id=record.chunk_id,
        session_id=record.session_id,
        timestamp=record.as_dict()["timestamp"],
        reason=record.drop_reason,
        relevance_score=record.relevance_score,
        threshold_used=None,
        tokens=record.tokens,
        turn=record.turn,
        summary=one_line(record),
        recoverable=True,
        recoverable_until=_date(record.recoverable_until),
    )


def _date(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d}"
