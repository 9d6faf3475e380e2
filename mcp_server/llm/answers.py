"""What an endpoint says, read with care: anybody may have written it."""

from __future__ import annotations

from mcp_server.errors import Unavailable
from mcp_server.llm import Completion, LlmUnavailable

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
