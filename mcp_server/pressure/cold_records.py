"""Cold records: chunks that left the live context and can be recovered.

Each record is one line of JSON: the chunk, its place, the text shown in its place, and why it was dropped.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any, Literal, get_args

from mcp_server.relevance.chunks import ChunkKind, Form, LiveChunk
from mcp_server.text.markdown import json_line, second_text

DropReason = Literal[
    "low_relevance", "compaction", "summarised", "one_line", "excerpt", "asked", "session_end", "wound_back"
]
"""Why a chunk left. A chunk that was `wound_back` (by a restored checkpoint) is never recovered automatically."""


@dataclass(frozen=True, slots=True)
class ColdRecord:
    """A chunk in cold storage. `content` is its original text; empty if the client gave only its name.

    `form` is the form that the chunk has in the live context (`cold`: none), `shown` its text there. `immune` is as in
    `LiveChunk`. `exchange` is the number of the session's exchanges when it left, 0 if unknown.
    """

    chunk_id: str
    session_id: str
    timestamp: datetime
    content: str
    tokens: int
    drop_reason: DropReason
    relevance_score: float
    prompt_at_drop: str
    recoverable_until: datetime
    kind: ChunkKind = "message"
    turn: int = 0
    part: int = 0
    name: str = ""
    form: Form = "cold"
    shown: str | None = None
    immune: int = 0
    exchange: int = 0

    @classmethod
    def of(
        cls,
        chunk: LiveChunk,
        session: str,
        content: str,
        reason: DropReason,
        now: datetime,
        keep_days: float,
        *,
        tokens: int | None = None,
        score: float = 0.0,
        prompt: str = "",
        exchange: int = 0,
    ) -> ColdRecord:
        """Returns the record of a chunk. `tokens` are those of its original text, by default the chunk's own."""
        return cls(
            chunk_id=chunk.id,
            session_id=session,
            timestamp=now,
            content=content,
            tokens=chunk.tokens if tokens is None else tokens,
            drop_reason=reason,
            relevance_score=score,
            prompt_at_drop=prompt,
            recoverable_until=now + timedelta(days=keep_days),
            kind=chunk.kind,
            turn=chunk.turn,
            part=chunk.part,
            name=chunk.name,
            form=chunk.form,
            shown=chunk.shown,
            immune=chunk.immune,
            exchange=exchange,
        )

    def as_line(self) -> str:
        """Returns the record as a line of JSON with a newline."""
        return json_line(self.as_dict(), spaced=True) + "\n"  # invalid UTF-8 is escaped

    def as_dict(self) -> dict[str, Any]:
        """Returns JSON values; times in ISO 8601, UTC."""
        return {one.name: getattr(self, one.name) for one in fields(self)} | {
            "timestamp": second_text(self.timestamp),
            "relevance_score": round(self.relevance_score, 6),
            "recoverable_until": second_text(self.recoverable_until),
        }


def read_record(line: str) -> ColdRecord:
    """Returns the record of a line. Raises ValueError if it is invalid."""
    stored = json.loads(line)
    if not isinstance(stored, Mapping):
        raise ValueError("a cold record is a JSON object")
    try:
        return ColdRecord(
            chunk_id=str(stored["chunk_id"]),
            session_id=str(stored["session_id"]),
            timestamp=datetime.fromisoformat(stored["timestamp"]),
            content=str(stored["content"]),
            tokens=int(stored["tokens"]),
            drop_reason=_one_of(stored["drop_reason"], get_args(DropReason), "asked"),
            relevance_score=float(stored["relevance_score"]),
            prompt_at_drop=str(stored["prompt_at_drop"]),
            recoverable_until=datetime.fromisoformat(stored["recoverable_until"]),
            kind=_one_of(stored.get("kind"), get_args(ChunkKind), "message"),
            turn=int(stored.get("turn", 0)),
            part=int(stored.get("part", 0)),
            name=str(stored.get("name", "")),
            form=_one_of(stored.get("form"), get_args(Form), "cold"),
            shown=stored.get("shown"),
            immune=int(stored.get("immune", 0)),
            exchange=int(stored.get("exchange", 0)),
        )
    except (KeyError, TypeError, OverflowError) as error:
        raise ValueError(f"not a cold record: {error}") from error


def _one_of(value: object, known: tuple[Any, ...], otherwise: Any) -> Any:
    return value if value in known else otherwise
