"""Shared by several benchmarks: temporary workspaces, made-up conversations, a plain BM25, and two statistics."""

from __future__ import annotations

import hashlib
import json
import math
import os
import random
import re
import tempfile
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from itertools import accumulate
from pathlib import Path
from statistics import fmean

from rank_bm25 import BM25Okapi

from mcp_server.app import catch_up, open_memory
from mcp_server.conversations.imports import ImportedSession, ImportedTurn
from mcp_server.memory import Memory
from mcp_server.model import Caller
from mcp_server.text.words import content_words, words

ASKER = Caller(source="bench", client="bench", explicit_sessions=True)
"""A caller without session and folder. It sees what was imported without a project."""

Show = Callable[[float, float, str], None]
"""Called with done, total and a label."""


def unseen(done: float, total: float, label: str = "") -> None:
    """Shows no progress."""


@dataclass(frozen=True, slots=True)
class Workbench:
    """An instance opens workspaces with the settings of `environ`, and shows the progress of a benchmark."""

    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    show: Show = unseen

    def open(self, folder: Path, overrides: Mapping[str, str]) -> AbstractAsyncContextManager[Memory]:
        """Opens a workspace. `overrides` are `CONTEXT_MANAGER_…` variables that replace those of `environ`. If
        CM_BENCH_ADDRESS names a database, opens a workspace there for each folder."""
        address = self.environ.get("CM_BENCH_ADDRESS")
        if not address:
            return open_memory(folder, {**self.environ, **overrides})
        name = hashlib.sha256(str(folder).encode()).hexdigest()[:16]
        joined = "&" if "?" in address else "?"
        return open_memory(f"{address}{joined}workspace=bench-{name}", {**self.environ, **overrides})

    @asynccontextmanager
    async def temporary(self, overrides: Mapping[str, str] | None = None) -> AsyncIterator[tuple[Memory, Path]]:
        """Opens a new workspace and yields its memory and folder. Both are deleted afterwards."""
        with tempfile.TemporaryDirectory(prefix="context-manager-", ignore_cleanup_errors=True) as folder:
            workspace = Path(folder, "workspace")
            async with self.open(workspace, overrides or {}) as memory:
                yield memory, workspace


async def caught_up(memory: Memory) -> None:
    """Indexes all files and lets the recognizer's network read all passages, as a server does in the background."""
    await catch_up(memory)
    while await memory.index.read_ahead(1_000):
        pass


def percentile(values: Sequence[float], share: float) -> float:
    """Returns the smallest value that at least `share` of all values do not exceed (nearest rank); 0 for no values."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0


def mean(values: Collection[float]) -> float:
    """Returns the arithmetic mean; 0 for no values."""
    return fmean(values) if values else 0.0


class Bm25:
    """Ranks texts by textbook BM25 (`rank-bm25`): the baseline of the search."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._ids = list(texts)
        self._ranking = BM25Okapi([words(text) for text in texts.values()]) if texts else None

    def ranked(self, query: str, limit: int) -> list[str]:
        """Returns the ids of the best `limit` texts that share a word with the query, best first."""
        if self._ranking is None:
            return []
        scores = self._ranking.get_scores(content_words(query) or words(query))
        order = sorted(range(len(self._ids)), key=lambda place: -scores[place])
        return [self._ids[place] for place in order[:limit] if scores[place] > 0]


TURNS_A_SESSION = 100
START = datetime(2024, 1, 1, 8, tzinfo=UTC)


class Talk:
    """An instance makes up sentences: words by Zipf's law, and some rare names and numbers. A seed always makes the
    same ones."""

    def __init__(self, seed: int) -> None:
        chats = json.loads((files("mcp_server.demo") / "conversation.json").read_text(encoding="utf-8"))
        said = " ".join(message["text"] for chat in chats for message in chat["chat_messages"])
        self._words = list(dict.fromkeys(re.findall(r"[^\W\d_]{2,}", said.lower())))
        self._weights = list(accumulate(1 / (rank + 1) for rank in range(len(self._words))))
        self._chance = random.Random(seed)

    def sentence(self, length: int) -> str:
        """Returns a sentence of `length` words, about one in twenty of which is rare."""
        chance = self._chance
        words = chance.choices(self._words, cum_weights=self._weights, k=length)
        return " ".join(w if chance.random() > 0.05 else f"{w}{chance.randrange(5000)}" for w in words) + "."

    def turn(self) -> str:
        """Returns 2 to 5 sentences: 16 to 90 words."""
        return " ".join(self.sentence(self._chance.randint(8, 18)) for _ in range(self._chance.randint(2, 5)))

    def question(self) -> str:
        """Returns a question of mostly common words."""
        return "What did we say about " + self.sentence(self._chance.randint(3, 8)).rstrip(".") + "?"


def made_up_sessions(passages: int) -> Iterator[ImportedSession]:
    """Yields conversations with `passages` turns in total. Each turn is one passage."""
    talk = Talk(20)
    for number, first in enumerate(range(0, passages, TURNS_A_SESSION)):
        opened = START + timedelta(hours=5 * number)
        turns = tuple(
            ImportedTurn(
                role="agent" if place % 2 else "user",
                content=talk.turn(),
                at=opened + timedelta(minutes=place),
                turn_id=f"m{place}",
            )
            for place in range(min(TURNS_A_SESSION, passages - first))
        )
        yield ImportedSession(session_id=f"made-up-{number}", turns=turns, source="import:made-up")
