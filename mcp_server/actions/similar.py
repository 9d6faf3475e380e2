"""Similar: what of a session's context is about the message at hand, by the ordinary search.

Scores are scaled so that the best piece has 1. Where the gate lets nothing pass they say nothing, and all are 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mcp_server.actions.search import SearchRequest, find
from mcp_server.core.model import Turn
from mcp_server.core.pressure.chunks import LiveChunk
from mcp_server.core.text.words import TALK_WORDS, content_words
from mcp_server.memory import Memory

LEAST_CONTENT_WORDS = 3
"""A message with fewer is scored together with those before it: "ok, thanks" must not clear a session."""

TOGETHER = 3
"""A short message goes with the two before it; where these say too little as well, with more."""

MORE_HITS = 50

LONGEST_QUERY = 20_000
"""Characters of a message that chunks are compared with."""


@dataclass(frozen=True, slots=True)
class Similar:
    """What compares with the message. `scaled` holds chunk ids with 0 < similarity ≤ 1; `unknown` the chunks that
    nobody could compare: the message itself, what came with it, and what the index does not know yet.

    `tells` says whether anything can be judged by it: the message itself says something, and the gate is open.
    """

    query: str
    gate_open: bool
    scaled: Mapping[str, float] = field(default_factory=dict)
    unknown: frozenset[str] = frozenset()
    hits: int = 0
    tells: bool = False


async def similar(memory: Memory, session: str, chunks: Sequence[LiveChunk], turns: Sequence[Turn]) -> Similar:
    """Compares `chunks` (of any form) of a session with what was said last in `turns`, its turns, oldest first.

    What a client only named is compared by the words of its name and tags.
    """
    asking = asking_turns(turns)
    query = "\n".join(turn.content for turn in asking)
    first = asking[0].number if asking else 0
    if not query.strip():
        return Similar(query, False, unknown=frozenset(chunk.id for chunk in chunks))
    found = await find(
        memory,
        SearchRequest(
            query=query,
            limit=len(turns) + MORE_HITS,
            scope="all",
            session=session,
            exclude_session=session,
            exclude_from=first,
            operators=False,
        ),
    )
    known = await memory.index.last_turn(session)
    last = first - 1 if known is None else min(first - 1, known)
    unknown = frozenset(chunk.id for chunk in chunks if chunk.has_text and chunk.turn > last)
    if not found.gate.open:
        return Similar(query, False, unknown=unknown, hits=len(found.hits))
    by_turn: dict[int, float] = {}
    for hit in found.hits:
        turn = hit.passage.turn or 0
        by_turn[turn] = max(hit.score, by_turn.get(turn, 0.0))
    by_name = _by_name(chunks, query)
    of_chunks = {chunk.id: by_turn.get(chunk.turn, 0.0) for chunk in chunks if chunk.has_text}
    best = max((value for chunk, value in of_chunks.items() if chunk not in unknown), default=0.0)
    scaled = {chunk: value / best for chunk, value in of_chunks.items() if value > 0 and best > 0} | by_name
    tells = len(content_words(asking[-1].content, TALK_WORDS)) >= LEAST_CONTENT_WORDS
    return Similar(query, True, scaled, unknown, len(found.hits), tells)


def asking_turns(turns: Sequence[Turn]) -> list[Turn]:
    """The user's turns that a message is understood by: the last one; if that says little, with the two before it, and
    with more until there is something to go by."""
    asking: list[Turn] = []
    for turn in reversed(turns):
        if turn.role != "user":
            continue
        asking.insert(0, turn)
        words = {word for one in asking for word in content_words(one.content, TALK_WORDS)}
        if len(words) >= LEAST_CONTENT_WORDS and len(asking) in (1, *range(TOGETHER, len(turns) + 1)):
            break
    return asking


def query_of(turns: Sequence[Turn]) -> str:
    """The words that chunks are compared with: of a pasted log its beginning."""
    return "\n".join(turn.content[:LONGEST_QUERY] for turn in asking_turns(turns))


def _by_name(chunks: Sequence[LiveChunk], query: str) -> dict[str, float]:
    """Of what clients named, the share of the message's words that stand in its name, tags and topics."""
    asked = set(content_words(query))
    shares = {}
    for chunk in chunks:
        if not chunk.has_text and asked:
            named = set(content_words(" ".join((chunk.name, *chunk.tags, *chunk.topics))))
            if share := len(asked & named) / len(asked):
                shares[chunk.id] = share
    return shares
