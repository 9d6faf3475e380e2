"""What LLM calls cost, day by day and purpose by purpose: in state.db, so that all processes share one cap."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from mcp_server.store.state import State

NAMESPACE = "llm"
EMBEDDING = "embedding"
"""The purpose under which an embedder that costs is entered; the day's cap is the LLM's alone."""

KEPT_DAYS = 400


@dataclass(frozen=True, slots=True)
class Spent:
    """Calls (`failed` ones among them), tokens in and out, and US dollars as far as prices are known."""

    calls: int = 0
    failed: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    usd: float = 0.0

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Spent) -> Spent:
        return Spent(
            self.calls + other.calls,
            self.failed + other.failed,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            round(self.usd + other.usd, 9),
        )


class LlmLedger:
    """The book. A day is the user's own calendar date, as YYYY-MM-DD."""

    def __init__(self, state: State) -> None:
        self._state = state

    async def add(self, day: str, purpose: str, spent: Spent) -> None:
        """Enters one call; days of more than about a year ago are dropped."""

        def enter(connection: sqlite3.Connection) -> None:
            row = connection.execute(
                "SELECT value FROM entries WHERE namespace = ? AND key = ?", (NAMESPACE, day)
            ).fetchone()
            purposes = json.loads(row[0]) if row else {}
            purposes[purpose] = asdict(_read(purposes.get(purpose)) + spent)
            connection.execute(
                "INSERT OR REPLACE INTO entries VALUES (?, ?, ?)", (NAMESPACE, day, json.dumps(purposes))
            )
            connection.execute(
                "DELETE FROM entries WHERE namespace = ?1 AND key NOT IN"
                " (SELECT key FROM entries WHERE namespace = ?1 ORDER BY key DESC LIMIT ?2)",
                (NAMESPACE, KEPT_DAYS),
            )

        await self._state.write(enter)

    async def of_day(self, day: str) -> Spent:
        """What the LLM took on a day, for everything."""
        purposes = await self._state.get(NAMESPACE, day) or {}
        return sum((_read(one) for name, one in purposes.items() if name != EMBEDDING), Spent())

    async def days(self) -> dict[str, dict[str, Spent]]:
        """Day → purpose → what was spent, the oldest day first."""
        found = await self._state.entries(NAMESPACE)
        return {day: {purpose: _read(one) for purpose, one in found[day].items()} for day in sorted(found)}


def _read(stored: Mapping[str, float] | None) -> Spent:
    known = {name: value for name, value in (stored or {}).items() if name in Spent.__dataclass_fields__}
    return Spent(**known)  # type: ignore[arg-type]  # JSON numbers, as `asdict` wrote them
