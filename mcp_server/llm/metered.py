"""Calls LLMs within the daily cap and the timeout, and records each call in the ledger and the log. `work_off` works
through a queue of such calls.

Log and ledger have the purpose and cost of a call, never its prompt. A queue is a namespace of the state, so that it
survives a crash and every process can add to it.
"""

from __future__ import annotations

import contextlib
import logging
import math
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from functools import partial
from time import perf_counter
from typing import Any

import anyio
from anyio.to_thread import run_sync

from mcp_server.embed import Metered
from mcp_server.errors import ContextManagerError, NotFound
from mcp_server.llm import Completion, LlmUnavailable, Provider, Purpose
from mcp_server.memory import Memory
from mcp_server.settings import LlmSection
from mcp_server.storage import logs
from mcp_server.storage.files import Files
from mcp_server.storage.llm_ledger import EMBEDDING, LlmLedger, Spent
from mcp_server.text.fencing import neutralise
from mcp_server.text.prose import clipped
from mcp_server.text.redaction import redact

log = logging.getLogger(__name__)


async def work_off(memory: Memory, queue: str, ask: Callable[[str, Any], Awaitable[bool]]) -> int:
    """Calls `ask` with the key and value of every entry of `queue`, and returns how many calls returned True. Removes
    each entry from the queue, even if `ask` raised a ContextManagerError.

    Does nothing without an LLM, or while another process works on the queue, because each call costs money.
    """
    waiting = await memory.state.entries(queue) if memory.llm is not None else {}
    held = await run_sync(memory.locks.try_exclusive, queue) if waiting else None
    if held is None:
        return 0
    changed = 0
    with held:
        for key, value in waiting.items():
            try:
                changed += await ask(key, value)
            except NotFound:
                pass
            except ContextManagerError as error:
                log.warning("%s %s failed: %s", queue, key, error)
            await memory.state.remove(queue, key)
    return changed


SMALL: frozenset[Purpose] = frozenset(("gate", "commit message"))
"""Purposes for which the small model is used."""

BYTES_A_TOKEN = 3
"""Bytes of a token in estimates. An average token of any language has more, so the estimate is rather too high."""

LATE = timedelta(seconds=60)
"""A reserved call that is not recorded this long after its timeout belongs to a process that died."""

LONGEST_ERROR = 300
ECHO = 24
"""If an endpoint's error message has this many consecutive characters of the prompt, the message is omitted."""


@dataclass(frozen=True, slots=True)
class MeteredLlm:
    """The `Llm` of a memory. The model `large` writes texts, `small` answers questions. `own` has the models of single
    purposes, which are priced like the small one."""

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
        """Returns the model that writes texts."""
        return self.large.model

    async def complete(self, prompt: str, *, purpose: Purpose, max_tokens: int) -> str:
        """Returns the answer's text. Raises LlmUnavailable if there is no usable answer in time, or if the call could
        exceed the daily cap."""
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
            spent, outcome = self._cost(provider, _with_estimates(completion, most)), "ok"
            if not completion.text.strip():
                spent, outcome = spent + Spent(failed=1), "empty"
                raise LlmUnavailable(f"{provider.model} gave an empty answer")
        except TimeoutError:
            outcome, error = "time-out", f"no answer from {provider.model} in {self.knobs.timeout_seconds:g} s"
            raise LlmUnavailable(f"{error} (llm.timeout_seconds)") from None
        except Exception as failed:  # third-party code may raise anything, and the text of an endpoint is untrusted
            outcome, error = "empty" if outcome == "empty" else "failed", _error_text(failed, prompt)
            raise LlmUnavailable(error) from None
        finally:
            line = {
                "at": now.isoformat(),
                "purpose": purpose,
                "model": provider.model,
                "outcome": outcome,
                "input_tokens": spent.input_tokens,
                "output_tokens": spent.output_tokens,
                "usd": spent.usd,
                "ms": round((perf_counter() - started) * 1000),
                **({"error": error} if error else {}),
            }
            # A failure to record the call must not lose the answer.
            with anyio.CancelScope(shield=True), contextlib.suppress(OSError, ContextManagerError):
                await self.ledger.enter(day, call, purpose, spent)
                await run_sync(partial(logs.append, self.files, "llm", line))
        return completion.text

    async def _reserve(self, day: str, call: str, provider: Provider, most: Completion, now: datetime) -> None:
        """Reserves the greatest possible cost of a call in the ledger. Raises LlmUnavailable if it may exceed the cap
        of tokens or dollars, including the running calls of all processes."""
        until = now + timedelta(seconds=self.knobs.timeout_seconds) + LATE
        most_spent, knobs = self._cost(provider, most), self.knobs
        try:
            over = await self.ledger.reserve(day, call, most_spent, now, until, knobs.daily_tokens, knobs.daily_usd)
        except ContextManagerError as error:  # without the ledger the cap cannot be checked
            raise LlmUnavailable(f"the LLM is not called, because the day's cap cannot be checked: {error}") from error
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
        given, written = done.input_tokens or 0, done.output_tokens or 0
        return Spent(1, 0, given, written, round((given * prices[0] + written * prices[1]) / 1e6, 9))


def _tokens(text: str) -> int:
    return math.ceil(len(text.encode("utf-8", "replace")) / BYTES_A_TOKEN)


def _with_estimates(done: Completion, most: Completion) -> Completion:
    """Returns the answer; missing token counts are estimated."""
    return Completion(
        done.text,
        most.input_tokens if done.input_tokens is None else done.input_tokens,
        _tokens(done.text) if done.output_tokens is None else done.output_tokens,
    )


def _error_text(error: Exception, prompt: str) -> str:
    """Returns the error on one line without secrets. Omits a message that quotes the prompt."""
    said = str(error) or type(error).__name__
    if any(said[start : start + ECHO] in prompt for start in range(0, len(said) - ECHO, 4)):
        return "the endpoint refused the prompt and quoted it, so its message is omitted"
    return clipped(neutralise(redact(said).text), LONGEST_ERROR)


_TOMORROW = "until tomorrow only what needs no LLM works"


# ---------------------------------------------------------------- costs


@dataclass(frozen=True, slots=True)
class Costs:
    """The costs of a period, also by `days` and `purposes`; `month` extrapolates to thirty days. `today` has only the
    costs of the LLM, which the daily cap limits.

    `priced` is False if the settings give no prices; then only tokens are known.
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
    """Returns the costs of the last `days` days including today; days without a call are left out."""
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
    prices = (knobs.input_price, knobs.output_price, knobs.small_input_price, knobs.small_output_price)
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
        priced=any((*prices, memory.settings.search.embedding_price)),
    )


async def enter_embeddings(memory: Memory) -> None:
    """Records the embedder's costs since the last call, if it has any. If the process is killed, costs
    that were not recorded are lost."""
    calls, tokens = memory.embedder.take_spent() if isinstance(memory.embedder, Metered) else (0, 0)
    if calls:
        usd = round(tokens * memory.settings.search.embedding_price / 1e6, 9)
        day = memory.local_date(memory.clock())
        await LlmLedger(memory.state).enter(day, None, EMBEDDING, Spent(calls, 0, tokens, 0, usd))
