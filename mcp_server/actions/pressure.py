"""Pressure: what happens by itself when a session grows (S1, SPEC §5).

    how full is it? → score the live chunks against the message → decide → cold storage, on disk → the live set

`plan` decides and changes nothing; `carry_out` does what was decided. A dry run is a plan that nobody carries out. A
chunk leaves the live set only after its original is on disk, so that a crash in between costs nothing: the chunk is
still live, and its record is written again or stays unused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal

from anyio.to_thread import run_sync

from mcp_server.actions import sessions
from mcp_server.actions.anchor import anchored_ids
from mcp_server.actions.live_set import live_set
from mcp_server.actions.search import SearchRequest, find
from mcp_server.core.compiler.budget import Meter
from mcp_server.core.compiler.cut import head_and_tail
from mcp_server.core.compiler.history import exchanges
from mcp_server.core.model import Turn
from mcp_server.core.pressure import ladder
from mcp_server.core.pressure.chunks import Action, Decision, Form, LiveChunk, text_of
from mcp_server.core.pressure.cold import ColdRecord, DropReason
from mcp_server.core.pressure.gauges import Gauges, Triggers, curation_step
from mcp_server.core.pressure.ladder import EXCERPT_TOKENS, LadderRules, Protected
from mcp_server.core.pressure.summary import summarise
from mcp_server.core.scoring.live_chunks import ChunkScore, ChunkWeights, score
from mcp_server.core.text.words import content_words
from mcp_server.memory import Memory
from mcp_server.settings import Settings
from mcp_server.store.changes import Change

STEPS = "curation_steps"
LEAST_CONTENT_WORDS = 3
"""A message with fewer is scored together with the two before it: "ok, thanks" must not clear a session."""

Event = Literal["curation", "compaction"]
FORMS: dict[Action, Form] = {"drop": "cold", "one line": "one line", "summarise": "summary", "excerpt": "excerpt"}
REASONS: dict[Action, DropReason] = {
    "drop": "compaction",
    "one line": "one_line",
    "summarise": "summarised",
    "excerpt": "excerpt",
}


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to become of every live chunk of a session, and what it would hold afterwards."""

    session: str
    event: Event
    query: str
    gate_open: bool
    decisions: tuple[Decision, ...]
    tokens_before: int
    hits: int

    @property
    def changes(self) -> tuple[Decision, ...]:
        """The decisions that change something."""
        return tuple(decision for decision in self.decisions if decision.action != "keep")

    @property
    def tokens_after(self) -> int:
        """Tokens of the live set after the plan, as far as they are known before."""
        return sum(decision.tokens for decision in self.decisions)


@dataclass(frozen=True, slots=True)
class Relief:
    """A plan that was carried out. `records` are the ids under which the originals can be recovered."""

    plan: Plan
    tokens_after: int
    records: tuple[str, ...]


async def gauges(memory: Memory, session: str, client_tokens: int | None = None) -> Gauges:
    """How full the session's context is."""
    return Gauges(await memory.live.tokens(session), memory.settings.context.limit_tokens, client_tokens)


async def relieve(memory: Memory, session: str, turns: Sequence[Turn]) -> list[Relief]:
    """Does what is due after the last of `turns` (the session's, oldest first): curation after a user's message,
    compaction whenever the gauge is over its trigger. Call it under the transcript's lock."""
    knobs = memory.settings.context
    if not knobs.cold_storage_enabled or not turns:
        return []
    done: list[Relief] = []
    triggers = triggers_of(memory.settings)
    full = (await gauges(memory, session)).live
    step = curation_step(full, triggers)
    before = int(await memory.state.get(STEPS, session) or 0)
    if turns[-1].role == "user" and step > before:
        done.append(await carry_out(memory, await plan(memory, session, turns, "curation")))
        full = (await gauges(memory, session)).live
    if full >= triggers.compaction:
        done.append(await carry_out(memory, await plan(memory, session, turns, "compaction")))
        full = (await gauges(memory, session)).live
    if (after := curation_step(full, triggers)) != before and (done or after < before):
        await memory.state.put(STEPS, session, after)
    return done


async def plan(memory: Memory, session: str, turns: Sequence[Turn], event: Event) -> Plan:
    """What curation or compaction would do now."""
    chunks = [chunk for chunk in await live_set(memory, session) if chunk.form != "cold"]
    query = query_of(turns)
    scored, gate_open, hits = await _scored(memory, session, chunks, query)
    rules = rules_of(memory.settings)
    exchange = exchanges(turns)[-1] + 1 if turns else 0
    protected = Protected(ladder.newest(chunks, rules), await anchored_ids(memory, session, chunks), exchange)
    if event == "curation":
        decisions = ladder.curate(scored, gate_open, protected, rules)
    else:
        target = int(memory.settings.context.compaction_trigger_pct * memory.settings.context.limit_tokens) - 1
        decisions = ladder.compact(scored, target, protected, rules)
    before = sum(chunk.tokens for chunk in chunks)
    return Plan(session, event, query, gate_open, tuple(decisions), before, hits)


async def carry_out(memory: Memory, decided: Plan, reason: DropReason | None = None) -> Relief:
    """Writes the originals to cold storage, durably, and then changes the live set, all in one transaction."""
    turns = {turn.number: turn for turn in await sessions.session_turns(memory, decided.session)}
    now = memory.clock()

    def written() -> list[tuple[LiveChunk, ColdRecord]]:
        return [
            _put(memory, decision, turns.get(decision.chunk.turn), decided, reason, now) for decision in decided.changes
        ]

    done = await run_sync(written)
    await memory.live.put(decided.session, [chunk for chunk, _ in done])
    if done:
        memory.changes.publish(Change("session", None, decided.session))
    left = await memory.live.tokens(decided.session)
    return Relief(decided, left, tuple(record.chunk_id for _, record in done))


def _put(
    memory: Memory, decision: Decision, turn: Turn | None, decided: Plan, reason: DropReason | None, now: datetime
) -> tuple[LiveChunk, ColdRecord]:
    """One original on disk, and the chunk as it is from now on."""
    chunk = decision.chunk
    whole = turn is not None and chunk.part <= len(turn.tool_calls)
    original = text_of(turn, chunk.part) if turn is not None and whole else ""
    shown = _shortened(memory, decision.action, original)
    form = FORMS[decision.action] if shown or decision.action in ("drop", "one line") else "cold"
    why = "low_relevance" if decided.event == "curation" else REASONS[decision.action]
    record = ColdRecord(
        chunk_id=chunk.id,
        session_id=decided.session,
        timestamp=now,
        content=original,
        tokens=chunk.tokens,
        drop_reason=reason or why,
        relevance_score=decision.score,
        prompt_at_drop=decided.query,
        recoverable_until=now + timedelta(days=memory.settings.context.recoverable_for_days),
        kind=chunk.kind,
        turn=chunk.turn,
        part=chunk.part,
        name=chunk.name,
        form=form,
        shown=shown,
    )
    memory.cold.put(record)
    tokens = chunk.one_line or 0 if form == "one line" else memory.tokens.count(shown) if shown else chunk.tokens
    return replace(chunk, form=form, shown=shown, tokens=tokens), record


def _shortened(memory: Memory, action: Action, original: str) -> str | None:
    """What stands in a chunk's place; None for nothing, or where the call's own line says it."""
    if action == "summarise":
        return summarise(original, memory.settings.context.summary_target_tokens, memory.tokens.count) or None
    if action == "excerpt":
        return head_and_tail(original, EXCERPT_TOKENS, Meter(memory.tokens.count))
    return None


async def _scored(
    memory: Memory, session: str, chunks: Sequence[LiveChunk], query: str
) -> tuple[list[tuple[LiveChunk, ChunkScore]], bool, int]:
    """Every chunk with its score, whether the gate is open, and how many chunks the search found."""
    similar, gate_open = await _similarities(memory, session, chunks, query)
    best = max(similar.values(), default=0.0)
    now, weights = memory.clock(), weights_of(memory.settings)
    anchored = await anchored_ids(memory, session, chunks)
    scored = []
    for chunk in chunks:
        scaled = similar.get(chunk.id, 0.0) / best if gate_open and best > 0 else 0.0
        age = (now - (chunk.accessed or chunk.added)).total_seconds() / 3600
        scored.append((chunk, score(scaled, age, chunk.important or chunk.id in anchored, weights)))
    return scored, gate_open, len(similar)


async def _similarities(
    memory: Memory, session: str, chunks: Sequence[LiveChunk], query: str
) -> tuple[dict[str, float], bool]:
    """The search scores of the chunks that search finds, and whether the gate is open for this message here.

    What a client only named is compared by the words of its name and tags.
    """
    if not query.strip():
        return {}, False
    request = SearchRequest(query=query, limit=len(chunks) + 50, scope="all", session=session, operators=False)
    found = await find(memory, request)
    by_turn: dict[int, float] = {}
    for hit in found.hits:
        if hit.passage.turn is not None:
            by_turn[hit.passage.turn] = max(hit.score, by_turn.get(hit.passage.turn, 0.0))
    best = max(by_turn.values(), default=1.0)
    asked = set(content_words(query))
    similar = {}
    for chunk in chunks:
        if chunk.kind in ("message", "tool"):
            value = by_turn.get(chunk.turn, 0.0)
        else:
            named = set(content_words(" ".join((chunk.name, *chunk.tags, *chunk.topics))))
            value = best * len(asked & named) / len(asked) if asked else 0.0
        if value > 0:
            similar[chunk.id] = value
    return similar, found.gate.open


def query_of(turns: Sequence[Turn]) -> str:
    """The last user message; one that says little together with the two before it."""
    said = [turn.content for turn in turns if turn.role == "user"][-3:]
    if not said:
        return ""
    return said[-1] if len(content_words(said[-1])) >= LEAST_CONTENT_WORDS else "\n".join(said)


def triggers_of(settings: Settings) -> Triggers:
    """The shares at which something happens."""
    knobs = settings.context
    return Triggers(knobs.curation_trigger_pct, knobs.compaction_trigger_pct, knobs.max_context_pct)


def rules_of(settings: Settings) -> LadderRules:
    """The ladder's rules as set."""
    knobs = settings.context
    return LadderRules(
        keep=knobs.relevance_keep,
        cutoff=knobs.relevance_cutoff,
        min_chunks_to_keep=knobs.min_chunks_to_keep,
        summarise=knobs.summarize_medium_chunks,
        summary_tokens=knobs.summary_target_tokens,
    )


def weights_of(settings: Settings) -> ChunkWeights:
    """The weights of a live chunk's score as set."""
    knobs = settings.context
    return ChunkWeights(knobs.memfas_weight, knobs.recency_bonus, knobs.importance_boost, knobs.memfas_min_score)
