"""Pressure: what happens by itself when a session grows (S1, SPEC §5).

    how full is it? → score the live chunks against the message → decide → flush → cold storage, on disk → the live set

`plan` decides and changes nothing; `carry_out` does what was decided. A dry run is a plan that nobody carries out. A
chunk leaves the live set only after its original is on disk, so that a crash in between costs nothing: the chunk is
still live, and its record is written again or stays unused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from anyio.to_thread import run_sync

from mcp_server.checkpoints import checkpoint
from mcp_server.context.cut import head_and_tail
from mcp_server.context.slots.history import exchanges
from mcp_server.conversations import sessions
from mcp_server.knowledge.anchor import anchored_ids
from mcp_server.memory import Memory
from mcp_server.model import COMPACTION, Turn
from mcp_server.pressure import flush, ladder, log, reword
from mcp_server.pressure.cold_records import ColdRecord, DropReason
from mcp_server.pressure.ladder import LadderRules, Protected, Scored
from mcp_server.pressure.words import TOLD_FROM, gauge_line, over_limit_line, recovered_line, relief_line
from mcp_server.relevance.chunks import Action, ChunkWeights, Decision, Form, LiveChunk, estimated, original_of, score
from mcp_server.relevance.gauges import AGAIN_PER, Triggers, curation_step
from mcp_server.relevance.live_set import change, gauges, gauges_of, live_set
from mcp_server.relevance.similar import Compared, Seen, Similar, compared
from mcp_server.settings import Settings
from mcp_server.storage.live_values import STEPS, LiveSetCounts
from mcp_server.storage.values import Change, SessionRow
from mcp_server.text.budget import Meter
from mcp_server.text.summary import summarise

Event = Literal["curation", "compaction", "limit"]
Trigger = Literal["token_threshold", "asked", "client"]
FORMS: dict[Action, Form] = {"drop": "cold", "one line": "one line", "summarise": "summary", "excerpt": "excerpt"}
REASONS: dict[Action, DropReason] = {
    "drop": "compaction",
    "one line": "one_line",
    "summarise": "summarised",
    "excerpt": "excerpt",
}


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to become of every live chunk of a session, and what it would hold afterwards. `trigger` is what set it
    off: a gauge (`token_threshold`), somebody who asked, or the client, which has compacted its own window."""

    session: str
    event: Event
    query: str
    gate_open: bool
    decisions: tuple[Decision, ...]
    tokens_before: int
    hits: int
    trigger: Trigger = "token_threshold"

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
    """A plan that was carried out. `records` are the ids under which the originals can be recovered, `flushed` the
    lines that went into the journal before."""

    plan: Plan
    tokens_after: int
    records: tuple[str, ...]
    flushed: tuple[str, ...] = ()


async def relieve(
    memory: Memory, session: str, new: Sequence[Turn], entered: LiveSetCounts | None = None, seen: Seen | None = None
) -> list[Relief]:
    """Does what is due after the turns `new`: curation after a user's message, compaction whenever the gauge is over
    its trigger, the limit where that was not enough. Call it under the transcript's lock; `entered` is how full these
    turns made the live set, `seen` what others looked up under the same lock, if that is known."""
    if not memory.settings.context.cold_storage_enabled or not new:
        return []
    boundary = next((turn.number for turn in reversed(new) if turn.role == "system" and turn.name == COMPACTION), None)
    if boundary is not None:
        await checkpoint.before(memory, session, "compaction", boundary - 1)
        return [await carry_out(memory, await _as_the_client(memory, session, boundary))]
    triggers = triggers_of(memory.settings)
    entered = entered or await memory.live.counts(session)
    limit = memory.settings.context.limit_tokens
    full = entered.now.live / limit
    step = curation_step(full, triggers)
    was_full = any(curation_step(one.live / limit, triggers) for one in entered.earlier[-1:])
    if step == 0 and not was_full and full < triggers.compaction:
        return []
    before = int(await memory.state.get(STEPS, session) or 0)
    done: list[Relief] = []
    curates = any(turn.role == "user" for turn in new) and step > before
    if curates or full >= triggers.compaction:
        seen = seen or Seen(memory, session)
        turns, judged = await seen.turns(), await seen.compared()

        async def act(event: Event) -> float:
            if event != "curation" and not any(relief.plan.event != "curation" for relief in done):
                await checkpoint.before(memory, session, "compaction")
            done.append(await carry_out(memory, await plan(memory, session, turns, event, judged=judged), turns=turns))
            return (await gauges(memory, session)).live

        if curates:
            full = await act("curation")
        if full >= triggers.compaction:
            full = await act("compaction")
        if full >= triggers.most:
            full = await act("limit")
    after = curation_step(full, triggers)
    if after != before and (curates or after < before):
        await memory.state.put(STEPS, session, after)
    return [relief for relief in done if relief.plan.changes]


async def plan(
    memory: Memory,
    session: str,
    turns: Sequence[Turn],
    event: Event,
    *,
    asked: bool = False,
    target: int | None = None,
    judged: Compared | None = None,
) -> Plan:
    """What curation or compaction would do now; it changes nothing, not even what could be made again. `turns` are all
    of the session's, oldest first. `target`: tokens that a compaction stops at; by default a step under its trigger, so
    that not every turn compacts again. `judged` is how they compare with the last message, if that is known."""
    chunks = [chunk for chunk in await live_set(memory, session) if chunk.form != "cold"]
    similar = (judged or await compared(memory, session, turns)).of(chunks)
    anchored = await anchored_ids(memory, session, chunks)
    scored = _scored(memory, chunks, similar, anchored)
    rules, knobs = rules_of(memory.settings), memory.settings.context
    protected = Protected(
        newest=ladder.newest(chunks, rules) | _last_user(chunks, turns),
        anchored=anchored,
        exchange=exchanges(turns)[-1] + 1 if turns else 0,
        unknown=similar.unknown,
    )
    before = sum(chunk.tokens for chunk in chunks)
    if event == "curation":
        decisions = ladder.curate(scored, similar.gate_open, protected, rules)
    elif event == "limit":
        decisions = ladder.limit(scored, _under(knobs.max_context_pct, knobs.limit_tokens))
    else:
        if target is None:
            target = _under(max(0.0, knobs.compaction_trigger_pct - AGAIN_PER), knobs.limit_tokens)
        spare = not asked and before < knobs.max_context_pct * knobs.limit_tokens and not similar.tells
        decisions = ladder.compact(scored, target, protected, rules, spare=spare, gate_open=similar.gate_open)
    trigger: Trigger = "asked" if asked else "token_threshold"
    return Plan(session, event, similar.query, similar.gate_open, tuple(decisions), before, similar.hits, trigger)


async def _as_the_client(memory: Memory, session: str, boundary: int) -> Plan:
    """What was said before turn number `boundary` has left the client's window: so it leaves our mirror."""
    chunks = [chunk for chunk in await live_set(memory, session) if chunk.form != "cold"]
    why = "the client has compacted its window"
    decisions = tuple(
        Decision(chunk, "drop", 0.0, why, 0)
        if chunk.turn < boundary
        else Decision(chunk, "keep", 0.0, "said since", chunk.tokens)
        for chunk in chunks
    )
    return Plan(session, "compaction", "", False, decisions, sum(chunk.tokens for chunk in chunks), 0, "client")


async def carry_out(
    memory: Memory, decided: Plan, reason: DropReason | None = None, turns: Sequence[Turn] | None = None
) -> Relief:
    """Writes the originals to cold storage, durably, and then changes the live set, all in one transaction. What they
    hold for the journal goes there first. Call it under the transcript's lock; `turns` are all of the session's, if
    they are known."""
    if not decided.changes:
        return Relief(decided, decided.tokens_before, ())
    turns = await sessions.session_turns(memory, decided.session) if turns is None else turns
    said = {turn.number: turn for turn in turns}
    flushed = await flush.before_drop(memory, decided.session, [one.chunk for one in decided.changes], said)
    now = memory.clock()

    def written() -> list[tuple[LiveChunk, ColdRecord]]:
        made = [_made(memory, one, said.get(one.chunk.turn), decided, reason, now) for one in decided.changes]
        memory.cold.put_all([record for _, record in made])
        return made

    done = await run_sync(written)
    await change(memory, decided.session, [chunk for chunk, _ in done])
    await reword.note(memory, decided.session, [chunk for chunk, _ in done])
    memory.changes.publish(Change("session", None, decided.session))
    left = await memory.live.tokens(decided.session)
    relief = Relief(decided, left, tuple(record.chunk_id for _, record in done), flushed)
    await run_sync(log.relieved, memory, relief.plan, left, [record for _, record in done])
    return relief


async def notes(
    memory: Memory,
    row: SessionRow,
    turn: Turn,
    reliefs: Sequence[Relief],
    back: int = 0,
    entered: LiveSetCounts | None = None,
) -> tuple[str, ...]:
    """What `observe` tells: the gauge from 10% on, what was done about it, how many chunks came `back`, and what still
    exceeds. The health log gets its line too, for each further hundredth of the limit and whenever something was
    done. `entered` is how full the live set is, if that is known."""
    session, delivery = row.session, row.delivery or "add"
    if entered is None or reliefs or back:
        entered = await memory.live.counts(session)
    full = gauges_of(memory, entered, turn.context_tokens)
    before = entered.earlier[-1].live if entered.earlier else -1
    if reliefs or back or 100 * before // full.limit != 100 * full.live_tokens // full.limit:
        await run_sync(log.health, memory, session, full, entered)
    said = [gauge_line(full, delivery)] if full.live >= TOLD_FROM or full.client_tokens is not None else []
    said += [recovered_line(back, delivery)] if back else []
    for relief in reliefs:
        dropped = sum(one.action == "drop" for one in relief.plan.changes)
        shortened = len(relief.plan.changes) - dropped
        saved = relief.plan.tokens_before - relief.tokens_after
        said.append(relief_line(relief.plan.event, dropped, shortened, saved, delivery))
    if delivery == "replace" and full.live >= memory.settings.context.max_context_pct:
        said.append(over_limit_line(full))
    return tuple(filter(None, said))


def _made(
    memory: Memory, decision: Decision, turn: Turn | None, decided: Plan, reason: DropReason | None, now: datetime
) -> tuple[LiveChunk, ColdRecord]:
    """The chunk as it is from now on, and the record of its original."""
    chunk = decision.chunk
    said = original_of(chunk, turn)
    original = said or ""
    shown = _shortened(memory, decision, original)
    form = FORMS[decision.action] if shown is not None or decision.action != "summarise" else "excerpt"
    count = memory.tokens.count
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
    )
    return after, record


def _shortened(memory: Memory, decision: Decision, original: str) -> str | None:
    """What stands in a chunk's place; None for nothing, or where the call's own line says it."""
    if decision.action == "summarise":
        short = summarise(original, memory.settings.context.summary_target_tokens, memory.tokens.count)
        if short:
            return short
    elif decision.action != "excerpt":
        return None
    return head_and_tail(original, decision.tokens, Meter(memory.tokens.count))


def _scored(memory: Memory, chunks: Sequence[LiveChunk], judged: Similar, anchored: frozenset[str]) -> list[Scored]:
    """Every chunk with its score now."""
    now, weights = memory.clock(), weights_of(memory.settings)
    scored = []
    for chunk in chunks:
        age = (now - (chunk.accessed or chunk.added)).total_seconds() / 3600
        important = chunk.important or chunk.id in anchored
        scored.append((chunk, score(judged.scaled.get(chunk.id, 0.0), age, important, weights)))
    return scored


def _last_user(chunks: Sequence[LiveChunk], turns: Sequence[Turn]) -> frozenset[str]:
    """The chunk of what the user said last: the context is for it, so it stays."""
    last = next((turn.number for turn in reversed(turns) if turn.role == "user"), None)
    return frozenset(chunk.id for chunk in chunks if chunk.turn == last and chunk.kind == "message")


def _under(share: float, limit: int) -> int:
    """The most whole tokens that are less than a share of the limit."""
    return max(0, -int(-share * limit // 1) - 1)


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
