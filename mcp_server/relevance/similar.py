"""Finds the chunks of a session's context that are similar to a message, by the ordinary search.

Scores are scaled so that the best chunk has 1. A search raises every turn that is short or beside a match, so that an
unrelated turn also has a score; only chunks with a clearly lower score than the rest are dropped. A chunk comes back
automatically only if its own text matches the message. If the gate is closed, scores mean nothing and all are 0.

Measured on the questions of public conversations (LoCoMo and BEAM development halves, wordllama): a limit of half the
best score keeps 94% and 90% of the labeled evidence, and 29% and 55% of the other turns; of the chunks that come back
automatically, 31% and 32% are labeled evidence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from anyio.to_thread import run_sync

from mcp_server.conversations import sessions
from mcp_server.memory import Memory
from mcp_server.model import Hit, Turn
from mcp_server.relevance.chunks import LiveChunk
from mcp_server.search.search import SearchRequest, find
from mcp_server.text.words import TALK_WORDS, bounded, content_words

LEAST_CONTENT_WORDS = 3
"""A message with fewer content words is scored together with those before it: "ok, thanks" must not clear a session."""

TOGETHER = 3
"""Number of messages that are scored together with a short one; more if they have few content words too."""

MORE_HITS = 50

OWN_TERMS = ("keywords", "meaning", "coverage", "phrase")
"""Terms of a search's score (`search/ranking.py`) for a turn's own words, without its neighbors."""

OWN_SHARE = 0.1
"""A turn is about the message if its score from these terms is at least this share of the best turn's score."""


@dataclass(frozen=True, slots=True)
class Similar:
    """How similar the chunks of a session are to the message. `scaled` has chunk ids with 0 < similarity ≤ 1. `unknown`
    has the chunks without a similarity: the message itself, chunks of the same turn, and chunks not yet indexed.

    `tells` is True if the similarities can be used: the message has content words, and the gate is open.
    """

    query: str
    gate_open: bool
    scaled: Mapping[str, float] = field(default_factory=dict)
    unknown: frozenset[str] = frozenset()
    hits: int = 0
    tells: bool = False


@dataclass(frozen=True, slots=True)
class Compared:
    """How similar the turns of a session are to its last message. `scores` has the similar turns by number. `telling`
    has the turns that also say something about the message and do not only repeat its words. Turns after number `last`
    were not compared."""

    query: str
    gate_open: bool = False
    scores: Mapping[int, float] = field(default_factory=dict)
    telling: frozenset[int] = frozenset()
    last: int = 0
    hits: int = 0
    tells: bool = False

    def of(self, chunks: Sequence[LiveChunk]) -> Similar:
        """Returns the similarities of these chunks, scaled so that the best is 1. A chunk without text is compared by
        the words of its name and tags."""
        unknown = frozenset(chunk.id for chunk in chunks if chunk.has_text and chunk.turn > self.last)
        if not self.gate_open:
            return Similar(self.query, False, unknown=unknown, hits=self.hits)
        values = {chunk.id: self.scores.get(chunk.turn, 0.0) for chunk in chunks if chunk.has_text}
        best = max((value for chunk, value in values.items() if chunk not in unknown), default=0.0)
        scaled = {chunk: min(1.0, value / best) for chunk, value in values.items() if value > 0 and best > 0}
        return Similar(self.query, True, scaled | _by_name(chunks, self.query), unknown, self.hits, self.tells)

    def suiting(self, chunks: Sequence[LiveChunk]) -> Mapping[str, float]:
        """Returns the chunks, by id, whose own text matches the message; the best turn of all is scaled to 1."""
        if not self.gate_open:
            return {}
        best = max((self.scores[turn] for turn in self.telling if turn <= self.last), default=0.0)
        found = {
            chunk.id: self.scores[chunk.turn] / best
            for chunk in chunks
            if chunk.has_text and chunk.turn <= self.last and chunk.turn in self.telling
        }
        return found | _by_name(chunks, self.query)


class Lookups:
    """The turns of a session and their similarity to its last message; both are read when they are first needed.

    Valid while the transcript's lock is held."""

    def __init__(self, memory: Memory, session: str, turns: Sequence[Turn] | None = None) -> None:
        self._memory = memory
        self.session = session
        self._turns = turns
        self._compared: Compared | None = None

    async def turns(self) -> Sequence[Turn]:
        """Returns all turns of the session, oldest first."""
        if self._turns is None:
            self._turns = await sessions.session_turns(self._memory, self.session)
        return self._turns

    async def compared(self) -> Compared:
        """Returns their similarity to the last message."""
        if self._compared is None:
            self._compared = await compared(self._memory, self.session, await self.turns())
        return self._compared


async def compared(memory: Memory, session: str, turns: Sequence[Turn]) -> Compared:
    """Compares the turns of a session, oldest first, with its last message."""
    asking = asking_turns(turns)
    query = query_of(turns)
    if not query.strip():
        return Compared(query)
    first = asking[0].number
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
    hits = found.hits if found.gate.open else ()
    scores: dict[int, float] = {}
    for hit in hits:
        turn = hit.passage.turn or 0
        scores[turn] = max(hit.score, scores.get(turn, 0.0))
    telling = await run_sync(_telling, hits, query)
    tells = found.gate.open and len(content_words(bounded(asking[-1].content), TALK_WORDS)) >= LEAST_CONTENT_WORDS
    return Compared(query, found.gate.open, scores, telling, last, len(found.hits), tells)


def _telling(hits: Sequence[Hit], query: str) -> frozenset[int]:
    """Returns the turns whose own text matches a message and does not only repeat it. Hits come best first, so that few
    of them have to be read."""
    said = set(content_words(query))
    by_own = sorted(((math.fsum(hit.terms[name] for name in OWN_TERMS), place) for place, hit in enumerate(hits)))
    least = 0.0
    telling: set[int] = set()
    for value, place in reversed(by_own):
        if value < least or value <= 0:
            break
        passage = hits[place].passage
        if not said.issuperset(content_words(passage.text)):
            least = least or value * OWN_SHARE
            telling.add(passage.turn or 0)
    return frozenset(telling)


def says_something(turn: Turn) -> bool:
    """Returns whether a turn has content words besides words about the conversation itself."""
    return bool(content_words(bounded(turn.content), TALK_WORDS))


def asking_turns(turns: Sequence[Turn]) -> list[Turn]:
    """Returns the user's turns that make up the query: the last one. If it has few content words, the two turns before
    it are added, and then more until there are enough."""
    asking: list[Turn] = []
    said: set[str] = set()
    for turn in reversed(turns):
        if turn.role != "user":
            continue
        asking.insert(0, turn)
        said.update(content_words(bounded(turn.content), TALK_WORDS))
        if len(said) >= LEAST_CONTENT_WORDS and (len(asking) == 1 or len(asking) >= TOGETHER):
            break
    return asking


def query_of(turns: Sequence[Turn]) -> str:
    """Returns the query for the comparison: beginning and end of a long message, or of many messages."""
    return bounded("\n".join(bounded(turn.content) for turn in asking_turns(turns)))


def _by_name(chunks: Sequence[LiveChunk], query: str) -> dict[str, float]:
    """Returns for each named chunk the share of the message's words that its name, tags and topics contain."""
    asked = set(content_words(query))
    shares = {}
    for chunk in chunks:
        if not chunk.has_text and asked:
            named = set(content_words(" ".join((chunk.name, *chunk.tags, *chunk.topics))))
            if share := len(asked & named) / len(asked):
                shares[chunk.id] = share
    return shares
