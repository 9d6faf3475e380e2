"""Prune a session's context: by the ladder, by the advisor, by Clarity; what would go is decided first, and then done.

In `replace` the compiled text is the whole prompt, so what goes here is gone from the prompt. In `add` the client keeps
its own window: what goes here goes from our mirror alone, and every answer says so.
"""

from __future__ import annotations

from mcp_server.checkpoints import checkpoint
from mcp_server.conversations import sessions
from mcp_server.knowledge.anchor import anchored_ids
from mcp_server.knowledge.pruning import Fate, Fated, Pruned, Strategy
from mcp_server.memory import Memory
from mcp_server.model import Delivery, Turn
from mcp_server.pressure import advisor, pressure
from mcp_server.pressure.advise import Recommendation
from mcp_server.pressure.ladder import UNJUDGED, Protected
from mcp_server.pressure.pressure import Plan
from mcp_server.relevance import clarity
from mcp_server.relevance.chunks import Action, Decision, LiveChunk, text_of
from mcp_server.relevance.clarity_pruner import Verdict
from mcp_server.relevance.live_set import gauges
from mcp_server.storage.values import SessionRow
from mcp_server.text.transcript_head import title_of

IN_ADD = (
    "This is our mirror of the conversation, from which we compile. The client's own window still holds all of it; "
    "only its user can change that: /compact there, a new chat, or taking files out of it."
)
TOO_LATE = 'prune(strategy="compact") shows what compacting would do.'

FATES: dict[Action, Fate] = {
    "keep": "keep",
    "drop": "gone",
    "one line": "fading",
    "summarise": "fading",
    "excerpt": "fading",
}
BECOMES: dict[Action, str] = {
    "one line": "becomes one line",
    "summarise": "becomes a summary",
    "excerpt": "becomes its head and tail",
}
HALF = 2
MOST_POINTS = 30


async def prune_ladder(
    memory: Memory, row: SessionRow, strategy: Strategy, target: int | None, dry_run: bool
) -> Pruned:
    """`compact`: the ladder down to `target` percent of the limit, by default under the trigger of compaction, or,
    where that holds already, to half of what is live. `auto`: what the gauge asks for now, curation or compaction."""
    if dry_run:
        decided = await _planned(memory, row.session, strategy, target)
        return await _ladder_told(memory, row, strategy, decided, dry_run=True, after=decided.tokens_after)
    async with memory.locks.transcript(row.session):
        decided = await _planned(memory, row.session, strategy, target)
        if decided.changes and decided.event != "curation":
            await checkpoint.before(memory, row.session, "compaction")
        relief = await pressure.carry_out(memory, decided)
    return await _ladder_told(memory, row, strategy, decided, dry_run=False, after=relief.tokens_after)


async def _planned(memory: Memory, session: str, strategy: Strategy, target: int | None) -> Plan:
    turns = await sessions.session_turns(memory, session)
    full = await gauges(memory, session)
    due = full.live >= pressure.triggers_of(memory.settings).compaction
    if strategy == "auto" and target is None and not due:
        return await pressure.plan(memory, session, turns, "curation", asked=True)
    most = None if due else full.live_tokens // HALF
    if target is not None:
        most = full.limit * target // 100
    return await pressure.plan(memory, session, turns, "compaction", asked=True, target=most)


async def _ladder_told(
    memory: Memory, row: SessionRow, strategy: Strategy, decided: Plan, *, dry_run: bool, after: int
) -> Pruned:
    turns = {turn.number: turn for turn in await sessions.session_turns(memory, row.session)}
    fates = tuple(_fated(one, turns) for one in decided.decisions)
    notes: list[str] = []
    if strategy == "auto" and decided.event == "curation":
        notes.append("Under the trigger of compaction only what has nothing to do with the last message goes.")
    if any(one.why == UNJUDGED for one in decided.decisions):
        notes.append("What is not indexed yet cannot be judged; a running server, or any search, indexes it.")
    return Pruned(
        strategy,
        dry_run,
        f"session {row.session}",
        fates,
        row.session,
        before=decided.tokens_before,
        after=after,
        limit=memory.settings.context.limit_tokens,
        mirror=row.delivery != "replace",
        notes=(*notes, *_mirror(row.delivery)),
        undo=() if dry_run else tuple(one.id for one in fates if one.fate != "keep"),
    )


def _fated(decision: Decision, turns: dict[int, Turn]) -> Fated:
    chunk, fate = decision.chunk, FATES[decision.action]
    becomes = BECOMES.get(decision.action, "")
    why = decision.why or ("kept" if fate == "keep" else "")
    score = "" if fate == "keep" else f", score {decision.score:.2f}"
    return Fated(
        chunk.id,
        described(chunk, turns.get(chunk.turn)),
        fate,
        f"{becomes}: {why}{score}" if becomes else f"{why}{score}",
        chunk.tokens,
        decision.tokens,
    )


def described(chunk: LiveChunk, turn: Turn | None) -> str:
    """A chunk as a person knows it: `turn 4, user: "I went to …"`, `turn 5, tool Bash: …`, `file src/app.py`."""
    if chunk.kind not in ("message", "tool"):
        return f"{chunk.kind} {chunk.name}"
    who = f"tool {chunk.name}" if chunk.kind == "tool" else turn.role if turn else "message"
    if turn is None or chunk.part > len(turn.tool_calls):
        return f"turn {chunk.turn}, {who}"
    said = turn.tool_calls[chunk.part - 1].summary if chunk.part else text_of(turn, 0)
    return f"turn {chunk.turn}, {who}: {title_of(said)}" if said.strip() else f"turn {chunk.turn}, {who}"


def _mirror(delivery: Delivery | None) -> tuple[str, ...]:
    return () if delivery == "replace" else (IN_ADD,)


# ------------------------------------------------------------ advisor


async def prune_advised(memory: Memory, row: SessionRow, dry_run: bool) -> Pruned:
    """What the advisor proposes: its `prune` goes, its `review` is named, all else stays. Anchored and important things
    stay, and so does a tool's result as long as one of its files is to stay."""
    if dry_run:
        return await _advised(memory, row, dry_run)
    async with memory.locks.transcript(row.session):
        return await _advised(memory, row, dry_run)


async def _advised(memory: Memory, row: SessionRow, dry_run: bool) -> Pruned:
    session = row.session
    seen = await advisor.look(memory, session, asked=True, most=None)
    proposed = {one.item.id: one for one in seen.advice.recommendations}
    scores = {item.id: score for item, score in seen.advice.scores}
    live = {chunk.id: chunk for chunk in seen.chunks}
    guard = Protected(anchored=await anchored_ids(memory, session, list(live.values())))
    holders: dict[str, set[str]] = {}
    for item in seen.items:
        for chunk in item.chunks:
            holders.setdefault(chunk, set()).add(item.id)
    pruned = {name for name, one in proposed.items() if one.proposal == "prune"}
    decisions: dict[str, Decision] = {}
    fates: list[Fated] = []
    for item in seen.items:
        one = proposed.get(item.id)
        why = one.reason if one else scores[item.id].why if item.id in scores else "not scored"
        if item.id not in pruned:
            fates.append(Fated(item.id, item.path, "fading" if one else "keep", why, item.tokens, item.tokens))
            continue
        total = scores[item.id].total
        stays = ""
        for piece in (live[chunk] for chunk in item.chunks):
            held = _held(piece, holders[piece.id] - pruned, guard)
            stays = stays or held
            if not held:
                decisions[piece.id] = Decision(piece, "drop", total / MOST_POINTS, why, 0)
        points = f"{total} of {MOST_POINTS} points: {why}"
        fates.append(Fated(item.id, item.path, "keep" if stays else "gone", stays or points, item.tokens, 0))
    before = seen.gauges.live_tokens
    left = before - sum(decision.chunk.tokens for decision in decisions.values())
    if decisions and not dry_run:
        done = Plan(session, "curation", seen.prompt, True, tuple(decisions.values()), before, 0, "asked")
        left = (await pressure.carry_out(memory, done, "asked")).tokens_after
        advisor.keep(memory, session, seen)
    warnings = (*seen.advice.warnings, *((TOO_LATE,) if seen.advice.phase == "too late" else ()))
    notes = (*warnings, *((seen.problem,) if seen.problem else ()), *_mirror(row.delivery))
    return Pruned(
        "advisor",
        dry_run,
        f"files, skills and agent outputs of session {session}",
        tuple(sorted(fates, key=lambda one: _order(one, proposed))),
        session,
        before=before,
        after=left,
        limit=seen.gauges.limit,
        mirror=row.delivery != "replace",
        notes=notes,
        undo=() if dry_run else tuple(decisions),
    )


def _held(chunk: LiveChunk, others: set[str], guard: Protected) -> str:
    """Why a chunk stays although the advisor would let it go; empty if it goes."""
    if why := guard.why(chunk):
        return why
    return f"came in one tool result with {sorted(others)[0]}, which stays" if others else ""


def _order(one: Fated, proposed: dict[str, Recommendation]) -> int:
    return proposed[one.id].score.total if one.id in proposed else 99


# ------------------------------------------------------------ Clarity


async def prune_clarity(memory: Memory, row: SessionRow, dry_run: bool) -> Pruned:
    """Items that the conversation is no longer about leave the block; their counts stay."""
    if dry_run:
        done = await clarity.prune(memory, row.session, dry_run=True)
    else:
        async with memory.locks.transcript(row.session):
            done = await clarity.prune(memory, row.session, dry_run=False)
    fates = [Fated(one.item.id, one.item.id, "gone", f"{one.score:.0f} points: {one.why}") for one in done.gone]
    fates += [_item(one) for one in done.kept]
    notes: tuple[str, ...] = ("Items leave the block [CLARITY CONTEXT] alone; a mention or an anchor brings one back.",)
    if done.out_already:
        notes += (f"Out since an earlier pruning: {len(done.out_already)}.",)
    of = f"items of session {row.session}"
    return Pruned(
        "clarity", dry_run, of, tuple(fates), row.session, where="no other place: the counts stay", notes=notes
    )


def _item(one: Verdict) -> Fated:
    fading = one.word == "fading"
    why = f"{one.score:.0f} points: {one.why}" if fading else one.why
    return Fated(one.item.id, one.item.id, "fading" if fading else "keep", why)
