"""Costs: what LLM calls and embeddings took, by day, purpose and month (S4 §12)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta

from mcp_server.embed import Metered
from mcp_server.memory import Memory
from mcp_server.storage.llm_ledger import EMBEDDING, LlmLedger, Spent


@dataclass(frozen=True, slots=True)
class Costs:
    """What was spent: `days` and `purposes` of the period, and `month`: what thirty days like these would be. `today`
    is the LLM's alone, which has a cap.

    `priced` is False if the settings give no prices, so that only tokens are known.
    """

    provider: str
    since: str
    today: Spent
    total: Spent
    month: Spent
    days: Mapping[str, Spent]
    purposes: Mapping[str, Spent]
    daily_tokens: int
    daily_usd: float
    priced: bool


async def costs(memory: Memory, days: int = 30) -> Costs:
    """What the last so many days cost, today among them; days without a call are left out."""
    today = memory.local_date(memory.clock())
    since = (date.fromisoformat(today) - timedelta(days=days - 1)).isoformat()
    knobs = memory.settings.llm
    await enter_embeddings(memory)
    of_days: dict[str, Spent] = {}
    purposes: dict[str, Spent] = {}
    ledger = LlmLedger(memory.state)
    for day, spent in (await ledger.days()).items():
        if since <= day <= today:
            of_days[day] = sum(spent.values(), Spent())
            for purpose, one in spent.items():
                purposes[purpose] = purposes.get(purpose, Spent()) + one
    total = sum(of_days.values(), Spent())
    share = 30 / days
    month = Spent(
        round(total.calls * share),
        round(total.failed * share),
        round(total.input_tokens * share),
        round(total.output_tokens * share),
        round(total.usd * share, 4),
    )
    return Costs(
        provider=knobs.provider,
        since=since,
        today=await ledger.of_day(today),
        total=total,
        month=month,
        days=of_days,
        purposes=dict(sorted(purposes.items(), key=lambda item: (-item[1].usd, -item[1].tokens))),
        daily_tokens=knobs.daily_tokens,
        daily_usd=knobs.daily_usd,
        priced=any(
            (
                knobs.input_price,
                knobs.output_price,
                knobs.small_input_price,
                knobs.small_output_price,
                memory.settings.search.embedding_price,
            )
        ),
    )


async def enter_embeddings(memory: Memory) -> None:
    """Enters what the embedder took since the last time, if it is one that costs; a kill loses what was not entered."""
    calls, tokens = memory.embedder.take_spent() if isinstance(memory.embedder, Metered) else (0, 0)
    if calls:
        usd = round(tokens * memory.settings.search.embedding_price / 1e6, 9)
        day = memory.local_date(memory.clock())
        await LlmLedger(memory.state).enter(day, None, EMBEDDING, Spent(calls, 0, tokens, 0, usd))
