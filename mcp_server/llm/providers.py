"""The providers of LLMs, and `choose`, which creates the ones that the settings name.

The first call imports the package and creates its client. The packages retry failed calls and wait as long as
`retry-after` says; the caller sets the deadline of the whole call. Answers are untrusted.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from anyio.to_thread import run_sync

from mcp_server.endpoints import PLAIN, careful
from mcp_server.errors import Unavailable
from mcp_server.llm import Completion, LlmUnavailable, Provider, Purpose
from mcp_server.settings import Settings

MOST_BYTES = 4_000_000
"""Most bytes of an answer. The longest requested answer has about ten thousand."""

MOST_TOKENS = 100_000_000
"""A count above this is invalid: no call uses that many."""

NO_KEY = "none"
"""The key for endpoints without one: the package requires a value."""

KEYS: Mapping[str, str] = {"anthropic": "ANTHROPIC_API_KEY", "openai": "OPENAI_API_KEY"}
"""The environment variable with each provider's key, by default."""

MODELS: Mapping[str, tuple[str | None, str | None]] = {
    "anthropic": ("claude-sonnet-5-5", "claude-haiku-5-5"),
    "openai": (None, None),
}
"""The default models for texts and for questions."""


@dataclass(slots=True)
class _Provider:
    """One model behind a package's client."""

    model: str
    key: str
    base_url: str | None
    retries: int
    _client: Any = None

    async def complete(self, prompt: str, max_tokens: int) -> Completion:
        """Returns one answer. Raises LlmUnavailable."""
        if self._client is None:
            self._client = await run_sync(self._connected)
        try:
            text, *counts = await self._answer([{"role": "user", "content": prompt}], max_tokens)
        except (AttributeError, IndexError, TypeError, ValueError) as error:  # a garbled answer
            raise LlmUnavailable(f"{self.model} gave an answer that cannot be read: {error}") from error
        except Exception as error:
            if not isinstance(error, (Unavailable, self._errors())):
                raise
            # The package may have wrapped an Unavailable that `endpoints` raised.
            reason = error.__cause__ if isinstance(error.__cause__, Unavailable) else error
            raise LlmUnavailable(f"{self.model} gave no answer: {reason}") from error
        if not isinstance(text, str):
            raise LlmUnavailable(f"{self.model} gave an answer that cannot be read: it is not text")
        return Completion(text, *map(_count, counts))

    def _connected(self) -> Any:
        raise NotImplementedError

    def _errors(self) -> Any:
        """Returns the base class of the package's errors."""
        raise NotImplementedError

    async def _answer(self, messages: Any, max_tokens: int) -> tuple[object, object, object]:
        """Returns text, input tokens and output tokens as the endpoint gives them."""
        raise NotImplementedError

    def _options(self, http_client: type[Any]) -> dict[str, Any]:
        return {
            "api_key": self.key,
            "base_url": self.base_url,
            "max_retries": self.retries,
            "default_headers": PLAIN,
            "http_client": http_client(**careful(MOST_BYTES)),
        }


class AnthropicProvider(_Provider):
    """A model behind Anthropic's Messages API (extra `anthropic`)."""

    def _connected(self) -> Any:
        from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient  # takes a second

        return AsyncAnthropic(**self._options(DefaultAsyncHttpxClient))

    def _errors(self) -> Any:
        from anthropic import AnthropicError

        return AnthropicError

    async def _answer(self, messages: Any, max_tokens: int) -> tuple[object, object, object]:
        from anthropic.types import TextBlock

        answer = await self._client.messages.create(model=self.model, max_tokens=max_tokens, messages=messages)
        text = "".join(block.text for block in answer.content if isinstance(block, TextBlock))
        return text, answer.usage.input_tokens, answer.usage.output_tokens


class OpenAIProvider(_Provider):
    """A model behind OpenAI's Chat Completions API, or another endpoint with that API (extra `openai`)."""

    def _connected(self) -> Any:
        from openai import AsyncOpenAI, DefaultAsyncHttpxClient  # takes half a second

        return AsyncOpenAI(**self._options(DefaultAsyncHttpxClient))

    def _errors(self) -> Any:
        from openai import OpenAIError

        return OpenAIError

    async def _answer(self, messages: Any, max_tokens: int) -> tuple[object, object, object]:
        # OpenAI's newer models refuse `max_tokens` and `temperature`; other endpoints may support only these.
        limits: dict[str, Any] = (
            {"max_tokens": max_tokens, "temperature": 0} if self.base_url else {"max_completion_tokens": max_tokens}
        )
        answer = await self._client.chat.completions.create(model=self.model, messages=messages, **limits)
        used = answer.usage
        counts = (used.prompt_tokens, used.completion_tokens) if used else (None, None)
        return answer.choices[0].message.content or "", *counts


def _count(value: object) -> int | None:
    known = isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MOST_TOKENS
    return value if known else None  # type: ignore[return-value]  # `known` checks the type


@dataclass(frozen=True, slots=True)
class Chosen:
    """The models in the settings: `large` for texts, `small` for questions, `own` for single purposes. `problem` says
    why there are none."""

    large: Provider | None = None
    small: Provider | None = None
    problem: str | None = None
    own: Mapping[Purpose, Provider] = field(default_factory=dict)


def choose(settings: Settings, environ: Mapping[str, str]) -> Chosen:
    """Returns the models in the settings. Their key comes from the environment."""
    knobs, name = settings.llm, settings.llm.provider
    if name == "none":
        return Chosen()
    without = "everything works without an LLM, with slightly worse results"
    if importlib.util.find_spec(name) is None:
        how = f"pip install 'context-manager-mcp[{name}]'"
        return Chosen(problem=f"llm.provider is {name}, whose package is missing ({how}); {without}")
    variable = knobs.key_variable or KEYS[name]
    key = environ.get(variable)
    if not key and not (name == "openai" and knobs.base_url):
        return Chosen(problem=f"llm.provider is {name}, and no key is in ${variable}; {without}")
    given = (knobs.model, knobs.small_model)
    large, small = (chosen or known for chosen, known in zip(given, MODELS[name], strict=True))
    if not large:
        return Chosen(problem=f"llm.provider is {name}, but llm.model is not set; {without}")
    kind = AnthropicProvider if name == "anthropic" else OpenAIProvider

    def provider(model: str) -> Provider:
        return kind(model, key or NO_KEY, knobs.base_url, knobs.retries)

    own: dict[Purpose, str | None] = {
        "gate": settings.watchers.gate_model,
        "commit message": settings.git.commit_message_model,
    }
    models = {purpose: provider(model) for purpose, model in own.items() if model}
    return Chosen(provider(large), provider(small or large), own=models)
