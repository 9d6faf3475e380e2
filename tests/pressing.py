"""Conversations that grow past their limit: small, made up, about a few different things."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import anyio

from mcp_server.app import catch_up, open_memory
from mcp_server.conversations.observe import NewTurn, Observed, observe
from mcp_server.memory import Memory
from mcp_server.model import Caller, Delivery, Role, Turn
from mcp_server.relevance.chunks import LiveChunk
from tests.conftest import KEYWORDS_ONLY

ASKS = Caller(explicit_sessions=True)
USER = Caller(source="cli")
SUBJECTS = (
    "The stone oven in the bakery cracks at three hundred degrees and the rye bread burns",
    "The sailing boat Galeb needs a winter berth in Split harbour and a new mainsail",
    "The tax office wants form seven about the greenhouse, says our accountant Marko",
    "My sister Lena is learning the oboe and plays Telemann with her quartet",
)
"""No two of them share a content word."""

ERRANDS = ("the paint-shed and its ladder", "tulips in bed four of the garden", "the harbour and its winter berth")


def limited(tokens: int, **knobs: object) -> dict[str, str]:
    """An environment with a small live context."""
    given = {"LIMIT_TOKENS": tokens, **{name.upper(): value for name, value in knobs.items()}}
    return {**KEYWORDS_ONLY, **{f"CONTEXT_MANAGER_CONTEXT__{name}": str(value) for name, value in given.items()}}


SMALL = limited(1000, auto_recover=0)
"""Conversations hold 1,000 tokens, and nothing comes back by itself."""


def talk(turns: int, length: int = 3) -> list[NewTurn]:
    """So many turns in `replace`, user and agent by turns; the subject changes every four."""
    return [
        NewTurn(
            "agent" if number % 2 else "user",
            " ".join(f"{SUBJECTS[number // 4 % 4]}, note {number}-{part}." for part in range(length)),
            "s",
            turn_id=f"t{number}",
            delivery="replace",
        )
        for number in range(turns)
    ]


def errand(number: int) -> str:
    """What is said of one of the errands: some 75 tokens."""
    about = ERRANDS[number % 3]
    return f"Part {number}: {about}. " + f"Much was done to {about} on day {number}. " * 5


async def grow(memory: Memory, session: str = "s", turns: int = 12) -> list[str]:
    """A conversation about the errands that `SMALL` compacts on its way; what was said, turn by turn."""
    said = [errand(number) for number in range(1, turns + 1)]
    for content in said:
        await observe(memory, NewTurn("user", content, session, delivery="replace"), USER)
        await catch_up(memory)
    return said


async def hold(memory: Memory, turns: list[NewTurn]) -> list[Observed]:
    """Observes turns, one after the other."""
    return [await observe(memory, turn, ASKS) for turn in turns]


async def say(memory: Memory, text: str, role: str = "user", session: str = "s", **more: object) -> Observed:
    """Observes one message in `replace`."""
    turn = NewTurn(role, text, session, delivery="replace")
    return await observe(memory, replace(turn, **more), ASKS)  # type: ignore[arg-type]


def converse(
    workspace: Path, said: Iterable[tuple[Role, str]], session: str, delivery: Delivery | None = "replace"
) -> None:
    """A conversation in the environment of the test, for commands to find: in one go, since each command opens anew."""

    async def all_of_it() -> None:
        async with open_memory(workspace, os.environ) as memory:
            for role, content in said:
                turn = NewTurn(role, content, session, delivery=delivery)
                await observe(memory, turn, Caller(source="cli", explicit_sessions=True, folder=str(Path.cwd())))

    anyio.run(all_of_it)


def forms(chunks: list[LiveChunk]) -> dict[int, str]:
    """Turn number → how its words stand."""
    return {chunk.turn: chunk.form for chunk in chunks if chunk.part == 0 and chunk.has_text}


def about(turns: tuple[Turn, ...], subject: int) -> set[int]:
    """The numbers of the turns on one subject."""
    return {turn.number for turn in turns if turn.content.startswith(SUBJECTS[subject])}
