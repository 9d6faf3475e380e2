"""Runs the advisor for a session: what can be removed from a context that fills up, and how much that saves.

It only proposes: in `observe`'s answer from 70% on, with a prompt of a client with hooks once for each phase, and
whenever it is asked. The result is written to `.local/advisor/{session}.json` a moment later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from anyio.to_thread import run_sync

from mcp_server.conversations import sessions
from mcp_server.memory import Memory
from mcp_server.model import Delivery, Turn
from mcp_server.pressure import log
from mcp_server.pressure.advise import MOST, QUIET, Advice, advise, message, phase_of, state_of
from mcp_server.relevance.advisor_items import ContextItem, items_of, with_contents
from mcp_server.relevance.chunks import ChunkKind, LiveChunk
from mcp_server.relevance.gauges import Gauges
from mcp_server.relevance.live_set import gauges, holders
from mcp_server.relevance.similar import query_of

HOLDERS: tuple[ChunkKind, ...] = ("file", "skill", "agent", "tool")
"""Kinds of chunks that can contain items."""

ADVISED = "advised"
"""Namespace of the state: session → the phase that its user was last told of."""

MOST_WITH_PROMPT, MOST_TOKENS = 3, 150
"""Recommendations and tokens of advice that comes with a prompt."""


Contents = Mapping[str, Sequence[str]]
"""Path of a file → the texts that tools returned of it."""


@dataclass(frozen=True, slots=True)
class AdvisorView:
    """The advisor's view of a session: the advice and its inputs. `chunks` are those that can contain items, without
    cold ones; `problem` is an error in the user's lexicon."""

    advice: Advice
    items: tuple[ContextItem, ...]
    gauges: Gauges
    delivery: Delivery
    chunks: tuple[LiveChunk, ...]
    turns: Mapping[int, Turn]
    prompt: str
    problem: str = ""


async def note(memory: Memory, session: str, client_tokens: int | None) -> str:
    """Returns the advice for `observe`'s answer; empty under 70%, or if `advisor.enabled` is off."""
    if not memory.settings.advisor.enabled:
        return ""
    full = await gauges(memory, session, client_tokens)
    if full.advised < QUIET:
        return ""
    view = await view_of(memory, session, client_tokens=client_tokens)
    save(memory, session, view)
    said = message(view.advice, view.gauges.advised, view.delivery)
    return "\n".join(filter(None, (said, view.problem)))


async def with_prompt(memory: Memory, session: str, prompt: str, read: Callable[[], Contents] = dict) -> str:
    """Returns the advice that a client's hook adds to a prompt: from 70% of the client's window on, once for each
    phase, in at most `MOST_TOKENS` tokens. Empty if there is none.

    `read` returns what the client's transcript says was read of each file. It is called only if there is advice.
    """
    if not memory.settings.advisor.enabled or await memory.state.session(session) is None:
        return ""
    phase = phase_of((await gauges(memory, session)).advised)
    if phase == (await memory.state.get(ADVISED, session) or "quiet"):
        return ""
    await memory.state.put(ADVISED, session, phase)
    if phase == "quiet":
        return ""
    contents = await run_sync(read)
    for most in range(MOST_WITH_PROMPT, -1, -1):
        view = await view_of(memory, session, prompt, most=most, contents=contents)
        said = message(view.advice, view.gauges.advised, view.delivery)
        if memory.tokens.count(said) <= MOST_TOKENS:
            save(memory, session, view)
            return said
    return ""


async def view_of(
    memory: Memory,
    session: str,
    prompt: str | None = None,
    *,
    client_tokens: int | None = None,
    asked: bool = False,
    most: int | None = MOST,
    contents: Contents = MappingProxyType({}),
) -> AdvisorView:
    """Returns the advisor's view of a session, with at most `most` recommendations (None: all). Writes nothing.

    Without a prompt the user's last message is used; without `client_tokens`, the client's last count. Files in
    `contents` have the size and the description of what was read of them; others have an estimate.
    """
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
        items = [
            with_contents(item, contents.get(item.path, ()), memory.tokens.count)
            for item in items_of(chunks, by_number, estimated=delivery == "add")
        ]
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
    return AdvisorView(said, tuple(items), full, delivery, tuple(chunks), by_number, asks, problem)


def save(memory: Memory, session: str, view: AdvisorView) -> None:
    """Writes the view to the session's state file, a moment later."""
    full = view.gauges
    tokens = full.live_tokens if full.client_tokens is None else full.client_tokens
    memory.advisor.put_later(session, state_of(session, view.advice, view.items, tokens, full.limit, memory.clock()))
