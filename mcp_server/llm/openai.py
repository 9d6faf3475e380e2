"""OpenAI's chat completions, and every endpoint that speaks like them, through its package (extra `openai`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anyio.to_thread import run_sync

from mcp_server.endpoints import PLAIN, careful
from mcp_server.errors import Unavailable
from mcp_server.llm import Completion, LlmUnavailable
from mcp_server.llm.answers import MOST_BYTES, completion, reason

if TYPE_CHECKING:
    from openai import AsyncOpenAI

NO_KEY = "none"
"""Endpoints on one's own machine want no key, but the package wants one to send."""


class OpenAIProvider:
    """One model. The package retries what is worth it, and waits as long as `retry-after` says; the deadline of the
    whole is the caller's."""

    def __init__(self, model: str, api_key: str | None, base_url: str | None, retries: int) -> None:
        self.model = model
        self._api_key = api_key or NO_KEY
        self._base_url = base_url
        self._retries = retries
        self._client: AsyncOpenAI | None = None

    async def complete(self, prompt: str, max_tokens: int) -> Completion:
        """One call. Raises LlmUnavailable."""
        if self._client is None:
            self._client = await run_sync(self._connected)
        client = self._client
        from openai import OpenAIError

        # OpenAI's newer models refuse `max_tokens` and any temperature; other endpoints may know nothing else.
        limits: dict[str, Any] = (
            {"max_tokens": max_tokens, "temperature": 0} if self._base_url else {"max_completion_tokens": max_tokens}
        )
        try:
            answer = await client.chat.completions.create(
                model=self.model, messages=[{"role": "user", "content": prompt}], **limits
            )
            text, used = answer.choices[0].message.content or "", answer.usage
            counts = (used.prompt_tokens, used.completion_tokens) if used else (None, None)
            return completion(self.model, text, *counts)
        except (OpenAIError, Unavailable) as error:
            raise LlmUnavailable(f"{self.model} gave no answer: {reason(error)}") from error
        except (AttributeError, IndexError, TypeError, ValueError) as error:  # what it makes of a garbled answer
            raise LlmUnavailable(f"{self.model} gave an answer that cannot be read: {error}") from error

    def _connected(self) -> AsyncOpenAI:
        from openai import AsyncOpenAI, DefaultAsyncHttpxClient  # takes half a second

        return AsyncOpenAI(
            api_key=self._api_key,
            base_url=self._base_url,
            max_retries=self._retries,
            default_headers=PLAIN,
            http_client=DefaultAsyncHttpxClient(**careful(MOST_BYTES)),
        )
