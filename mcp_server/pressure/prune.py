"""Shows what can be removed from the context or the memory, and why; with `dry_run=False` removes it, recoverably.

    strategy   reads                           removes
    auto       a session's context             chunks that its gauge proposes: to cold storage
    compact    a session's context             chunks by the steps of compaction: to cold storage
    advisor    files, skills, agent outputs    what the advisor recommends: to cold storage
    clarity    the session's items             items without relevance: out of the block
    memory     MEMORY.md                       its oldest entries: to archive/
    files      knowledge files                 files that are no longer used: to archive/

A dry run does everything but the last step and changes no file. Otherwise `prune` holds the lock on the transcript.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import get_args

from mcp_server.checkpoints import checkpoint
from mcp_server.conversations import sessions
from mcp_server.errors import Invalid, NotFound, Refused
from mcp_server.knowledge.anchor import anchored_ids
from mcp_server.knowledge.prune_knowledge import Fate, Fated, Pruned, Strategy, prune_files, prune_memory
from mcp_server.memory import Memory
from mcp_server.model import Caller, Turn
from mcp_server.pressure import advisor, pressure
from mcp_server.pressure.ladder import UNJUDGED, Protected
from mcp_server.pressure.pressure import Plan
from mcp_server.relevance import clarity
from mcp_server.relevance.chunks import Action, Decision, LiveChunk, text_of
from mcp_server.relevance.live_set import Lookups, gauges
from mcp_server.storage.values import SessionRow
from mcp_server.text.prose import did_you_mean
from mcp_server.text.transcript_head import title_of

IN_ADD = (
    "This changes the memory's mirror (its own copy) of the conversation, from which contexts are compiled. The "
    "client's own window still holds all of it; only its user can change that, with /compact, a new chat, or by "
    "removing files."
)
TOO_LATE = 'prune(strategy="compact") shows what compacting would do.'
FATES: dict[Action, Fate] = {"keep": "keep", "drop": "gone"}  # the others fade
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
    """Prunes by the ladder: down to `target` percent of the limit. `compact`: by default to below the compaction
    trigger or, if that is reached already, to half of the live tokens. `auto`: what the gauge asks for now, curation or
    compaction."""
    lookups, full = Lookups(memory, row.session), await gauges(memory, row.session)
    due = full.live >= memory.settings.context.compaction_trigger_pct
    if strategy == "auto" and target is None and not due:
        decided = await pressure.plan(memory, lookups, "curation", asked=True)
    else:
        most = None if due else full.live_tokens // HALF
        most = most if target is None else full.limit * target // 100
        decided = await pressure.plan(memory, lookups, "compaction", asked=True, target=most)
    after = decided.tokens_after
    if not dry_run:
        if decided.changes and decided.event != "curation":
            await checkpoint.before(memory, row.session, "compaction")
        after = (await pressure.carry_out(memory, decided)).tokens_after
    turns = {turn.number: turn for turn in await sessions.session_turns(memory, row.session)}
    fates = tuple(_fated(one, turns) for one in decided.decisions)
    notes: list[str] = []
    if strategy == "auto" and decided.event == "curation":
        notes.append("The context is not full yet, so only messages that are unrelated to the latest ones are removed.")
        half = await memory.live.tokens(row.session) // HALF
        shorter = await pressure.plan(memory, lookups, "compaction", asked=True, target=half)
        if saved := shorter.tokens_before - shorter.tokens_after:
            notes.append(f'strategy="compact" would free about {saved:,} tokens: it also shortens large messages.')
    if any(one.why == UNJUDGED for one in decided.decisions):
        notes.append(
            "Messages that are not indexed yet cannot be judged; a running server, or any search, indexes them."
        )
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
        notes=(*notes, *_mirror(row)),
        undo=() if dry_run else tuple(one.id for one in fates if one.fate != "keep"),
    )


def _fated(decision: Decision, turns: dict[int, Turn]) -> Fated:
    chunk, fate = decision.chunk, FATES.get(decision.action, "fading")
    why = decision.why or "kept" if fate == "keep" else f"{decision.why}, score {decision.score:.2f}"
    why = f"{BECOMES[decision.action]}: {why}" if decision.action in BECOMES else why
    return Fated(chunk.id, described(chunk, turns.get(chunk.turn)), fate, why, chunk.tokens, decision.tokens)


def described(chunk: LiveChunk, turn: Turn | None) -> str:
    """Returns a chunk in words: `turn 4, user: "I went to …"`, `turn 5, tool Bash: …`, `file src/app.py`."""
    if chunk.kind not in ("message", "tool"):
        return f"{chunk.kind} {chunk.name}"
    who = f"tool {chunk.name}" if chunk.kind == "tool" else turn.role if turn else "message"
    if turn is None or chunk.part > len(turn.tool_calls):
        return f"turn {chunk.turn}, {who}"
    said = turn.tool_calls[chunk.part - 1].summary if chunk.part else text_of(turn, 0)
    return f"turn {chunk.turn}, {who}: {title_of(said)}" if said.strip() else f"turn {chunk.turn}, {who}"


def _mirror(row: SessionRow) -> tuple[str, ...]:
    return () if row.delivery == "replace" else (IN_ADD,)


# ------------------------------------------------------------ advisor


async def prune_advised(memory: Memory, row: SessionRow, dry_run: bool) -> Pruned:
    """Prunes what the advisor proposes to prune. Anchored and important chunks stay, and so does a tool's result if one
    of its files stays."""
    session = row.session
    view = await advisor.view_of(memory, session, asked=True, most=None)
    proposed = {one.item.id: one for one in view.advice.recommendations}
    pruned = {name for name, one in proposed.items() if one.proposal == "prune"}
    scores = {item.id: score for item, score in view.advice.scores}
    live = {chunk.id: chunk for chunk in view.chunks}
    guard = Protected(anchored=await anchored_ids(memory, session, list(live.values())))
    holders: dict[str, set[str]] = {}
    for item in view.items:
        for chunk in item.chunks:
            holders.setdefault(chunk, set()).add(item.id)
    decisions: dict[str, Decision] = {}
    fates: list[Fated] = []
    for item in view.items:
        one = proposed.get(item.id)
        why = one.reason if one else scores[item.id].why if item.id in scores else "not scored"
        if item.id not in pruned:
            fates.append(Fated(item.id, item.path, "fading" if one else "keep", why, item.tokens, item.tokens))
            continue
        total = scores[item.id].total
        stays = ""
        for piece in (live[chunk] for chunk in item.chunks):
            held = guard.why(piece)
            if not held and (others := sorted(holders[piece.id] - pruned)):
                held = f"came in one tool result with {others[0]}, which stays"
            stays = stays or held
            if not held:
                decisions[piece.id] = Decision(piece, "drop", total / MOST_POINTS, why, 0)
        points = f"{total} of {MOST_POINTS} points: {why}"
        fates.append(Fated(item.id, item.path, "keep" if stays else "gone", stays or points, item.tokens, 0))
    before = view.gauges.live_tokens
    left = before - sum(decision.chunk.tokens for decision in decisions.values())
    if decisions and not dry_run:
        done = Plan(session, "curation", view.prompt, tuple(decisions.values()), before, 0, "asked")
        left = (await pressure.carry_out(memory, done, "asked")).tokens_after
        await advisor.save(memory, session, view)
    warnings = (*view.advice.warnings, *((TOO_LATE,) if view.advice.phase == "too late" else ()))
    notes = (*warnings, *((view.problem,) if view.problem else ()), *_mirror(row))
    return Pruned(
        "advisor",
        dry_run,
        f"files, skills and agent outputs of session {session}",
        tuple(sorted(fates, key=lambda one: proposed[one.id].score.total if one.id in proposed else 99)),
        session,
        before=before,
        after=left,
        limit=view.gauges.limit,
        mirror=row.delivery != "replace",
        notes=notes,
        undo=() if dry_run else tuple(decisions),
    )


# ------------------------------------------------------------ Clarity


async def prune_clarity(memory: Memory, row: SessionRow, dry_run: bool) -> Pruned:
    """Removes from the block the items that the conversation is no longer about. Their counts stay."""
    done = await clarity.prune(memory, row.session, dry_run=dry_run)
    fates = []
    for one in (*done.gone, *done.kept):
        why = one.why if one.word == "keep" else f"{one.score:.0f} points: {one.why}"
        fates.append(Fated(one.item.id, one.item.id, one.word, why))
    notes: tuple[str, ...] = (
        "Items leave only the block [CLARITY CONTEXT]; a mention or an anchor brings an item back.",
    )
    if done.out_already:
        notes += (f"Removed by an earlier pruning: {len(done.out_already)}.",)
    of, where = f"items of session {row.session}", "no other place: the counts stay"
    return Pruned("clarity", dry_run, of, tuple(fates), row.session, where=where, notes=notes)


STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)
OF_KNOWLEDGE = ("memory", "files")


async def prune(
    memory: Memory, strategy: str, session: str | None, dry_run: bool, caller: Caller, *, target: int | None = None
) -> Pruned:
    """Returns what would be removed (`dry_run`), or what was removed.

    `session` is by default the caller's own; `memory` and `files` need none. `target` is the size to reach:
    percent of the limit for `auto` and `compact`, lines for `memory`.

    Raises:
        Invalid: an unknown strategy, or a target for one that takes none.
        NotFound: no such session, or none was named and the caller has none.
        Refused: the session has ended and has no live context; or cold storage is off.
    """
    chosen = next((known for known in STRATEGIES if known == strategy), None)
    if chosen is None:
        near = did_you_mean(strategy, STRATEGIES)
        raise Invalid(f"strategy {strategy!r} is not one of {', '.join(STRATEGIES)}{near}")
    if target is not None and chosen not in ("auto", "compact", "memory"):
        raise Invalid(f"strategy {chosen!r} takes no target; auto and compact (percent) and memory (lines) do")
    if target is not None and chosen != "memory" and not 0 <= target <= 100:
        raise Invalid(f"target {target}: for {chosen} it is percent of the limit, 0 to 100")
    if chosen == "memory":
        return await prune_memory(memory, target, dry_run)
    if chosen == "files":
        return await prune_files(memory, dry_run)
    row = await _row(memory, session or caller.session)
    if chosen != "clarity" and not memory.settings.context.cold_storage_enabled:
        raise Refused("context.cold_storage_enabled is off, so nothing is dropped; set it in memory-config.yaml")
    async with nullcontext() if dry_run else memory.locks.transcript(row.session):
        if chosen == "clarity":
            return await prune_clarity(memory, row, dry_run)
        if chosen == "advisor":
            return await prune_advised(memory, row, dry_run)
        done = await prune_ladder(memory, row, chosen, target, dry_run)
    return replace(done, notes=(*done.notes, *await _elsewhere(memory, row))) if chosen == "auto" else done


async def last_session(memory: Memory) -> str | None:
    await sessions.ready(memory)
    rows = await sessions.list_sessions(memory, open_only=True, limit=1)
    return rows[0].session if rows else None


async def _row(memory: Memory, session: str | None) -> SessionRow:
    await sessions.ready(memory)
    if session is None:
        raise NotFound("name a session (status lists them), or use a strategy that needs none: memory, files")
    row = await sessions.require(memory, session)
    if row.status == "closed":
        raise Refused(
            f"session {row.session} has ended, so it has no live context; `recover` lists its chunks in cold storage"
        )
    return row


async def _elsewhere(memory: Memory, row: SessionRow) -> tuple[str, ...]:
    """Returns a line for each other strategy with what it would remove."""
    others = [
        await prune_clarity(memory, row, dry_run=True),
        await prune_memory(memory, None, dry_run=True),
        await prune_files(memory, dry_run=True),
    ]
    found = ((other.strategy, len(other.of_fate("gone")), other.of) for other in others)
    return tuple(f'strategy="{name}" would take {count} from {of}.' for name, count, of in found if count)
