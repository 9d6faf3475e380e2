"""The costs of LLM calls by day and purpose, in the state, so that all processes share one cap."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal

from mcp_server.storage.state import State
from mcp_server.storage.values import Place

Entries = Mapping[Place, Any]

NAMESPACE, RESERVED = "llm", "llm reserved"
EMBEDDING = "embedding"
"""The purpose of calls of a paid embedder; they do not count towards the LLM's daily cap."""

KEPT_DAYS = 400


@dataclass(frozen=True, slots=True)
class Spent:
    """Number of calls (`failed` ones included), tokens in and out, and US dollars if prices are known."""

    calls: int = 0
    failed: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    usd: float = 0.0

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Spent) -> Spent:
        tokens = self.input_tokens + other.input_tokens, self.output_tokens + other.output_tokens
        return Spent(self.calls + other.calls, self.failed + other.failed, *tokens, round(self.usd + other.usd, 9))


class LlmLedger:
    """The ledger of one workspace. A day is the user's calendar date, as YYYY-MM-DD."""

    def __init__(self, state: State) -> None:
        self._state = state

    async def reserve(
        self, day: str, call: str, most: Spent, now: datetime, until: datetime, tokens: int, usd: float
    ) -> Literal["tokens", "usd"] | None:
        """Reserves the cost of a call, which is at most `most`. If the call could exceed a cap, reserves nothing and
        returns the name of the cap.

        The calls and reservations of all processes count towards the caps `tokens` and `usd`. A reservation ends with
        `enter`, or at `until` if its process died.
        """

        def reserved(stored: Entries) -> tuple[Literal["tokens", "usd"] | None, Entries]:
            others = stored.get((RESERVED, day), {}).items()
            kept = {other: one for other, one in others if datetime.fromisoformat(one["until"]) > now}
            spent = _of_llm(stored.get((NAMESPACE, day), {})) + most
            spent = sum((_read(one) for one in kept.values()), spent)
            if spent.tokens > tokens or spent.usd > usd:
                return ("tokens" if spent.tokens > tokens else "usd"), {}
            kept[call] = {**asdict(most), "until": until.isoformat()}
            return None, {(RESERVED, day): kept}

        passed = await self._state.change_entries([(RESERVED, day), (NAMESPACE, day)], reserved)
        if old := [other for other in await self._state.keys_of(RESERVED) if other < day]:
            await self._state.remove(RESERVED, *old)
        return passed

    async def enter(self, day: str, call: str | None, purpose: str, spent: Spent) -> None:
        """Adds a call to the ledger in place of its reservation, if it has one. Drops days after about a year."""

        def entered(stored: Entries) -> tuple[None, Entries]:
            written: dict[Place, Any] = {}
            kept = dict(stored.get((RESERVED, day), {}))
            if call is not None and kept.pop(call, None) is not None:
                written[RESERVED, day] = kept
            purposes = stored.get((NAMESPACE, day), {})
            written[NAMESPACE, day] = {**purposes, purpose: asdict(_read(purposes.get(purpose, {})) + spent)}
            return None, written

        await self._state.change_entries([(RESERVED, day), (NAMESPACE, day)], entered)
        if old := sorted(await self._state.keys_of(NAMESPACE))[:-KEPT_DAYS]:
            await self._state.remove(NAMESPACE, *old)

    async def of_day(self, day: str) -> Spent:
        """Returns the LLM's costs on a day, for all purposes except embedding."""
        return _of_llm(await self._state.get(NAMESPACE, day) or {})

    async def days(self) -> dict[str, dict[str, Spent]]:
        """Returns the costs by day and purpose, oldest day first."""
        found = await self._state.entries(NAMESPACE)
        return {day: {purpose: _read(one) for purpose, one in found[day].items()} for day in sorted(found)}


def _of_llm(purposes: Mapping[str, Mapping[str, float]]) -> Spent:
    return sum((_read(one) for name, one in purposes.items() if name != EMBEDDING), Spent())


def _read(stored: Mapping[str, Any]) -> Spent:
    return Spent(**{name: stored[name] for name in Spent.__dataclass_fields__ if name in stored})
