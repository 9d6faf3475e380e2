"""A hand-written LLM: it answers what it was told to, and remembers what it was asked."""

from __future__ import annotations

from collections.abc import Iterable

from mcp_server.llm import LlmUnavailable, Purpose


class FakeLlm:
    """Gives `answers` in order; an exception among them is raised, and after the last one it is unavailable."""

    model = "fake"

    def __init__(self, answers: Iterable[str | Exception] = ()) -> None:
        self._answers = iter(answers)
        self.asked: list[tuple[Purpose, str]] = []

    async def complete(self, prompt: str, *, purpose: Purpose, max_tokens: int) -> str:
        self.asked.append((purpose, prompt))
        answer = next(self._answers, LlmUnavailable("the fake has no more answers"))
        if isinstance(answer, Exception):
            raise answer
        return answer
