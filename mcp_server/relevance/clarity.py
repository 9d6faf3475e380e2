"""Clarity: counts the items that a conversation is about, and scores them when a view needs it.

    a turn is on disk → `counted` → state.db
    a view → counts + anchors → scores → verdicts → the block, the tables
    compaction, or a request → `prune` removes items from the block; the counts stay

The counts can be rebuilt from the transcript: turns that the state lacks (a new state.db, an import, a crash) are
counted from it.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from anyio.to_thread import run_sync
from pydantic.alias_generators import to_camel

from mcp_server.conversations import sessions
from mcp_server.conversations.sessions import AS_OF, last_visible
from mcp_server.errors import ContextManagerError, Invalid, NotFound
from mcp_server.knowledge.anchor import Anchored, anchors
from mcp_server.memory import Memory
from mcp_server.model import Turn
from mcp_server.relevance import clarity_scores
from mcp_server.relevance.clarity_scores import BlockItem, ItemVerdict, Tracker, anchored_since, block
from mcp_server.settings import Settings
from mcp_server.storage import topics as activations
from mcp_server.storage.values import Change, SessionRow
from mcp_server.text.fencing import neutralise
from mcp_server.text.prose import CATEGORIES, extract
from mcp_server.topics.topic import Activations
from mcp_server.topics.topic_context import items_of_active

View = Literal["status", "state", "scores", "stats", "config"]
TOP = 10
STATUS_HEAD, STATUS_ROW = 500, 50
"""Approximate tokens of Clarity in `status` without its items, and of each item."""

MOST_ROWS = 100
COLUMNS = ("item", "kind", "said", "referred to", "silent", "terms", "score", "", "why")


@dataclass(frozen=True, slots=True)
class ClarityView:
    """A view of a session's Clarity: `data` for programs, `markdown` for people and models. `session` may be ""."""

    session: str
    data: Mapping[str, Any]
    markdown: str

    def as_dict(self) -> dict[str, Any]:
        return dict(self.data)


async def view(memory: Memory, name: str, session: str | None = None) -> ClarityView:
    """Returns a view of a session's Clarity; without a session, of the one with the latest message.

    Raises:
        Invalid: no such view.
        NotFound: no such session, or there is no session.
    """
    if name == "config":
        config = config_of(memory.settings)
        return ClarityView("", config, json.dumps(config, indent=1))
    if name not in get_args(View):
        raise Invalid(f"view {name!r} is not one of {', '.join(get_args(View))}")
    found = await judged(memory, await session_meant(memory, session))
    meant, counts, stats, knobs = found.session, found.counts, stats_of(found), memory.settings.clarity
    if name == "state":
        state = {"session": meant, **counts.as_dict(memory.clock())}
        return ClarityView(meant, state, json.dumps(state, ensure_ascii=False, indent=1))
    rows = [_row(one, counts.exchange) for one in found.verdicts]
    if name == "stats":
        data, lines = stats, _bullets(stats)
    elif name == "scores":
        data, lines = {"session": meant, "exchange": counts.exchange, "scores": rows}, _table(rows)
    else:
        kept = [BlockItem(one.item.id, one.score, one.item.anchored) for one in found.verdicts if one.keep]
        shown, _ = block(kept, memory.tokens.count, knobs.block_tokens)
        data = {"enabled": knobs.enabled, "strictMode": knobs.strict_mode, **stats, "block": shown, "top": rows[:TOP]}
        data["state"] = counts.as_dict(memory.clock())
        numbers = ", ".join(f"{stats[word]} {word}" for word in ("keep", "fading", "gone"))
        said = f"Exchange {counts.exchange}; {stats['items']} items ({stats['anchored']} anchored): {numbers}; "
        said += f"{stats['candidates']} words said once.{' Strict mode.' if knobs.strict_mode else ''}"
        lines = [said, "", shown or "The block is empty."]
    off = "" if knobs.enabled else " (switched off: clarity.enabled)"
    return ClarityView(meant, data, "\n".join([f"# Clarity of {neutralise(meant)}{off}", "", *lines]))


async def session_meant(memory: Memory, session: str | None) -> str:
    """Returns the named session, else the open one with the latest message, else the last one."""
    await sessions.ready(memory)
    if session:
        return (await sessions.require(memory, session)).session
    for open_only in (True, False):
        for row in await sessions.list_sessions(memory, open_only=open_only, limit=1):
            return row.session
    raise NotFound("there is no conversation yet: `observe` opens one, `import` adds existing ones")


async def session_if_any(memory: Memory, session: str | None = None) -> str | None:
    """Returns the session as `session_meant` does, or None if none is named and there is none yet. Raises NotFound if
    the named session does not exist."""
    try:
        return await session_meant(memory, session)
    except NotFound:
        if session:
            raise
        return None


async def items_of(memory: Memory, session: str | None) -> list[str]:
    """Returns the ids of a session's items, highest score first; none if nothing was said yet."""
    try:
        found = await judged(memory, await session_meant(memory, session))
    except NotFound:
        return []
    return [one.item.id for one in found.verdicts]


async def anchored_text(memory: Memory, done: Anchored, session: str | None = None) -> str:
    """Returns the result of an anchor call for people, with a note if the user has not named the item in the session
    yet. Without a session, the one with the latest message is checked."""
    item, names = done.anchor.item, {done.anchor.item, *extract(done.anchor.item)}
    if done.on and done.anchor.kind == "item":
        meant = await session_if_any(memory, session)
        counts = (await judged(memory, meant)).counts if meant else Tracker()
        known = {name for name, one in counts.items.items() if one.mentions} | counts.candidates.keys()
        if names.isdisjoint(known):
            unknown = f"No message of the user names {item} in this conversation yet: the anchor works once one does"
            return f"{done.markdown}. {unknown}."
    return done.markdown


async def for_status(memory: Memory, session: str | None, max_tokens: int | None) -> dict[str, Any]:
    """Returns the part of `status` about Clarity: statistics and the first items; with `max_tokens`, all items that
    fit, with their terms, and the settings."""
    enabled = memory.settings.clarity.enabled
    meant = await session_if_any(memory, session)
    if meant is None:
        return {"enabled": enabled, "session": "none yet"}
    found = await judged(memory, meant)
    verdicts = found.verdicts
    head = {"enabled": enabled, "strict_mode": memory.settings.clarity.strict_mode, **stats_of(found)}
    most = TOP if max_tokens is None else max(TOP, (max_tokens - STATUS_HEAD) // STATUS_ROW)
    shown = [
        {"item": neutralise(one.item.id), "score": round(one.score, 1), "state": one.word} for one in verdicts[:most]
    ]
    if max_tokens is None:
        return {**head, "top": shown}
    for row, one in zip(shown, verdicts, strict=False):
        row |= {"terms": _terms(one.terms), "why": one.why}
    left = f"{len(verdicts) - most} more with lower scores; max_tokens" if len(verdicts) > most else "none"
    return {**head, "scores": shown, "left_out": left, "config": config_of(memory.settings)}


def pruned_text(pruned: ItemsPruned) -> str:
    """Returns the changes of pruning, in words."""
    if not pruned.gone:
        return "Nothing to prune: the rules keep every item that is shown."
    what = "leave the block (their counts stay; a mention or an anchor brings them back)"
    rows = (f"- {neutralise(one.item.id)} ({one.score:.0f}): {one.why}" for one in pruned.gone)
    return "\n".join([f"{len(pruned.gone)} items {what}:", "", *rows])


def _row(verdict: ItemVerdict, exchange: int) -> dict[str, Any]:
    item = verdict.item
    return {
        "id": item.id,
        "category": item.category,
        "tier": "essential" if verdict.essential else "normal",
        "anchored": item.anchored,
        "mentions": item.mentions,
        "references": item.references,
        "silent": exchange - item.last_mention if item.mentions else None,
        "score": round(verdict.score, 6),
        "terms": {name: round(value, 6) for name, value in verdict.terms.items()},
        "state": verdict.word,
        "why": verdict.why,
    }


def cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns a row of the table of scores, by `COLUMNS`."""
    return (
        ("⚓ " if row["anchored"] else "") + row["id"],
        row["category"] + (", essential" if row["tier"] == "essential" else ""),
        str(row["mentions"]),
        str(row["references"]),
        "–" if row["silent"] is None else str(row["silent"]),
        _terms(row["terms"]),
        f"{row['score']:.1f}",
        row["state"],
        row["why"],
    )


def _terms(terms: Mapping[str, float]) -> str:
    return " ".join(f"{name} {value:+.1f}" for name, value in terms.items() if value)


def _table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    if not rows:
        return ["No items yet: they come from the user's messages."]
    lines = [f"| {' | '.join(COLUMNS)} |", "|" + "---|" * len(COLUMNS)]
    for row in rows[:MOST_ROWS]:
        lines.append(f"| {' | '.join(neutralise(cell).replace('|', '¦') for cell in cells(row))} |")
    if (left := len(rows) - MOST_ROWS) > 0:
        lines.append(f"\n… and {left} more, with lower scores (`status clarity --scores --json` has all)")
    return lines


def _bullets(stats: Mapping[str, Any]) -> list[str]:
    lines = []
    for name, value in list(stats.items())[1:]:  # the title names the session
        if isinstance(value, Mapping):
            value = ", ".join(f"{inner} {kind}" for kind, inner in value.items())
        lines.append(f"- {name.replace('_', ' ')}: {neutralise(str(value))}")
    return lines


NAMESPACE = "clarity"
STATE = "clarity:relevance_state"
PRUNED = "clarity:pruned"  # keys of the namespace, each followed by `:` and the session
IDENTITY = "knowledge/identity/"
WORTH_KEEPING = 100
"""If at least this many turns had to be counted again (after an import), the counts are stored, because it takes
noticeable time."""

MOST_IN_BLOCK = 60  # most items for the block; more never fit into its tokens


@dataclass(frozen=True, slots=True)
class ItemsPruned:
    """The items that pruning removes from the block (`gone`) and those that stay, highest score first. `out_already`
    are ids that an earlier pruning removed."""

    gone: tuple[ItemVerdict, ...]
    kept: tuple[ItemVerdict, ...]
    out_already: tuple[str, ...] = ()


def counted(memory: Memory, stored: object, since: Callable[[int], Sequence[Turn]]) -> dict[str, Any]:
    """Returns the counts of a session in their stored form: the `stored` ones, with the turns after their last one
    added. `since` returns the turns after a number, oldest first."""
    counts = _read(stored)
    for turn in since(counts.turn):
        counts.take(turn)
    return counts.as_dict(memory.clock())


@dataclass(frozen=True, slots=True)
class ScoredItems:
    """The items of a session as of its last turn, or of the turn that it was wound back to. `counts` include the user's
    anchors. `verdicts` has one for every item, highest score first; a pruned item stays out until it is mentioned or
    anchored again. `pruned` maps each pruned item to the exchange in which it left the block."""

    session: str
    counts: Tracker
    verdicts: tuple[ItemVerdict, ...]
    pruned: Mapping[str, int]


async def judged(memory: Memory, session: str, *, ignore_pruned: bool = False) -> ScoredItems:
    """Returns the items of a session with their verdicts; with `ignore_pruned` as if nothing had been pruned. Counts
    turns that the state lacks from the transcript. Raises NotFound."""
    return await _judged_session(memory, await sessions.require(memory, session), ignore_pruned)


async def _judged_session(memory: Memory, row: SessionRow, ignore_pruned: bool = False) -> ScoredItems:
    key = f"{STATE}:{row.session}"
    places = (NAMESPACE, key), (NAMESPACE, f"{PRUNED}:{row.session}"), (AS_OF, row.session)
    stored, out, wound_back, active = await memory.state.get_all([*places, (activations.ACTIVE, row.session)])
    of_topics = await items_of_active(memory, row.session, Activations.from_json(active))
    hidden = last_visible(wound_back, row)
    last = row.turns if hidden is None else hidden
    pruned = {str(name): at for name, at in out.items() if isinstance(at, int)} if isinstance(out, Mapping) else {}

    def judge() -> tuple[ScoredItems, int]:
        counts = _read(stored)
        missing = last - counts.turn
        for turn in sessions.read_turns(memory, row.path) if missing > 0 else ():
            if turn.number <= last:
                counts.take(turn)
        counts = counts.with_anchors(anchored_since(anchors(memory), memory.clock()))
        verdicts = _judged(memory, counts, {} if ignore_pruned else pruned, of_topics)
        return ScoredItems(row.session, counts, verdicts, pruned), missing

    found, missing = await run_sync(judge)
    if missing >= WORTH_KEEPING:
        with contextlib.suppress(ContextManagerError):
            await memory.state.put(NAMESPACE, key, found.counts.as_dict(memory.clock()), waits=False)
    return found


async def block_of(memory: Memory, row: SessionRow | None) -> tuple[BlockItem, ...]:
    """Returns the items for a session's block, highest score first; none without a session or if Clarity is off."""
    if row is None or not memory.settings.clarity.enabled or memory.settings.clarity.block_tokens == 0:
        return ()
    kept = [verdict for verdict in (await _judged_session(memory, row)).verdicts if verdict.keep][:MOST_IN_BLOCK]
    terms = [{name: round(value, 6) for name, value in one.terms.items()} for one in kept]
    rows = zip(kept, terms, strict=True)
    return tuple(BlockItem(one.item.id, round(one.score, 6), one.item.anchored, one.why, of) for one, of in rows)


async def prune(memory: Memory, session: str, dry_run: bool) -> ItemsPruned:
    """Removes items from the block that the rules no longer keep. Their counts stay, and the next mention brings them
    back."""
    found = await judged(memory, session, ignore_pruned=True)
    counts, before = found.counts, found.pruned
    out = {name for name, at in before.items() if (item := counts.items.get(name)) and item.last_mention <= at}
    gone = tuple(verdict for verdict in found.verdicts if not verdict.keep)
    fresh = {verdict.item.id: counts.exchange for verdict in gone if verdict.item.id not in out}
    if fresh and not dry_run:
        left = {name: at for name, at in before.items() if name in out}  # without items that came back
        await memory.state.put(NAMESPACE, f"{PRUNED}:{session}", left | fresh)
        memory.changes.publish(Change("session", None, session))
    kept = tuple(verdict for verdict in found.verdicts if verdict.keep and verdict.item.id not in out)
    return ItemsPruned(tuple(verdict for verdict in gone if verdict.item.id in fresh), kept, tuple(sorted(out)))


async def forget(memory: Memory, session: str) -> None:
    """Deletes the counts of a session whose transcript was rewritten. They are counted again from the transcript."""
    await memory.state.remove(NAMESPACE, f"{STATE}:{session}", f"{PRUNED}:{session}")


def stats_of(found: ScoredItems) -> dict[str, Any]:
    """Returns how many items there are, by category and by verdict."""
    counts, judged = found.counts, found.verdicts
    kinds = Counter(item.category for item in counts.items.values())
    words = Counter(verdict.word for verdict in judged)
    return {
        "session": found.session,
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
        "pruned": len(found.pruned),
    }


def config_of(settings: Settings) -> dict[str, Any]:
    """Returns the settings of Clarity with camel-case names."""
    return dict(_camel(settings.clarity.model_dump()))


def _camel(value: Any) -> Any:
    return {to_camel(name): _camel(inner) for name, inner in value.items()} if isinstance(value, Mapping) else value


def _read(stored: object) -> Tracker:
    """Returns the stored counts; none if a session has none, or if they cannot be read."""
    try:
        return Tracker.from_dict(stored) if isinstance(stored, Mapping) else Tracker()
    except (KeyError, TypeError, ValueError, OverflowError):
        return Tracker()


def _judged(
    memory: Memory, counts: Tracker, pruned: Mapping[str, int], of_topics: frozenset[str]
) -> tuple[ItemVerdict, ...]:
    """Returns a verdict for every item, highest score first. `of_topics` are the items that active topics name."""
    knobs = memory.settings.clarity
    scored = counts.scores(knobs.scoring)
    terms = {item.id: score.terms() for item, score in scored}
    totals = [(item, score.total) for item, score in scored]
    # The essential tier: anchored items, items of active topics, and the identity files by path or name.
    paths = [stat.path.lower() for stat in memory.files.walk(IDENTITY) if stat.path.endswith(".md")]
    names = {name for path in paths for name in (path, path.removeprefix("knowledge/"), path.rsplit("/", 1)[1])}
    names |= of_topics
    essential = frozenset(name for name, item in counts.items.items() if item.anchored or name in names)
    verdicts = clarity_scores.prune(totals, essential, knobs, pruned)
    return tuple(replace(one, terms=terms[one.item.id]) for one in verdicts)
