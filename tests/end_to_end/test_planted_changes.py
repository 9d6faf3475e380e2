"""Thirty values that change in the course of working conversations: afterward the current one is found."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from mcp_server.app import catch_up, open_memory
from mcp_server.context.compile import CompileRequest, compile_context
from mcp_server.conversations import sessions
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.knowledge.extract import extract
from mcp_server.memory import Memory
from mcp_server.model import Caller
from mcp_server.search.search import SearchRequest, search

CHANGES = json.loads((Path(__file__).parent / "planted_changes.json").read_text("utf-8"))
"""`old` and `new` are the messages that state a value and its change; `value` and `was` are the two values."""

CARRIERS = Path(__file__).parents[2] / "benchmarks" / "conversations" / "train"
CALLER = Caller(source="test", client="test", explicit_sessions=True)
BETWEEN = 40
"""Messages of another conversation between a value and its change."""


@dataclass(frozen=True)
class Outcome:
    """What search and the compiled context give for the prompt of one change: `is_found_first` tells whether the
    current value is among the hits of a search, before the older one."""

    prompt: str
    is_found_first: bool
    is_compiled: bool


def messages(carrier: str, changes: Sequence[dict[str, Any]]) -> tuple[list[Any], list[Any]]:
    """Returns the messages before and after the carrier's middle, with the values first and their changes last."""
    label = json.loads((CARRIERS / f"{carrier}.json").read_text("utf-8"))
    filler = [(turn["role"], turn["content"]) for session in label["sessions"] for turn in session["turns"]]
    fill = iter(filler)

    def mixed(part: str) -> Iterator[tuple[str, str]]:
        for change in changes:
            yield next(fill)
            yield from map(tuple, change[part])

    before = [*mixed("old"), *(next(fill) for _ in range(BETWEEN))]
    return before, list(mixed("new"))


async def tell(memory: Memory, session: str, said: Sequence[Any], at: datetime) -> None:
    for place, (role, content) in enumerate(said):
        turn = NewTurn(role=role, content=content, session=session, at=at + timedelta(minutes=2 * place))
        await observe(memory, turn, CALLER)


async def outcomes(home: Path, carrier: str, changes: Sequence[dict[str, Any]], two_sessions: bool) -> list[Outcome]:
    async with open_memory(home / carrier, {"HOME": str(home), "CONTEXT_MANAGER_GIT__ENABLED": "false"}) as memory:
        before, after = messages(carrier, changes)
        start = datetime(2026, 11, 2, 9, tzinfo=UTC)
        await tell(memory, "first", before, start)
        if two_sessions:
            await sessions.end_session(memory, "first")
        last = "second" if two_sessions else "first"
        await tell(
            memory, last, after, start + (timedelta(days=2) if two_sessions else timedelta(minutes=2 * len(before)))
        )
        await sessions.end_session(memory, last)
        await extract(memory)
        await catch_up(memory)
        return [await outcome(memory, one) for one in changes]


async def outcome(memory: Memory, change: dict[str, Any]) -> Outcome:
    new, old = change["value"], change["was"]
    found = await search(memory, SearchRequest(change["prompt"], limit=10))
    texts = [hit.passage.text.lower() for hit in found.hits]
    of_new = next((place for place, text in enumerate(texts) if new in text), len(texts))
    of_old = next((place for place, text in enumerate(texts) if old in text and new not in text), len(texts))
    compiled = (await compile_context(memory, CompileRequest(message=change["prompt"], budget=2048), CALLER)).text
    return Outcome(change["prompt"], of_new < of_old, new in compiled.lower())


@pytest.mark.anyio
async def test_after_a_change_search_and_compiled_context_give_the_current_value(tmp_path: Path) -> None:
    found: list[Outcome] = []
    for carrier, part, two_sessions in (("a1", CHANGES[:15], False), ("g4", CHANGES[15:], True)):
        found += await outcomes(tmp_path, carrier, part, two_sessions)
    for wrong in ([one for one in found if not one.is_compiled], [one for one in found if not one.is_found_first]):
        assert len(wrong) <= 2, wrong
