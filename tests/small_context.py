"""A memory whose conversations hold 1,000 tokens, in which nothing comes back by itself, and one that has grown."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from mcp_server.app import catch_up, open_memory
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.memory import Memory
from mcp_server.model import Caller
from tests.conftest import KEYWORDS_ONLY, Clock

SMALL = {
    **KEYWORDS_ONLY,
    "CONTEXT_MANAGER_CONTEXT__LIMIT_TOKENS": "1000",
    "CONTEXT_MANAGER_CONTEXT__AUTO_RECOVER": "0",
}
USER = Caller(source="cli")
SUBJECTS = ("the paint of the fence", "tulips in bed four", "the winter berth")


@asynccontextmanager
async def small_memory(
    place: Path | str, clock: Clock, new_id: Callable[[], str] | None = None
) -> AsyncIterator[Memory]:
    async with open_memory(place, SMALL, clock=clock, new_id=new_id) as memory:
        yield memory


def words(number: int) -> str:
    """What is said in turn `number`, counted from 1: some 75 tokens."""
    about = SUBJECTS[number % 3]
    return f"Part {number} is about {about}. " + f"Much was done to {about} on day {number}. " * 5


async def grow(memory: Memory, session: str = "s", turns: int = 12, delivery: str = "replace") -> list[str]:
    """A conversation that is compacted on its way; what was said, turn by turn."""
    said = [words(number) for number in range(1, turns + 1)]
    for content in said:
        await observe(memory, NewTurn("user", content, session=session, delivery=delivery), USER)
        await catch_up(memory)
    return said
