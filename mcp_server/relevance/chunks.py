"""Chunks: the pieces of a session's live context, their score and their forms, and the records of chunks in cold
storage.

A cold record is one line of JSON: the chunk, its place, the text shown in its place, and why it was dropped.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from typing import Any, Literal, get_args

from pydantic import TypeAdapter

from mcp_server.model import ToolCall, Turn
from mcp_server.settings import Context
from mcp_server.text.markdown import json_line, second_text

AGAIN_PER = 0.05  # curation is due again with every further 5% of the limit
CHECKPOINT_PER = 0.10  # a checkpoint is due again with every further 10% of the client's window
GROWTH_SHARE = 0.20
GROWTH_WINDOW = timedelta(minutes=5)  # growth by more than a fifth in five minutes raises an alarm


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


def step_of(share: float, trigger: float, per: float) -> int:
    """Returns 0 below the trigger, 1 from the trigger on, and one more for each further `per`. When the step rises, the
    action of the trigger is due: curation, or a checkpoint, because the client may compact its window without
    notice."""
    return 0 if share < trigger else 1 + math.floor((share - trigger) / per + 1e-9)


def grows_fast(seen: list[tuple[datetime, int]], now: datetime, tokens: int) -> bool:
    """Returns whether the context grew by more than a fifth within five minutes. `seen` are earlier readings, oldest
    first."""
    earlier = [count for moment, count in seen if now - moment <= GROWTH_WINDOW and count > 0]
    return bool(earlier) and tokens > earlier[0] * (1 + GROWTH_SHARE)


RECENT_HOURS = 1.0


@dataclass(frozen=True, slots=True)
class ChunkScore:
    """A score with its terms: `total` is their sum."""

    similarity: float
    recency: float
    important: float

    @property
    def total(self) -> float:
        return self.similarity + self.recency + self.important


def score(similarity: float, age_hours: float, important: bool, knobs: Context) -> ChunkScore:
    """Returns the score of a chunk with this scaled similarity (0 to 1) and age (0 or more)."""
    similar = similarity if similarity >= knobs.memfas_min_score else 0.0
    return ChunkScore(
        similarity=knobs.memfas_weight * similar,
        recency=knobs.recency_bonus * max(0.0, 1 - max(0.0, age_hours) / RECENT_HOURS),
        important=knobs.importance_boost if important else 0.0,
    )


ChunkKind = Literal["message", "tool", "file", "skill", "agent"]

Form = Literal["whole", "one line", "summary", "excerpt", "cold"]
"""The form of a chunk in the live context: whole, shortened (cold storage has the original), or cold."""


@dataclass(frozen=True, slots=True)
class LiveChunk:
    """One piece of the live context. `part` is 0 for a turn's text, n for its nth tool call. `tokens` are those of its
    present form, `shown` is its text in that form if it is a summary or an excerpt. `name` is the tool's name, or the
    client's name for the file. `immune` is the exchange until which an automatic recovery protects it."""

    id: str
    kind: ChunkKind
    turn: int
    part: int
    tokens: int
    added: datetime
    form: Form = "whole"
    shown: str | None = None
    one_line: int | None = None
    name: str = ""
    important: bool = False
    system: bool = False
    immune: int = 0
    accesses: int = 1
    accessed: datetime | None = None
    tags: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    mtime: datetime | None = None

    @property
    def has_text(self) -> bool:
        """Returns whether the transcript has its text. Items that a client only named have none."""
        return self.kind in ("message", "tool")


@dataclass(frozen=True, slots=True)
class Standing:
    """The form of a chunk that is not whole; `shown` is its text in that form, if it has another one."""

    id: str
    kind: ChunkKind
    turn: int
    part: int
    form: Form
    shown: str | None = None
    name: str = ""


Action = Literal["keep", "one line", "summarise", "drop", "excerpt"]


@dataclass(frozen=True, slots=True)
class Decision:
    """What happens to a chunk, and the reason in words. `tokens` are the expected ones afterwards."""

    chunk: LiveChunk
    action: Action
    score: float
    why: str
    tokens: int


def chunk_id(session: str, place: str) -> str:
    """Returns the id of a chunk: `c` and 11 hex digits, the same for the same place in the same session."""
    return "c" + hashlib.sha256(f"{session}\0{place}".encode()).hexdigest()[:11]


def tool_line(call: ToolCall) -> str:
    """Returns a tool call with its result, as in the transcript."""
    return f"[tool:{call.name}] {call.summary}" + (f" → {call.result}" if call.result else "")


LONGEST_COUNTED = 200_000
"""Characters that are counted. The tokens of a longer text are extrapolated from its beginning."""


def estimated(text: str, count: Callable[[str], int]) -> int:
    """Returns the tokens of a text; an estimate if it is very long."""
    if len(text) <= LONGEST_COUNTED:
        return count(text)
    return round(count(text[:LONGEST_COUNTED]) * len(text) / LONGEST_COUNTED)


def chunks_of(session: str, turn: Turn, count: Callable[[str], int]) -> Iterator[LiveChunk]:
    """Yields the chunks of one turn, at least one: its text, unless there are only tool calls, and each call."""
    if turn.content or not turn.tool_calls:
        yield LiveChunk(
            id=chunk_id(session, f"{turn.number}.0"),
            kind="message",
            turn=turn.number,
            part=0,
            tokens=estimated(turn.content, count),
            added=turn.at,
            important=turn.important,
            system=turn.role == "system",
        )
    for part, call in enumerate(turn.tool_calls, start=1):
        yield LiveChunk(
            id=chunk_id(session, f"{turn.number}.{part}"),
            kind="tool",
            turn=turn.number,
            part=part,
            tokens=estimated(tool_line(call), count),
            added=turn.at,
            one_line=count(tool_line(replace(call, result=""))),
            name=call.name,
            important=turn.important,
        )


def text_of(turn: Turn, part: int) -> str:
    """Returns the original text of a turn's chunk."""
    return turn.content if part == 0 else tool_line(turn.tool_calls[part - 1])


def original_of(chunk: LiveChunk, turn: Turn | None) -> str | None:
    """Returns the original text of a chunk; None for an item that a client only named, or if the turn is missing."""
    if turn is None or not chunk.has_text or chunk.part > len(turn.tool_calls):
        return None
    return text_of(turn, chunk.part)


def as_shown(turn: Turn, chunks: Mapping[int, LiveChunk | Standing]) -> Turn | None:
    """Returns the turn as the live set has it: without cold chunks, and with the short text of shortened ones; None if
    nothing is left. `chunks` are those of this turn, by part; a part without a chunk is whole."""

    def text(part: int, whole: str) -> str:
        chunk = chunks.get(part)
        return whole if chunk is None or chunk.form == "whole" else chunk.shown or ""

    cold = {part for part, chunk in chunks.items() if chunk.form == "cold"}
    calls = tuple(
        replace(call, result=text(part, call.result))
        for part, call in enumerate(turn.tool_calls, start=1)
        if part not in cold
    )
    shown = replace(turn, content="" if 0 in cold else text(0, turn.content), tool_calls=calls)
    return shown if shown.content or shown.tool_calls else None


DropReason = Literal[
    "low_relevance", "compaction", "summarised", "one_line", "excerpt", "asked", "session_end", "wound_back"
]
"""Why a chunk was dropped or shortened. A chunk that was `wound_back` (by a restored checkpoint) is never recovered
automatically."""


@dataclass(frozen=True, slots=True)
class ColdRecord:
    """A chunk in cold storage. `content` is its original text; empty if the client gave only its name. `form` is the
    form that the chunk has in the live context (`cold`: none), `shown` its text there. `immune` is as in `LiveChunk`.
    `exchange` is the number of the session's exchanges when it left, 0 if unknown."""

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
        size, until = chunk.tokens if tokens is None else tokens, now + timedelta(days=keep_days)
        same = {name: getattr(chunk, name) for name in ("kind", "turn", "part", "name", "form", "shown", "immune")}
        return cls(chunk.id, session, now, content, size, reason, score, prompt, until, exchange=exchange, **same)

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


_RECORD = TypeAdapter(ColdRecord)
_OTHERWISE = {"drop_reason": (DropReason, "asked"), "kind": (ChunkKind, "message"), "form": (Form, "cold")}
"""Fields with known values, and the value that replaces an unknown one (of a newer version)."""


def read_record(line: str) -> ColdRecord:
    """Returns the record of a line. Raises ValueError if it is invalid."""
    stored = json.loads(line)
    if not isinstance(stored, dict):
        raise ValueError("a cold record is a JSON object")
    for name, (known, otherwise) in _OTHERWISE.items():
        if name in stored and stored[name] not in get_args(known):
            stored[name] = otherwise
    return _RECORD.validate_python(stored)
