"""Curation and compaction of a session that grows.

    gauge → score the live chunks against the message → decide → cold storage, on disk → live set

`plan` decides and changes nothing; `carry_out` does what a plan says. A chunk leaves the live set only after its
original is on disk: after a crash in between the chunk is still live, and its record is written again or stays unused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from anyio.to_thread import run_sync

from mcp_server.checkpoints import checkpoint
from mcp_server.context.cut import excerpt
from mcp_server.context.slots.session import exchanges
from mcp_server.conversations import sessions
from mcp_server.knowledge.anchor import anchored_ids
from mcp_server.memory import Memory
from mcp_server.model import COMPACTION, Turn
from mcp_server.pressure import ladder, reword
from mcp_server.pressure.health import log_health, log_relief
from mcp_server.pressure.ladder import UNJUDGED, Protected, Scored
from mcp_server.relevance.chunks import (
    AGAIN_PER,
    Action,
    ColdRecord,
    Decision,
    DropReason,
    Form,
    LiveChunk,
    estimated,
    original_of,
    score,
    step_of,
)
from mcp_server.relevance.live_set import Lookups, change, gauges, gauges_of, live_set
from mcp_server.storage.values import STEPS, Change, LiveSetCounts, SessionRow
from mcp_server.text.prose import counted, summarise
from mcp_server.text.words import content_words
from mcp_server.tokens import Meter

Event = Literal["curation", "compaction", "limit"]
Trigger = Literal["token_threshold", "asked", "client"]
FORMS: dict[Action, Form] = {"drop": "cold", "one line": "one line", "summarise": "summary", "excerpt": "excerpt"}
REASONS: dict[Action, DropReason] = {
    "drop": "compaction",
    "one line": "one_line",
    "summarise": "summarised",
    "excerpt": "excerpt",
}

TOLD_FROM = 0.10  # share of the limit from which `observe` shows the gauge
IN_ADD = "This does not free space in your client's window. /compact there does, if your client has it."
IN_REPLACE = "`recover` brings them back"
OVER_LIMIT = "the rest was loaded by the client or is protected; remove anchors, or raise context.limit_tokens"


@dataclass(frozen=True, slots=True)
class Plan:
    """A decision for every live chunk of a session. `trigger` is a gauge (`token_threshold`), a user's or agent's
    request (`asked`), or the client, which has compacted its own window (`client`)."""

    session: str
    event: Event
    query: str
    decisions: tuple[Decision, ...]
    tokens_before: int
    hits: int
    trigger: Trigger = "token_threshold"

    @property
    def changes(self) -> tuple[Decision, ...]:
        return tuple(decision for decision in self.decisions if decision.action != "keep")

    @property
    def tokens_after(self) -> int:
        """Returns the estimated tokens of the live set after the plan."""
        return sum(decision.tokens for decision in self.decisions)


@dataclass(frozen=True, slots=True)
class Relief:
    """A plan that was carried out."""

    plan: Plan
    tokens_after: int


async def relieve(
    memory: Memory, session: str, new: Sequence[Turn], entered: LiveSetCounts, lookups: Lookups, curated: int
) -> list[Relief]:
    """Runs the steps that are due after the turns `new`, and returns them: curation at its trigger and at every further
    5%, compaction at its trigger, and the limit if compaction was not enough. Call it under the transcript's lock.
    `entered` is the state of the live set after these turns; `lookups` caches what is read under that lock; `curated`
    is the step of fullness (STEPS) at which the session was curated last."""
    knobs = memory.settings.context
    if not knobs.cold_storage_enabled or not new:
        return []
    boundary = next((turn.number for turn in reversed(new) if turn.role == "system" and turn.name == COMPACTION), None)
    if boundary is not None:
        await checkpoint.before(memory, session, "compaction", boundary - 1)
        return [await carry_out(memory, await _as_the_client(memory, session, boundary))]
    full = entered.now.live / knobs.limit_tokens
    done: list[Relief] = []

    async def act(event: Event) -> float:
        if event != "curation" and not any(relief.plan.event != "curation" for relief in done):
            await checkpoint.before(memory, session, "compaction")
        done.append(await carry_out(memory, await plan(memory, lookups, event), turns=await lookups.turns()))
        return (await gauges(memory, session)).live

    if knobs.compaction_trigger_pct > full and step_of(full, knobs.curation_trigger_pct, AGAIN_PER) > curated:
        full = await act("curation")
    if full >= knobs.compaction_trigger_pct:
        full = await act("compaction")
    if full >= knobs.max_context_pct:
        full = await act("limit")
    unjudged = any(one.why == UNJUDGED for relief in done if not relief.plan.changes for one in relief.plan.decisions)
    after = step_of(full, knobs.curation_trigger_pct, AGAIN_PER)
    if after != curated and not unjudged:  # else the next message tries again
        await memory.state.put(STEPS, session, after)
    return [relief for relief in done if relief.plan.changes]


async def plan(
    memory: Memory, lookups: Lookups, event: Event, *, asked: bool = False, target: int | None = None
) -> Plan:
    """Returns what curation or compaction would do now. Changes nothing. `target` is the number of tokens at which it
    stops; by default a step below its trigger, so that the next turn does not trigger it again. A curation that was
    `asked` for drops everything at or below the cutoff."""
    session, turns, judged = lookups.session, await lookups.turns(), await lookups.compared(alone=False)
    chunks = [chunk for chunk in await live_set(memory, session) if chunk.form != "cold"]
    similar, unknown = judged.of(chunks)
    anchored = await anchored_ids(memory, session, chunks)
    scored = _scored(memory, chunks, similar, anchored, turns[-1].at if turns else memory.clock())
    knobs = memory.settings.context
    asked_last = next((turn.number for turn in reversed(turns) if turn.role == "user"), None)
    protected = Protected(
        newest=ladder.newest(chunks, knobs)
        | {chunk.id for chunk in chunks if chunk.turn == asked_last and chunk.kind == "message"},
        anchored=anchored,
        exchange=exchanges(turns)[-1] + 1 if turns else 0,
        unknown=unknown if judged.query else frozenset(chunk.id for chunk in chunks),
    )
    if target is None:
        trigger = knobs.curation_trigger_pct if event == "curation" else knobs.compaction_trigger_pct
        target = _tokens_below(max(0.0, trigger - AGAIN_PER), knobs.limit_tokens)
    if event == "curation":
        decisions = ladder.curate(scored, 0 if asked else target, protected, knobs)
    elif event == "limit":
        decisions = ladder.limit(scored, _tokens_below(knobs.max_context_pct, knobs.limit_tokens))
    else:
        large = min(int(AGAIN_PER * knobs.limit_tokens), target)
        decisions = ladder.compact(scored, target, protected, knobs, large)
    before = sum(chunk.tokens for chunk in chunks)
    by: Trigger = "asked" if asked else "token_threshold"
    return Plan(session, event, judged.query, tuple(decisions), before, judged.hits, by)


async def _as_the_client(memory: Memory, session: str, boundary: int) -> Plan:
    """Returns the plan that drops everything before turn number `boundary`, because the client has compacted its
    window."""
    chunks = [chunk for chunk in await live_set(memory, session) if chunk.form != "cold"]
    why = "the client has compacted its window"
    gone = [Decision(chunk, "drop", 0.0, why, 0) for chunk in chunks if chunk.turn < boundary]
    kept = [Decision(chunk, "keep", 0.0, "said since", chunk.tokens) for chunk in chunks if chunk.turn >= boundary]
    return Plan(session, "compaction", "", (*gone, *kept), sum(chunk.tokens for chunk in chunks), 0, "client")


async def carry_out(
    memory: Memory, decided: Plan, reason: DropReason | None = None, turns: Sequence[Turn] | None = None
) -> Relief:
    """Writes the originals to disk, durably, and then changes the live set in one transaction. Call it under the
    transcript's lock; `turns` are all turns of the session, if the caller has them."""
    if not decided.changes:
        return Relief(decided, decided.tokens_before)
    turns = await sessions.session_turns(memory, decided.session) if turns is None else turns
    said = {turn.number: turn for turn in turns}
    now, exchange = memory.clock(), sum(turn.role == "user" for turn in turns)

    def written() -> list[tuple[LiveChunk, ColdRecord]]:
        made = [
            _shortened_with_record(memory, one, said.get(one.chunk.turn), decided, reason, now, exchange)
            for one in decided.changes
        ]
        memory.cold.put_all([record for _, record in made])
        return made

    done = await run_sync(written)
    await change(memory, decided.session, [chunk for chunk, _ in done])
    await reword.note(memory, decided.session, [chunk for chunk, _ in done])
    memory.changes.publish(Change("session", None, decided.session))
    left = await memory.live.tokens(decided.session)
    await run_sync(log_relief, memory, decided, left, [record for _, record in done])
    return Relief(decided, left)


async def notes(
    memory: Memory, row: SessionRow, turn: Turn, reliefs: Sequence[Relief], back: int, entered: LiveSetCounts
) -> tuple[str, ...]:
    """Returns the notes for `observe`'s answer: the gauge from 10% on, what was done, how many chunks came `back`, and
    a context that is still over its limit. `entered` is the state of the live set after the turn. Also writes the
    health log, for each further hundredth of the limit and whenever something was done."""
    session, delivery = row.session, row.delivery or "add"
    if reliefs or back:
        entered = await memory.live.counts(session)
    full = gauges_of(memory, entered, turn.context_tokens)
    before = entered.earlier[-1].live if entered.earlier else -1
    if reliefs or back or 100 * before // full.limit != 100 * full.live_tokens // full.limit:
        await run_sync(log_health, memory, session, full, entered)
    said, ours = [], delivery == "replace"
    share = _share(full.live_tokens, full.limit)
    if full.live >= TOLD_FROM or full.client_tokens is not None:
        gauge = f"{'live context' if ours else 'our mirror of this conversation'}: {share}"
        client = "" if full.client_tokens is None else f"; client context: {_share(full.client_tokens, full.limit)}"
        said.append(gauge + client)
    if back:
        where = "the live context" if ours else "our mirror"
        said.append(f"{counted(back, 'chunk')} came back from cold storage into {where}")
    for relief in (one for one in reliefs if one.plan.changes):
        dropped = sum(one.action == "drop" for one in relief.plan.changes)
        shortened = len(relief.plan.changes) - dropped
        parts = [f"moved {counted(dropped, 'chunk')} to cold storage"] if dropped else []
        parts += [f"shortened {counted(shortened, 'chunk')}"] if shortened else []
        did = f"{' and '.join(parts)} ({relief.plan.tokens_before - relief.tokens_after:,} tokens)"
        event = relief.plan.event
        said.append(f"{event}: {did}; {IN_REPLACE}" if ours else f"{event} of our mirror: {did}. {IN_ADD}")
    if ours and full.live >= memory.settings.context.max_context_pct:
        said.append(f"the live context is still over its limit ({share}): {OVER_LIMIT}")
    return tuple(said)


def _share(tokens: int, limit: int) -> str:
    return f"{tokens:,} of {limit:,} tokens ({tokens / limit:.0%})"


def _shortened_with_record(
    memory: Memory,
    decision: Decision,
    turn: Turn | None,
    decided: Plan,
    reason: DropReason | None,
    now: datetime,
    exchange: int,
) -> tuple[LiveChunk, ColdRecord]:
    chunk, form, count = decision.chunk, FORMS[decision.action], memory.tokens.count
    said = original_of(chunk, turn)
    original = said or ""
    shown = _shortened(memory, decision, original, decided.query)
    whole = chunk.tokens if chunk.form == "whole" or said is None else estimated(original, count)
    tokens = whole if form == "cold" else count(shown) if shown is not None else chunk.one_line or 0
    after = replace(chunk, form=form, shown=shown, tokens=tokens, immune=0 if form == "cold" else chunk.immune)
    record = ColdRecord.of(
        after,
        decided.session,
        original,
        reason or ("low_relevance" if decided.event == "curation" else REASONS[decision.action]),
        now,
        memory.settings.context.recoverable_for_days,
        tokens=whole,
        score=decision.score,
        prompt=decided.query,
        exchange=exchange,
    )
    return after, record


def _shortened(memory: Memory, decision: Decision, original: str, query: str) -> str | None:
    """Returns the text in a chunk's place; None if there is none, or if the line of the tool call is enough."""
    if decision.action == "summarise":
        short = summarise(original, memory.settings.context.summary_target_tokens, memory.tokens.count)
        if short:
            return short
    elif decision.action != "excerpt":
        return None
    return excerpt(original, frozenset(content_words(query)), decision.tokens, Meter(memory.tokens.count))


def _scored(
    memory: Memory, chunks: Sequence[LiveChunk], similar: Mapping[str, float], anchored: frozenset[str], now: datetime
) -> list[Scored]:
    """Returns every chunk with its score at the time `now` of the last turn."""
    scored = []
    for chunk in chunks:
        age = (now - (chunk.accessed or chunk.added)).total_seconds() / 3600
        important = chunk.important or chunk.id in anchored
        scored.append((chunk, score(similar.get(chunk.id, 0.0), age, important, memory.settings.context)))
    return scored


def _tokens_below(share: float, limit: int) -> int:
    """Returns the largest number of tokens below a share of the limit."""
    return max(0, -int(-share * limit // 1) - 1)
