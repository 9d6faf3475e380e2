"""Which provider the settings mean.

    small, large, problem = providers("anthropic", …)

Nothing is imported or connected before the first call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anyio.to_thread import run_sync

from mcp_server.endpoints import PLAIN, careful
from mcp_server.errors import Unavailable
from mcp_server.llm import Completion, LlmUnavailable

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic


from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from openai import AsyncOpenAI


import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from mcp_server.llm import Provider, Purpose

MOST_BYTES = 4_000_000
"""Of one answer: the longest that is asked for has some ten thousand."""

MOST_TOKENS = 100_000_000
"""More than any call takes: such a count is none."""


def completion(model: str, text: object, input_tokens: object, output_tokens: object) -> Completion:
    """An answer whose text is one, and whose counts are counts or None. Raises LlmUnavailable for any other."""
    if not isinstance(text, str):
        raise LlmUnavailable(f"{model} gave an answer that cannot be read: it is no text")
    return Completion(text, _count(input_tokens), _count(output_tokens))


def reason(error: Exception) -> str:
    """Why there is no answer: what we refused to read, where a package has put an error of its own around that."""
    return str(error.__cause__ if isinstance(error.__cause__, Unavailable) else error)


def _count(value: object) -> int | None:
    known = isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MOST_TOKENS
    return value if known else None  # type: ignore[return-value]  # `known` says so


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


Name = Literal["none", "anthropic", "openai"]

KEYS: Mapping[str, str] = {"anthropic": "ANTHROPIC_API_KEY", "openai": "OPENAI_API_KEY"}
"""The variable that each provider's key is in, unless the settings name another."""

MODELS: Mapping[str, tuple[str | None, str | None]] = {
    "anthropic": ("claude-sonnet-5-5", "claude-haiku-5-5"),
    "openai": (None, None),
}
"""The model for texts and the small one for questions, where the settings name none."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """One model for texts, a small one for questions, and those that some purposes have for their `own`; `problem` says
    why there are none."""

    large: Provider | None = None
    small: Provider | None = None
    problem: str | None = None
    own: Mapping[Purpose, Provider] = field(default_factory=dict)


def choose(
    name: Name,
    *,
    model: str | None,
    small_model: str | None,
    base_url: str | None,
    key_variable: str,
    key: str | None,
    retries: int,
    own: Mapping[Purpose, str] | None = None,
) -> Chosen:
    """The providers called `name`; `key` is what the variable `key_variable` holds."""
    if name == "none":
        return Chosen()
    without = "everything works without one, a little less well"
    if importlib.util.find_spec(name) is None:
        return Chosen(problem=f"llm.provider is {name}, whose package is missing (pip install {name}); {without}")
    if not key and not (name == "openai" and base_url):
        return Chosen(problem=f"llm.provider is {name}, and no key is in ${key_variable}; {without}")
    large, small = (given or known for given, known in zip((model, small_model), MODELS[name], strict=True))
    if not large:
        return Chosen(problem=f"llm.provider is {name}, and llm.model names no model; {without}")
    models = {purpose: _one(name, one, key, base_url, retries) for purpose, one in (own or {}).items()}
    small = small or large
    return Chosen(_one(name, large, key, base_url, retries), _one(name, small, key, base_url, retries), own=models)


def _one(name: Name, model: str, key: str | None, base_url: str | None, retries: int) -> Provider:
    if name == "anthropic":
        pass

        return AnthropicProvider(model, key or "", base_url, retries)
    pass

    return OpenAIProvider(model, key, base_url, retries)
