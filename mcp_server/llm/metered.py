"""LLM calls within the day's cap and the timeout, each recorded in the ledger and the log; and queues of such work.

Log and ledger hold the purpose and cost of a call, never its prompt. A queue is a namespace of the state, so that it
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
    """Calls `ask` with the key and value of every entry of `queue`, and returns how many it changed. An entry without
    an answer, or that no longer exists (NotFound), is dropped.

    Does nothing without an LLM, or while another process works on the queue: each answer costs money.
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
"""Less than an average token in any language, so that the estimate is too high rather than too low."""

LATE = timedelta(seconds=60)
"""A reserved call that is not recorded this long after its timeout belongs to a process that died."""

LONGEST_ERROR = 300
ECHO = 24
"""Characters of the prompt that, found in an endpoint's error message, remove all of that message."""


@dataclass(frozen=True, slots=True)
class MeteredLlm:
    """The `Llm` of a memory. `large` writes texts, `small` answers questions; some purposes have a model of their
    `own`, which is priced like the small one."""

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
        """Returns the answer's text. Raises LlmUnavailable: no answer in time, an unreadable one, or the day's cap."""
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
            # If the call cannot be recorded, the caller still gets the answer.
            with anyio.CancelScope(shield=True), contextlib.suppress(OSError, ContextManagerError):
                await self.ledger.enter(day, call, purpose, spent)
                await run_sync(partial(logs.append, self.files, "llm", line))
        return completion.text

    async def _reserve(self, day: str, call: str, provider: Provider, most: Completion, now: datetime) -> None:
        """Refuses a call that may exceed the cap of tokens or dollars, counting the running calls of all processes."""
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


def _tokens(text: str) -> int:
    return math.ceil(len(text.encode("utf-8", "replace")) / BYTES_A_TOKEN)


def _counted(done: Completion, most: Completion) -> Completion:
    """Returns the answer with estimated counts where the endpoint gives none."""
    return Completion(
        done.text,
        most.input_tokens if done.input_tokens is None else done.input_tokens,
        _tokens(done.text) if done.output_tokens is None else done.output_tokens,
    )


def _said(error: Exception, prompt: str) -> str:
    """Returns the error on one line without secrets; if an endpoint quotes the prompt, only that it does."""
    said = str(error) or type(error).__name__
    if any(said[start : start + ECHO] in prompt for start in range(0, len(said) - ECHO, 4)):
        return "the endpoint refused it, and quoted what it was asked"
    return clipped(neutralise(redact(said).text), LONGEST_ERROR)


_TOMORROW = "until tomorrow what needs none goes on"


# ---------------------------------------------------------------- costs


@dataclass(frozen=True, slots=True)
class Costs:
    """The costs of a period: by `days` and `purposes`; `month` extrapolates to thirty days. `today` is the LLM's alone,
    which has a cap.

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
    """Records the embedder's costs since the last call, if it has any. A kill loses costs that were not recorded."""
    calls, tokens = memory.embedder.take_spent() if isinstance(memory.embedder, Metered) else (0, 0)
    if calls:
        usd = round(tokens * memory.settings.search.embedding_price / 1e6, 9)
        day = memory.local_date(memory.clock())
        await LlmLedger(memory.state).enter(day, None, EMBEDDING, Spent(calls, 0, tokens, 0, usd))
