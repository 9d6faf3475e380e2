"""What LLM calls cost, day by day and purpose by purpose: in state.db, so that all processes share one cap."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal

from mcp_server.storage.local.state import State

NAMESPACE, RESERVED = "llm", "llm reserved"
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

    async def reserve(
        self, day: str, call: str, most: Spent, now: datetime, until: datetime, tokens: int, usd: float
    ) -> Literal["tokens", "usd"] | None:
        """Keeps room for a call that may take as much as `most`; which cap it may pass, and then none is kept.

        What was entered and what other calls of any process have reserved counts. A reservation is over with `enter`,
        or at `until`, should its process have died.
        """

        def reserve(connection: sqlite3.Connection) -> Literal["tokens", "usd"] | None:
            kept = {
                other: one
                for other, one in _stored(connection, RESERVED, day).items()
                if datetime.fromisoformat(one["until"]) > now
            }
            spent = _of_llm(_stored(connection, NAMESPACE, day)) + most
            spent = sum((_read(one) for one in kept.values()), spent)
            if spent.tokens > tokens or spent.usd > usd:
                return "tokens" if spent.tokens > tokens else "usd"
            _store(connection, RESERVED, day, {**kept, call: {**asdict(most), "until": until.isoformat()}})
            connection.execute("DELETE FROM entries WHERE namespace = ? AND key < ?", (RESERVED, day))
            return None

        return await self._state.write(reserve)

    async def enter(self, day: str, call: str | None, purpose: str, spent: Spent) -> None:
        """Enters a call in the place of what was reserved for it (None: nothing was); days of more than about a year
        ago are dropped."""

        def enter(connection: sqlite3.Connection) -> None:
            reserved = _stored(connection, RESERVED, day)
            if call is not None and reserved.pop(call, None) is not None:
                _store(connection, RESERVED, day, reserved)
            purposes = _stored(connection, NAMESPACE, day)
            _store(connection, NAMESPACE, day, {**purposes, purpose: asdict(_read(purposes.get(purpose)) + spent)})
            connection.execute(
                "DELETE FROM entries WHERE namespace = ?1 AND key NOT IN"
                " (SELECT key FROM entries WHERE namespace = ?1 ORDER BY key DESC LIMIT ?2)",
                (NAMESPACE, KEPT_DAYS),
            )

        await self._state.write(enter)

    async def of_day(self, day: str) -> Spent:
        """What the LLM took on a day, for everything."""
        return _of_llm(await self._state.get(NAMESPACE, day) or {})

    async def days(self) -> dict[str, dict[str, Spent]]:
        """Day → purpose → what was spent, the oldest day first."""
        found = await self._state.entries(NAMESPACE)
        return {day: {purpose: _read(one) for purpose, one in found[day].items()} for day in sorted(found)}


def _of_llm(purposes: Mapping[str, Mapping[str, float]]) -> Spent:
    return sum((_read(one) for name, one in purposes.items() if name != EMBEDDING), Spent())


def _stored(connection: sqlite3.Connection, namespace: str, day: str) -> dict[str, Any]:
    row = connection.execute("SELECT value FROM entries WHERE namespace = ? AND key = ?", (namespace, day)).fetchone()
    found = json.loads(row[0]) if row else {}
    return found if isinstance(found, dict) else {}


def _store(connection: sqlite3.Connection, namespace: str, day: str, value: Mapping[str, Any]) -> None:
    row = (namespace, day, json.dumps(value))
    connection.execute("INSERT OR REPLACE INTO entries VALUES (?, ?, ?)", row)


def _read(stored: Mapping[str, float] | None) -> Spent:
    known = {name: value for name, value in (stored or {}).items() if name in Spent.__dataclass_fields__}
    return Spent(**known)  # type: ignore[arg-type]  # JSON numbers, as `asdict` wrote them
