"""Asking an LLM: within the day's cap and the time-out, each call entered in the ledger and in the log.

Log and ledger keep what a call was for and what it cost, never what was asked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from time import perf_counter

import anyio
from anyio.to_thread import run_sync

from mcp_server.errors import ContextManagerError
from mcp_server.llm import Completion, LlmUnavailable, Provider, Purpose
from mcp_server.settings import LlmSection
from mcp_server.store import logs
from mcp_server.store.files import WorkspaceFiles
from mcp_server.store.llm_ledger import LlmLedger, Spent

SMALL: frozenset[Purpose] = frozenset(("gate", "commit message"))
"""What the small model is asked."""

CHARACTERS_A_TOKEN = 3
"""Fewer than a token has in most texts: a call is refused rather than the cap passed."""


@dataclass(frozen=True, slots=True)
class MeteredLlm:
    """The `Llm` of a memory. `large` writes texts, `small` answers questions; some purposes have a model of their
    `own`, which is priced as the small one is."""

    large: Provider
    small: Provider
    knobs: LlmSection
    ledger: LlmLedger
    files: WorkspaceFiles
    clock: Callable[[], datetime]
    local_date: Callable[[datetime], str]
    own: Mapping[Purpose, Provider] = field(default_factory=dict)

    @property
    def model(self) -> str:
        """The model that writes texts."""
        return self.large.model

    async def complete(self, prompt: str, *, purpose: Purpose, max_tokens: int) -> str:
        """The answer's text. Raises LlmUnavailable: no answer in time, none that can be read, or the day's cap."""
        provider = self.own.get(purpose) or (self.small if purpose in SMALL else self.large)
        now = self.clock()
        day = self.local_date(now)
        await self._within_cap(day, provider, prompt, max_tokens)
        started = perf_counter()
        spent, outcome, error = Spent(calls=1, failed=1), "cancelled", ""
        try:
            with anyio.fail_after(self.knobs.timeout_seconds):
                completion = await provider.complete(prompt, max_tokens)
            spent, outcome = self._cost(provider, completion), "ok"
            if not completion.text.strip():
                spent, outcome = spent + Spent(failed=1), "empty"
                raise LlmUnavailable(f"{provider.model} gave an empty answer")
        except TimeoutError:
            outcome, error = "time-out", f"no answer from {provider.model} in {self.knobs.timeout_seconds:g} s"
            raise LlmUnavailable(f"{error} (llm.timeout_seconds)") from None
        except LlmUnavailable as failed:
            outcome, error = "empty" if outcome == "empty" else "failed", str(failed)
            raise
        finally:
            seconds = perf_counter() - started
            with anyio.CancelScope(shield=True):
                await self._enter(now, day, purpose, provider.model, spent, outcome, error, seconds)
        return completion.text

    async def _within_cap(self, day: str, provider: Provider, prompt: str, max_tokens: int) -> None:
        """Refuses a call that may pass the cap of tokens or dollars."""
        spent = await self.ledger.of_day(day)
        most = Completion("", math.ceil(len(prompt) / CHARACTERS_A_TOKEN), max_tokens)
        after = spent + self._cost(provider, most)
        if after.tokens > self.knobs.daily_tokens:
            raise LlmUnavailable(
                f"the day's cap of {self.knobs.daily_tokens:,} LLM tokens is reached (llm.daily_tokens); {_TOMORROW}"
            )
        if after.usd > self.knobs.daily_usd:
            raise LlmUnavailable(f"the day's cap of ${self.knobs.daily_usd:g} is reached (llm.daily_usd); {_TOMORROW}")

    def _cost(self, provider: Provider, done: Completion) -> Spent:
        knobs = self.knobs
        small = provider is not self.large
        prices = (
            (knobs.small_input_price, knobs.small_output_price) if small else (knobs.input_price, knobs.output_price)
        )
        usd = (done.input_tokens * prices[0] + done.output_tokens * prices[1]) / 1e6
        return Spent(1, 0, done.input_tokens, done.output_tokens, round(usd, 9))

    async def _enter(
        self, now: datetime, day: str, purpose: Purpose, model: str, spent: Spent, outcome: str, error: str, took: float
    ) -> None:
        """Into ledger and log. Neither failing costs the caller the answer."""
        line = {
            "at": now.isoformat(),
            "purpose": purpose,
            "model": model,
            "outcome": outcome,
            "input_tokens": spent.input_tokens,
            "output_tokens": spent.output_tokens,
            "usd": spent.usd,
            "ms": round(took * 1000),
            **({"error": error[:500]} if error else {}),
        }
        try:
            await self.ledger.add(day, purpose, spent)
            await run_sync(partial(logs.append, self.files, "llm", line))
        except (OSError, ContextManagerError):
            return


_TOMORROW = "until tomorrow what needs none goes on"
