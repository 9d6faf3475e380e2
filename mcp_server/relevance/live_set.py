"""The live set: the chunks in a session's context now, and how similar they are to the latest messages.

The transcript has the text of all chunks, cold storage the originals of dropped and shortened ones; the live set only
has the form of each chunk. If `.local/state.db` is lost, the live set is rebuilt from both.

To free space, the live chunks are compared with the last three exchanges by the ordinary search, so that "ok, thanks"
does not clear a session. Scores are scaled so that the best chunk has 1 and the lowest 0, because words that all chunks
share give each of them a score. The gate only decides whether cold chunks come back: a chunk comes back only if its own
text matches the message, at least as well as every live chunk does. Without that rule as many chunks came back as were
dropped (LoCoMo). Of those that come back, 31% (LoCoMo) and 32% (BEAM) are labeled evidence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from anyio.to_thread import run_sync

from mcp_server.conversations import sessions
from mcp_server.conversations.observe import ContextChunk
from mcp_server.memory import Memory
from mcp_server.model import Hit, Turn
from mcp_server.relevance.advisor_items import ESTIMATES
from mcp_server.relevance.chunks import GROWTH_WINDOW, ChunkKind, ColdRecord, Gauges, LiveChunk, chunk_id, chunks_of
from mcp_server.search.search import SearchRequest, find
from mcp_server.storage.values import LiveSetCounts
from mcp_server.text.redaction import redact
from mcp_server.text.words import TALK_WORDS, bounded, content_words

LEAST_CONTENT_WORDS = 3
"""A message with fewer content words is scored together with those before it: "ok, thanks" must not clear a session."""

TOGETHER = 3
"""Number of the user's last messages that make up the query (of a message that is enough alone only that one); more if
they have few content words."""

MORE_HITS = 50

OWN_TERMS = ("keywords", "meaning", "coverage", "phrase")
"""Terms of a search's score (`search/ranking.py`) for a turn's own words, without its neighbors."""

OWN_SHARE = 0.1
"""A turn is about the message if its score from these terms is at least this share of the best turn's score."""


@dataclass(frozen=True, slots=True)
class Compared:
    """How similar the turns of a session are to a query. `scores` has the similar turns by number. `telling` has the
    turns that also say something about the query and do not only repeat its words. Turns after number `last` were not
    compared, and `asking` are the query's own turns."""

    query: str
    gate_open: bool = False
    scores: Mapping[int, float] = field(default_factory=dict)
    telling: frozenset[int] = frozenset()
    last: int = 0
    hits: int = 0
    asking: frozenset[int] = frozenset()

    def of(self, chunks: Sequence[LiveChunk]) -> tuple[Mapping[str, float], frozenset[str]]:
        """Returns the similarities of these chunks by id, scaled so that the best is 1, the least 0, and the chunks
        without one: the query itself, what follows it, and chunks that are not indexed yet. A chunk without text is
        compared by the words of its name and tags."""
        texts = [chunk for chunk in chunks if chunk.has_text]
        unknown = frozenset(chunk.id for chunk in texts if chunk.turn > self.last or chunk.turn in self.asking)
        values = {chunk.id: self.scores.get(chunk.turn, 0.0) for chunk in texts if chunk.id not in unknown}
        least, best = min(values.values(), default=0.0), max(values.values(), default=0.0)
        scaled = {chunk: (value - least) / (best - least) for chunk, value in values.items() if value > least}
        return scaled | _by_name(chunks, self.query), unknown

    def suiting(self, chunks: Sequence[LiveChunk]) -> Mapping[str, float]:
        """Returns the chunks, by id, whose own text matches the query; the best turn of all is scaled to 1. Empty if
        the gate is closed."""
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
    """The turns of a session and their similarity to the last messages; both are read on first use. Valid while the
    transcript's lock is held."""

    def __init__(self, memory: Memory, session: str, turns: Sequence[Turn] | None = None) -> None:
        self._memory = memory
        self.session = session
        self._turns = turns
        self._compared: dict[bool, Compared] = {}

    async def turns(self) -> Sequence[Turn]:
        """Returns all turns of the session, oldest first."""
        if self._turns is None:
            self._turns = await sessions.session_turns(self._memory, self.session)
        return self._turns

    async def compared(self, *, alone: bool) -> Compared:
        """Returns the turns' similarity to the last message if `alone`, else to the last three exchanges."""
        if alone not in self._compared:
            self._compared[alone] = await compared(self._memory, self.session, await self.turns(), alone=alone)
        return self._compared[alone]


async def compared(memory: Memory, session: str, turns: Sequence[Turn], *, alone: bool = False) -> Compared:
    """Compares the turns of a session, oldest first, with its last message if `alone`, else with its last exchanges."""
    asking = asking_turns(turns, alone=alone)
    query = query_of(asking)
    if not query.strip():
        return Compared(query)
    first = asking[0].number if alone else asking[-1].number
    request = SearchRequest(query, len(turns) + MORE_HITS, scope="all", session=session, operators=False)
    found = await find(memory, replace(request, exclude_session=session, exclude_from=first))
    known = await memory.index.last_turn(session)
    last = first - 1 if known is None else min(first - 1, known)
    scores: dict[int, float] = {}
    for hit in found.hits:
        turn = hit.passage.turn or 0
        scores[turn] = max(hit.score, scores.get(turn, 0.0))
    telling = await run_sync(_telling, found.hits, query) if alone and found.gate.open else frozenset()
    asked = frozenset(turn.number for turn in asking)
    return Compared(query, found.gate.open, scores, telling, last, len(found.hits), asked)


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


def asking_turns(turns: Sequence[Turn], *, alone: bool) -> list[Turn]:
    """Returns the user's turns that make up the query: the last three, or the last one if it is enough `alone`. More
    are added until they have enough content words."""
    asking: list[Turn] = []
    said: set[str] = set()
    for turn in reversed(turns):
        if turn.role != "user":
            continue
        asking.insert(0, turn)
        said.update(content_words(bounded(turn.content), TALK_WORDS))
        if len(said) >= LEAST_CONTENT_WORDS and (len(asking) >= TOGETHER or (alone and len(asking) == 1)):
            break
    return asking


def query_of(asking: Sequence[Turn]) -> str:
    """Returns the query for the comparison: beginning and end of a long message, or of many messages."""
    return bounded("\n".join(bounded(turn.content) for turn in asking))


def _by_name(chunks: Sequence[LiveChunk], query: str) -> dict[str, float]:
    """Returns for each named chunk the share of the message's words that its name, tags and topics contain."""
    asked = set(content_words(query))
    shares = {}
    for chunk in chunks:
        if not chunk.has_text:
            named = content_words(" ".join((chunk.name, *chunk.tags, *chunk.topics)))
            if shared := asked.intersection(named):
                shares[chunk.id] = len(shared) / len(asked)
    return shares


async def gauges(memory: Memory, session: str, client_tokens: int | None = None) -> Gauges:
    """Returns how full the session's context is. Without `client_tokens` the client's last recent count is used."""
    entered = await memory.live.counts(session)
    if not entered.live + entered.cold:  # the stored set was lost: rebuild it
        live = sum(chunk.tokens for chunk in await live_set(memory, session) if chunk.form != "cold")
        entered = replace(entered, now=replace(entered.now, live=live))
    return gauges_of(memory, entered, client_tokens)


def gauges_of(memory: Memory, entered: LiveSetCounts, client_tokens: int | None) -> Gauges:
    """Returns the gauges of a live set that was just read."""
    said = (client_tokens, entered.now.client, *(one.client for one in reversed(entered.earlier)))
    client = next((tokens for tokens in said if tokens is not None), None)
    return Gauges(entered.now.live, memory.settings.context.limit_tokens, client)


FIRST_LOADED = 1000  # `part` of the first item that was loaded with a turn: after the turn's own tool calls


async def enter(
    memory: Memory,
    session: str,
    turns: Sequence[Turn],
    chunks: Sequence[LiveChunk],
    loaded: Sequence[ContextChunk] = (),
    entries: Mapping[tuple[str, str], Any] = MappingProxyType({}),
) -> LiveSetCounts:
    """Adds turns that were just recorded to the session's live set. Returns how full the set is. `chunks` are those of
    the turns, `loaded` what entered the client's context with the last of them: an item that was loaded before counts
    as accessed once more. `entries` are values by namespace and key that the same transaction stores. A missing set is
    rebuilt first."""
    first, last = turns[0].number, turns[-1]
    before = {chunk.id: chunk for chunk in await memory.live.of(session)} if loaded else {}
    items = [_loaded_chunk(session, last, place, chunk, before) for place, chunk in enumerate(loaded)]
    reading = (memory.clock(), last.context_tokens, GROWTH_WINDOW)
    entered = await memory.live.add(session, first, [*chunks, *items], *reading, entries)
    if entered is None:
        await memory.live.put(session, await _rebuilt(memory, session))
        entered = await memory.live.add(session, last.number + 1, items, *reading)
        records = await run_sync(memory.cold.of, session)  # a session that continues is live again
        await run_sync(memory.cold.remove_all, [record for record in records if record.form == "whole"])
    return entered or await memory.live.counts(session)


def _loaded_chunk(
    session: str, turn: Turn, place: int, item: ContextChunk, before: Mapping[str, LiveChunk]
) -> LiveChunk:
    """Returns the chunk of an item that a client loaded with `turn`. Without a count of its own it has the estimate of
    its kind. `before` are the chunks of the live set by id."""
    name = redact(item.id).text
    number = chunk_id(session, f"{item.type}:{name}")
    known = before.get(number)
    return LiveChunk(
        id=number,
        kind=item.type,
        turn=turn.number,
        part=FIRST_LOADED + place,
        tokens=item.tokens if item.tokens is not None else ESTIMATES[item.type],
        added=known.added if known else turn.at,
        name=name,
        accesses=known.accesses + 1 if known else 1,
        accessed=turn.at,
        tags=tuple(redact(tag).text for tag in item.tags),
        topics=tuple(redact(topic).text for topic in item.topics),
        mtime=item.mtime,
    )


async def live_set(memory: Memory, session: str) -> list[LiveChunk]:
    """Returns all chunks of a session, cold ones too, oldest first. Writes nothing: a missing set is rebuilt for the
    caller, and stored with the next turn."""
    return await memory.live.of(session) or await _rebuilt(memory, session)


async def change(memory: Memory, session: str, chunks: Sequence[LiveChunk]) -> None:
    """Replaces chunks of an open session by those with the same ids. A missing set is stored first. Call it under the
    transcript's lock."""
    kept = [] if await memory.live.any_of(session) else await _rebuilt(memory, session)
    changed = {chunk.id for chunk in chunks}
    await memory.live.put(session, [*(chunk for chunk in kept if chunk.id not in changed), *chunks])


async def holders(memory: Memory, session: str, kinds: Sequence[ChunkKind]) -> list[LiveChunk]:
    """Returns the chunks of some kinds in the context of an open session, without cold ones, oldest first."""
    if await memory.live.any_of(session):
        return await memory.live.of_kinds(session, kinds)
    made = await _rebuilt(memory, session)
    return [chunk for chunk in made if chunk.form != "cold" and chunk.kind in kinds]


async def _rebuilt(memory: Memory, session: str) -> list[LiveChunk]:
    """Returns the live set according to transcript and cold storage: a chunk with a record has the record's form."""
    turns = await sessions.session_turns(memory, session)
    records = {record.chunk_id: record for record in await run_sync(memory.cold.of, session)}

    def as_recorded(chunk: LiveChunk, record: ColdRecord | None) -> LiveChunk:
        if record is None or record.form == "whole":
            return replace(chunk, immune=record.immune) if record else chunk
        tokens = chunk.one_line if record.form == "one line" else memory.tokens.count(record.shown or "")
        tokens = chunk.tokens if record.form == "cold" else tokens
        return replace(chunk, form=record.form, shown=record.shown, tokens=tokens or 0)

    def chunks() -> list[LiveChunk]:
        said = (chunk for turn in turns for chunk in chunks_of(session, turn, memory.tokens.count))
        made = [as_recorded(chunk, records.pop(chunk.id, None)) for chunk in said]
        for one in records.values():  # items that a client named are not in the transcript
            if one.kind in ESTIMATES:
                place = one.chunk_id, one.kind, one.turn, one.part
                made.append(LiveChunk(*place, one.tokens, added=one.timestamp, form=one.form, name=one.name))
        return made

    return await run_sync(chunks)
