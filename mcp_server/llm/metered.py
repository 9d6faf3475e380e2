"""Asking an LLM: within the day's cap and the time-out, each call entered in the ledger and in the log.

Log and ledger keep what a call was for and what it cost, never what was asked.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from time import perf_counter

import anyio
from anyio.to_thread import run_sync

from mcp_server.errors import ContextManagerError
from mcp_server.llm import Completion, LlmUnavailable, Provider, Purpose
from mcp_server.settings import LlmSection
from mcp_server.storage import logs
from mcp_server.storage.llm_ledger import LlmLedger, Spent
from mcp_server.storage.ports import Files
from mcp_server.text.fencing import neutralise
from mcp_server.text.redaction import redact

SMALL: frozenset[Purpose] = frozenset(("gate", "commit message"))
"""What the small model is asked."""

BYTES_A_TOKEN = 3
"""Fewer than a token has in most texts of any language: a call is refused rather than the cap passed."""

LATE = timedelta(seconds=60)
"""A call that is not entered so long after its time-out was that of a process that died."""

LONGEST_ERROR = 300
ECHO = 24
"""So many characters of what was asked, in what an endpoint says of an error, and none of it is kept."""


@dataclass(frozen=True, slots=True)
class MeteredLlm:
    """The `Llm` of a memory. `large` writes texts, `small` answers questions; some purposes have a model of their
    `own`, which is priced as the small one is."""

    large: Provider
    small: Provider
    knobs: LlmSection
    ledger: LlmLedger
    files: Files
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
        call = secrets.token_hex(8)
        most = Completion("", _tokens(prompt), max_tokens)
        await self._reserve(day, call, provider, most, now)
        started = perf_counter()
        spent, outcome, error = Spent(calls=1, failed=1), "cancelled", ""
        try:
            with anyio.fail_after(self.knobs.timeout_seconds):
                completion = await provider.complete(prompt, max_tokens)
            spent, outcome = self._cost(provider, _counted(completion, most)), "ok"
            if not completion.text.strip():
                spent, outcome = spent + Spent(failed=1), "empty"
                raise LlmUnavailable(f"{provider.model} gave an empty answer")
        except TimeoutError:
            outcome, error = "time-out", f"no answer from {provider.model} in {self.knobs.timeout_seconds:g} s"
            raise LlmUnavailable(f"{error} (llm.timeout_seconds)") from None
        except Exception as failed:  # other people's packages, with answers that anybody may have written
            outcome, error = "empty" if outcome == "empty" else "failed", _said(failed, prompt)
            raise LlmUnavailable(error) from None
        finally:
            seconds = perf_counter() - started
            with anyio.CancelScope(shield=True):
                await self._enter(now, day, call, purpose, provider.model, spent, outcome, error, seconds)
        return completion.text

    async def _reserve(self, day: str, call: str, provider: Provider, most: Completion, now: datetime) -> None:
        """Refuses a call that may pass the cap of tokens or dollars, with all that other processes are just asking."""
        until = now + timedelta(seconds=self.knobs.timeout_seconds) + LATE
        most_spent, knobs = self._cost(provider, most), self.knobs
        try:
            over = await self.ledger.reserve(day, call, most_spent, now, until, knobs.daily_tokens, knobs.daily_usd)
        except ContextManagerError as error:  # without the book nobody knows what is left
            raise LlmUnavailable(f"nothing is asked while the day's cap cannot be kept: {error}") from error
        if over == "tokens":
            raise LlmUnavailable(
                f"the day's cap of {knobs.daily_tokens:,} LLM tokens is reached (llm.daily_tokens); {_TOMORROW}"
            )
        if over == "usd":
            raise LlmUnavailable(f"the day's cap of ${knobs.daily_usd:g} is reached (llm.daily_usd); {_TOMORROW}")

    def _cost(self, provider: Provider, done: Completion) -> Spent:
        knobs = self.knobs
        small = provider is not self.large
        prices = (
            (knobs.small_input_price, knobs.small_output_price) if small else (knobs.input_price, knobs.output_price)
        )
        came, went = done.input_tokens or 0, done.output_tokens or 0
        return Spent(1, 0, came, went, round((came * prices[0] + went * prices[1]) / 1e6, 9))

    async def _enter(
        self,
        now: datetime,
        day: str,
        call: str,
        purpose: Purpose,
        model: str,
        spent: Spent,
        outcome: str,
        error: str,
        took: float,
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
            **({"error": error} if error else {}),
        }
        try:
            await self.ledger.enter(day, call, purpose, spent)
            await run_sync(partial(logs.append, self.files, "llm", line))
        except (OSError, ContextManagerError):
            return


def _tokens(text: str) -> int:
    return math.ceil(len(text.encode("utf-8", "replace")) / BYTES_A_TOKEN)


def _counted(done: Completion, most: Completion) -> Completion:
    """The answer with counts where the endpoint gives none: as many as were reserved for the prompt, and by length."""
    return Completion(
        done.text,
        most.input_tokens if done.input_tokens is None else done.input_tokens,
        _tokens(done.text) if done.output_tokens is None else done.output_tokens,
    )


def _said(error: Exception, prompt: str) -> str:
    """What went wrong, without secrets and on one line. Of an endpoint that quotes what it refuses, only that."""
    said = str(error) or type(error).__name__
    quoted = any(said[start : start + ECHO] in prompt for start in range(0, len(said) - ECHO, 4))
    if quoted:
        return "the endpoint refused it, and quoted what it was asked"
    line = " ".join(neutralise(redact(said).text).split())
    return line if len(line) <= LONGEST_ERROR else line[: LONGEST_ERROR - 1] + "…"


_TOMORROW = "until tomorrow what needs none goes on"
