"""Anthropic's Messages API, through its own package (extra `anthropic`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anyio.to_thread import run_sync

from mcp_server.endpoints import PLAIN, careful
from mcp_server.errors import Unavailable
from mcp_server.llm import Completion, LlmUnavailable
from mcp_server.llm.answers import MOST_BYTES, completion, reason

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic


class AnthropicProvider:
    """One model. The package retries what is worth it, and waits as long as `retry-after` says; the deadline of the
    whole is the caller's."""

    def __init__(self, model: str, api_key: str, base_url: str | None, retries: int) -> None:
        self.model = model
        self._api_key = api_key
        self._base_url = base_url
        self._retries = retries
        self._client: AsyncAnthropic | None = None

    async def complete(self, prompt: str, max_tokens: int) -> Completion:
        """One call. Raises LlmUnavailable."""
        if self._client is None:
            self._client = await run_sync(self._connected)
        client = self._client
        from anthropic import AnthropicError
        from anthropic.types import TextBlock

        try:
            answer = await client.messages.create(
                model=self.model, max_tokens=max_tokens, messages=[{"role": "user", "content": prompt}]
            )
            text = "".join(block.text for block in answer.content if isinstance(block, TextBlock))
            return completion(self.model, text, answer.usage.input_tokens, answer.usage.output_tokens)
        except (AnthropicError, Unavailable) as error:
            raise LlmUnavailable(f"{self.model} gave no answer: {reason(error)}") from error
        except (AttributeError, TypeError, ValueError) as error:  # what the package makes of a garbled answer
            raise LlmUnavailable(f"{self.model} gave an answer that cannot be read: {error}") from error

    def _connected(self) -> AsyncAnthropic:
        from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient  # takes a second

        return AsyncAnthropic(
            api_key=self._api_key,
            base_url=self._base_url,
            max_retries=self._retries,
            default_headers=PLAIN,
            http_client=DefaultAsyncHttpxClient(**careful(MOST_BYTES)),
        )
