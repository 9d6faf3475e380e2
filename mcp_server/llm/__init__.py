"""LLMs: a prompt in, a text out. Optional everywhere: whoever asks has a deterministic fallback.

`Llm` is what actions see; it logs every call, keeps the day's cap and never waits longer than its time-out. `Provider`
is what one file here is for each kind of endpoint.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from mcp_server.errors import Unavailable

Purpose = Literal["gate", "summary", "enrichment", "extraction", "review", "commit message"]
"""What a call is for, as log and `costs` name it."""


class LlmUnavailable(Unavailable):
    """No usable answer: time-out, refusal, garbage, the day's cap. The caller takes its fallback."""


@dataclass(frozen=True, slots=True)
class Completion:
    """An answer with what it cost, in tokens as the provider counts them; None where it does not."""

    text: str
    input_tokens: int | None
    output_tokens: int | None


class Provider(Protocol):
    """One kind of endpoint."""

    @property
    def model(self) -> str:
        """The model's name, as log and prices write it."""
        ...

    async def complete(self, prompt: str, max_tokens: int) -> Completion:
        """One call. Raises LlmUnavailable; time-outs, retries and `retry-after` are the provider's own."""
        ...


class Llm(Protocol):
    """What an action may ask."""

    @property
    def model(self) -> str:
        """The model that writes texts."""
        ...

    async def complete(self, prompt: str, *, purpose: Purpose, max_tokens: int) -> str:
        """The answer's text. Raises LlmUnavailable where there is none within time and budget."""
        ...
