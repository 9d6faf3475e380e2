"""Which provider the settings mean.

    small, large, problem = providers("anthropic", …)

Nothing is imported or connected before the first call.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from mcp_server.llm import Provider, Purpose

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
        from mcp_server.llm.anthropic import AnthropicProvider

        return AnthropicProvider(model, key or "", base_url, retries)
    from mcp_server.llm.openai import OpenAIProvider

    return OpenAIProvider(model, key, base_url, retries)
