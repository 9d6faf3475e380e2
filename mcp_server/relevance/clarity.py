"""Clarity: what a conversation is about, counted as it is said, scored when somebody looks (S0).

    a turn is on disk → `heard` counts it → state.db              S0's hooks before_agent_start and agent_end
    somebody looks    → counts + anchors → scores → verdicts → the block, the tables
    compaction, or somebody asks → `prune` takes what fades out of the block; the counts stay

The counts follow from the transcript: what the state does not have (a new state.db, an import, a crash after the turn)
is counted from there.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from anyio.to_thread import run_sync

from mcp_server.conversations import sessions
from mcp_server.conversations.as_of import as_of
from mcp_server.errors import ContextManagerError
from mcp_server.knowledge.anchor import anchors
from mcp_server.knowledge.anchors import anchored_since
from mcp_server.memory import Memory
from mcp_server.model import Turn
from mcp_server.relevance import clarity_pruner
from mcp_server.relevance.clarity_block import BlockItem
from mcp_server.relevance.clarity_pruner import PruningRules, Verdict
from mcp_server.relevance.clarity_tracker import ClarityWeights, Tracker
from mcp_server.settings import Settings
from mcp_server.storage.values import Change
from mcp_server.text.named_things import CATEGORIES
from mcp_server.topics.topic_context import items_of_active

NAMESPACE = "clarity"
STATE = "clarity:relevance_state"
PRUNED = "clarity:pruned"
"""Keys of the namespace, each followed by `:` and the session."""

IDENTITY = "knowledge/identity/"
WORTH_KEEPING = 100
"""Turns, as an import brings them: who has counted so many keeps the counts, a second time would be felt."""

MOST_IN_BLOCK = 60
"""Items handed to the block: more never fit into its tokens."""


@dataclass(frozen=True, slots=True)
class ItemsPruned:
    """What pruning takes out of the block (`gone`) and what stays, the highest score first. `done` is False for a dry
    run. `out_already` are ids that an earlier pruning took out."""

    session: str
    gone: tuple[Verdict, ...]
    kept: tuple[Verdict, ...]
    done: bool
    out_already: tuple[str, ...] = ()


async def heard(memory: Memory, session: str, turns: Sequence[Turn]) -> None:
    """Counts turns that were just recorded, oldest first, and stores the counts. Call it under the transcript's lock.

    A turn counts once, whoever calls; turns that were recorded and not counted (a crash came between) are counted now.
    """
    if not memory.settings.clarity.enabled or not turns:
        return
    counts = await _stored(memory, session)
    if turns[-1].number <= counts.turn:
        return
    if turns[0].number > counts.turn + 1:
        turns = await sessions.session_turns(memory, session)
    now = memory.clock()
    document = await run_sync(_counted, counts, turns, await run_sync(_anchored, memory), now)
    await memory.state.put(NAMESPACE, f"{STATE}:{session}", document, waits=False)  # the transcript has it all


async def tracker(memory: Memory, session: str) -> Tracker:
    """The counts of a session as of its last turn, with the user's anchors on them. Raises NotFound."""
    counts = await _as_of_now(memory, session)
    return counts.with_anchors(await run_sync(_anchored, memory))


async def verdicts(memory: Memory, session: str) -> tuple[Verdict, ...]:
    """Every item of a session with its score and its terms, the highest first: whether it stays in the block, and why.
    What was pruned before is out until somebody mentions or anchors it again."""
    counts = await tracker(memory, session)
    pruned = await _pruned(memory, session)
    return await run_sync(_judged, memory, counts, pruned, await items_of_active(memory, session))


async def block_of(memory: Memory, session: str) -> tuple[BlockItem, ...]:
    """What the block of a session may show, the highest score first; nothing where Clarity is off."""
    if not memory.settings.clarity.enabled or memory.settings.clarity.block_tokens == 0:
        return ()
    shown = await tracker(memory, session)
    essential = await items_of_active(memory, session)
    judged = await run_sync(_judged, memory, shown, await _pruned(memory, session), essential)
    kept = [verdict for verdict in judged if verdict.keep]
    return tuple(
        BlockItem(one.item.id, round(one.score, 6), one.item.anchored, one.why, _rounded(one.terms))
        for one in kept[:MOST_IN_BLOCK]
    )


async def prune(memory: Memory, session: str, dry_run: bool) -> ItemsPruned:
    """Takes what the rules no longer keep out of the block; the counts stay, and the next mention brings it back."""
    counts = await tracker(memory, session)
    before = await _pruned(memory, session)
    judged = await run_sync(_judged, memory, counts, {}, await items_of_active(memory, session))
    out = {name for name, at in before.items() if (item := counts.items.get(name)) and _is_out(item.last_mention, at)}
    gone = tuple(verdict for verdict in judged if not verdict.keep)
    fresh = {verdict.item.id: counts.exchange for verdict in gone if verdict.item.id not in out}
    if fresh and not dry_run:
        left = {name: at for name, at in before.items() if name in out}  # what came back needs no mark any more
        await memory.state.put(NAMESPACE, f"{PRUNED}:{session}", left | fresh)
        memory.changes.publish(Change("session", None, session))
    return ItemsPruned(
        session,
        tuple(verdict for verdict in gone if verdict.item.id in fresh),
        tuple(verdict for verdict in judged if verdict.keep and verdict.item.id not in out),
        not dry_run,
        tuple(sorted(out)),
    )


async def forget(memory: Memory, session: str) -> None:
    """Drops what is counted of a session whose transcript was written anew: it is counted from there again."""
    await memory.state.remove(NAMESPACE, f"{STATE}:{session}", f"{PRUNED}:{session}")


async def forget_old(memory: Memory) -> int:
    """Drops the counts of sessions that ended long ago; returns how many. They can be counted again from the
    transcripts."""
    kept = {key: key.removeprefix(STATE).removeprefix(PRUNED)[1:] for key in await memory.state.keys_of(NAMESPACE)}
    ended = await sessions.ended_long_ago(memory) if kept else frozenset()
    old = [key for key, session in kept.items() if session in ended]
    if old:
        await memory.state.remove(NAMESPACE, *old)
    return len({kept[key] for key in old})


async def state_of(memory: Memory, session: str) -> dict[str, Any]:
    """S0's `clarity.getState`: the whole tracker in its stored shape, with today's anchors."""
    counts = await tracker(memory, session)
    return {"session": session, **counts.as_dict(memory.clock())}


async def stats_of(memory: Memory, session: str) -> dict[str, Any]:
    """S0's `clarity.stats`: how much is tracked, and what of it stays in the block."""
    counts = await tracker(memory, session)
    judged = await verdicts(memory, session)
    kinds = Counter(item.category for item in counts.items.values())
    words = Counter(verdict.word for verdict in judged)
    return {
        "session": session,
        "exchanges": counts.exchange,
        "items": len(counts.items),
        "by_category": {category: kinds[category] for category in CATEGORIES},
        "anchored": sum(item.anchored for item in counts.items.values()),
        "essential": sum(verdict.essential for verdict in judged),
        "candidates": len(counts.candidates),
        "mentions": sum(item.mentions for item in counts.items.values()),
        "references": sum(item.references for item in counts.items.values()),
        "mean_score": round(sum(verdict.score for verdict in judged) / len(judged), 2) if judged else 0.0,
        **{word: words[word] for word in ("keep", "fading", "gone")},
        "pruned": len(await _pruned(memory, session)),
    }


def config_of(settings: Settings) -> dict[str, Any]:
    """S0's `clarity.config`, in its shape; `blockTokens` is ours."""
    return dict(_camel(settings.clarity.model_dump()))


def weights_of(settings: Settings) -> ClarityWeights:
    """The weights of an item's score as set."""
    return ClarityWeights(**settings.clarity.scoring.model_dump())


def rules_of(settings: Settings) -> PruningRules:
    """The pruner's rules as set."""
    return PruningRules(**settings.clarity.pruning.model_dump(), strict=settings.clarity.strict_mode)


def _camel(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    return {_camel_name(name): _camel(inner) for name, inner in value.items()}


def _camel_name(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _rounded(terms: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 6) for name, value in terms.items()}


async def _as_of_now(memory: Memory, session: str) -> Tracker:
    """The counts as of the session's last turn; turns that the state did not have are counted from the transcript."""
    row = await sessions.require(memory, session)
    counts = await _stored(memory, row.session)
    hidden = await as_of(memory, row.session)
    last = row.turns if hidden is None else hidden
    missing = last - counts.turn
    if missing > 0:
        turns = await sessions.session_turns(memory, row.session)
        await run_sync(_take_all, counts, [turn for turn in turns if turn.number <= last])
    if missing >= WORTH_KEEPING:
        with contextlib.suppress(ContextManagerError):
            await memory.state.put(NAMESPACE, f"{STATE}:{row.session}", counts.as_dict(memory.clock()), waits=False)
    return counts


async def _stored(memory: Memory, session: str) -> Tracker:
    """The stored counts; none for a session that has none, or where what is stored cannot be read."""
    document = await memory.state.get(NAMESPACE, f"{STATE}:{session}")
    try:
        return await run_sync(Tracker.from_dict, document) if isinstance(document, Mapping) else Tracker()
    except (KeyError, TypeError, ValueError, OverflowError):
        return Tracker()


async def _pruned(memory: Memory, session: str) -> dict[str, int]:
    stored = await memory.state.get(NAMESPACE, f"{PRUNED}:{session}")
    if not isinstance(stored, Mapping):
        return {}
    return {str(name): at for name, at in stored.items() if isinstance(at, int)}


def _counted(counts: Tracker, turns: Sequence[Turn], anchored: Mapping[str, datetime], now: datetime) -> dict[str, Any]:
    """The counts after `turns`, as they are stored: with the flags of S0's shape, without items nobody mentioned."""
    _take_all(counts, turns)
    return counts.as_dict(now, anchored)


def _take_all(counts: Tracker, turns: Sequence[Turn]) -> None:
    for turn in turns:
        counts.take(turn)


def _anchored(memory: Memory) -> dict[str, datetime]:
    return anchored_since(anchors(memory), memory.clock())


def _judged(
    memory: Memory, counts: Tracker, pruned: Mapping[str, int], of_topics: frozenset[str]
) -> tuple[Verdict, ...]:
    """A verdict for every item, the highest first. `of_topics` are the items that active topics name."""
    scored = counts.scores(weights_of(memory.settings))
    terms = {item.id: score.terms() for item, score in scored}
    essential = _essential(memory, counts, of_topics)
    rules = rules_of(memory.settings)
    judged = []
    for one in clarity_pruner.prune([(item, score.total) for item, score in scored], essential, rules):
        name = one.item.id
        one = replace(one, essential=name in essential, terms=terms[name])
        protected = one.item.anchored or (rules.strict and one.essential)
        if one.keep and not protected and name in pruned and _is_out(one.item.last_mention, pruned[name]):
            one = replace(one, keep=False, why="pruned, and not mentioned since")
        judged.append(one)
    return tuple(judged)


def _is_out(last_mention: int, pruned_at: int) -> bool:
    return last_mention <= pruned_at


def _essential(memory: Memory, counts: Tracker, of_topics: frozenset[str]) -> frozenset[str]:
    """The ids of the essential tier: anchored items, those of active topics, and the identity files by path or name."""
    paths = [stat.path.lower() for stat in memory.files.walk(IDENTITY) if stat.path.endswith(".md")]
    names = {name for path in paths for name in (path, path.removeprefix("knowledge/"), path.rsplit("/", 1)[1])}
    return frozenset(name for name, item in counts.items.items() if item.anchored or name in names or name in of_topics)
