"""The interfaces of LLMs, which return a text for a prompt. An LLM is optional: every caller has a deterministic
fallback.

Actions use an `Llm`, which logs every call and enforces the daily cap and the timeout. A `Provider` is one kind of
endpoint.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from mcp_server.errors import Unavailable

Purpose = Literal["gate", "summary", "review", "commit message"]
"""The purpose of a call in the log and in `costs`."""


class LlmUnavailable(Unavailable):
    """There is no usable answer: a timeout, a refusal, an unreadable answer, or the daily cap is reached. The caller
    uses its fallback."""


@dataclass(frozen=True, slots=True)
class Completion:
    """An answer and its tokens as the provider counts them; None if the provider does not."""

    text: str
    input_tokens: int | None
    output_tokens: int | None


class Provider(Protocol):
    """One kind of endpoint."""

    @property
    def model(self) -> str:
        """Returns the model's name in the log and in prices."""
        ...

    async def complete(self, prompt: str, max_tokens: int) -> Completion:
        """Returns one answer. Raises LlmUnavailable. The provider handles timeouts, retries and `retry-after`."""
        ...


class Llm(Protocol):
    """The interface of an LLM for actions."""

    @property
    def model(self) -> str:
        """Returns the model that writes texts."""
        ...

    async def complete(self, prompt: str, *, purpose: Purpose, max_tokens: int) -> str:
        """Returns the answer's text. Raises LlmUnavailable if there is none within time and budget."""
        ...
