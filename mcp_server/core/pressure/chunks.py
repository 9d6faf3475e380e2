"""Chunks: the pieces of a session's live context, and what may become of them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

ChunkKind = Literal["message", "tool", "file", "skill", "agent"]
Form = Literal["whole", "one line", "summary", "excerpt"]
"""How a live chunk is shown: as it was said, or shortened, its original then being in cold storage."""


@dataclass(frozen=True, slots=True)
class LiveChunk:
    """One piece of the live context.

    `tokens` are those of its present form; `one_line` what it would have as one line (tool results). `system` is what
    no rule may take away: system messages. `immune` chunks were recovered a short while ago.
    """

    id: str
    kind: ChunkKind
    turn: int
    tokens: int
    added: datetime
    form: Form = "whole"
    one_line: int | None = None
    important: bool = False
    anchored: bool = False
    system: bool = False
    immune: bool = False


Action = Literal["keep", "one line", "summarise", "drop", "excerpt"]


@dataclass(frozen=True, slots=True)
class Decision:
    """What is to become of a chunk, and why, in words a person knows. `tokens` are expected afterwards."""

    chunk: LiveChunk
    action: Action
    score: float
    why: str
    tokens: int
