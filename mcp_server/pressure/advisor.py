"""Advisor: what could leave a context that fills up, and what that would save (S2).

It only proposes: in `observe`'s answer from 70% on, and whenever it is asked. What it saw stands afterwards in
`.local/advisor/{session}.json`, written behind the turn's back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from anyio.to_thread import run_sync

from mcp_server.conversations import sessions
from mcp_server.memory import Memory
from mcp_server.model import Delivery, Turn
from mcp_server.pressure import log
from mcp_server.pressure.advise import MOST, QUIET, Advice, advise
from mcp_server.pressure.advisor_items import ContextItem, items_of
from mcp_server.pressure.advisor_report import message, state_of
from mcp_server.relevance.chunks import ChunkKind, LiveChunk
from mcp_server.relevance.gauges import Gauges
from mcp_server.relevance.live_set import gauges, holders
from mcp_server.relevance.similar import query_of

HOLDERS: tuple[ChunkKind, ...] = ("file", "skill", "agent", "tool")
"""Kinds of chunks that items are found in."""


@dataclass(frozen=True, slots=True)
class Look:
    """One look at a session's context: the advice, and what it is made from. `chunks` are those that may hold items,
    without cold ones; `problem` is what is wrong with the user's own lexicon."""

    advice: Advice
    items: tuple[ContextItem, ...]
    gauges: Gauges
    delivery: Delivery
    chunks: tuple[LiveChunk, ...]
    turns: Mapping[int, Turn]
    prompt: str
    problem: str = ""


async def note(memory: Memory, session: str, client_tokens: int | None) -> str:
    """What `observe`'s answer says of it: empty under 70%, or with `advisor.enabled` off."""
    if not memory.settings.advisor.enabled:
        return ""
    full = await gauges(memory, session, client_tokens)
    if full.advised < QUIET:
        return ""
    seen = await look(memory, session, client_tokens=client_tokens)
    keep(memory, session, seen)
    said = message(seen.advice, seen.gauges.advised, seen.delivery)
    return "\n".join(filter(None, (said, seen.problem)))


async def look(
    memory: Memory,
    session: str,
    prompt: str | None = None,
    *,
    client_tokens: int | None = None,
    asked: bool = False,
    most: int | None = MOST,
) -> Look:
    """The advisor's whole view, with at most so many recommendations. Without a prompt it is for the user's last
    message; the client's own count is by default the last one that it gave. Writes nothing."""
    row = await sessions.require(memory, session)
    turns = await sessions.session_turns(memory, session)
    chunks = await holders(memory, session, HOLDERS)
    full = await gauges(memory, session, client_tokens)
    asks = query_of(turns) if prompt is None else prompt
    delivery = row.delivery or "add"
    now = memory.clock()
    growing = log.growing(await memory.live.readings(session), full, now)
    by_number = {turn.number: turn for turn in turns}

    def judged() -> tuple[Advice, list[ContextItem], str]:
        lexicon, problem = memory.lexicon()
        items = items_of(chunks, by_number, estimated=delivery == "add")
        said = advise(
            items,
            asks,
            full.advised,
            now,
            lexicon,
            first_prompt=sum(turn.role == "user" for turn in turns) <= 1,
            growing=growing,
            asked=asked,
            most=most,
        )
        return said, items, problem

    said, items, problem = await run_sync(judged)
    return Look(said, tuple(items), full, delivery, tuple(chunks), by_number, asks, problem)


def keep(memory: Memory, session: str, seen: Look) -> None:
    """Leaves what was seen in the session's state file, a little later."""
    full = seen.gauges
    tokens = full.live_tokens if full.client_tokens is None else full.client_tokens
    memory.advisor.put_later(session, state_of(session, seen.advice, seen.items, tokens, full.limit, memory.clock()))
