"""The advisor: proposes what a user can remove from a full context, and says how much that saves.

    gauge      phase       proposes
    under 70%  quiet       nothing, unless asked
    70–80%     identify    the quarter with the lowest scores
    80–90%     aggressive  scores under 10; a review of 10 to 15
    90–95%     critical    scores under 16, with a warning
    from 95%   too late    no scoring: compact now

It removes nothing itself. Its advice is in the answer of `observe` from 70% on, with a prompt once for each phase (in
clients with hooks), and available on request. The result is written to `.local/advisor/{session}.json`.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from types import MappingProxyType
from typing import Any, Literal

from anyio.to_thread import run_sync

from mcp_server.conversations import sessions
from mcp_server.errors import ContextManagerError
from mcp_server.memory import Memory
from mcp_server.model import Delivery
from mcp_server.pressure.health import is_growing
from mcp_server.relevance.advisor_items import (
    AdvisorScore,
    ContextItem,
    Lexicon,
    band,
    frequency,
    items_of,
    recency,
    relevance,
    short_name,
    with_contents,
)
from mcp_server.relevance.chunks import ChunkKind, Gauges, LiveChunk
from mcp_server.relevance.live_set import asking_turns, gauges, holders, query_of
from mcp_server.text.fencing import neutralise
from mcp_server.text.markdown import second_text
from mcp_server.text.transcript_head import file_id
from mcp_server.text.words import content_words

Phase = Literal["quiet", "identify", "aggressive", "critical", "too late"]
Proposal = Literal["prune", "review"]
QUIET, AGGRESSIVE, CRITICAL, TOO_LATE = 0.70, 0.80, 0.90, 0.95
LOWEST_SHARE = 0.25
MOST = 5  # number of recommendations in an unasked message
LEAK_FILES = 5  # if this many files of one folder come in within five minutes, the warning names the folder


@dataclass(frozen=True, slots=True)
class Recommendation:
    """An item to prune or to review, with its score."""

    item: ContextItem
    score: AdvisorScore
    proposal: Proposal

    @property
    def reason(self) -> str:
        """Returns the reason in words: `unrelated to the prompt; 1 access`."""
        accesses = f"{self.item.accesses} access{'' if self.item.accesses == 1 else 'es'}"
        return f"{self.score.why}; {accesses}"


@dataclass(frozen=True, slots=True)
class Advice:
    """The advisor's result. `scores` are in the order of the items; empty from 95% on."""

    phase: Phase
    scores: tuple[tuple[ContextItem, AdvisorScore], ...] = ()
    recommendations: tuple[Recommendation, ...] = ()
    warnings: tuple[str, ...] = ()
    left_out: int = 0
    """Number of recommendations beyond the limit."""

    @property
    def savings(self) -> int:
        return sum(one.item.tokens for one in self.recommendations)

    def first(self, most: int | None) -> Advice:
        """Returns the advice with at most `most` recommendations (None: all)."""
        named = self.recommendations[:most]
        left_out = self.left_out + len(self.recommendations) - len(named)
        return replace(self, recommendations=named, left_out=left_out)


def phase_of(share: float) -> Phase:
    """Returns the phase for a gauge, which is 0 or more."""
    if share < QUIET:
        return "quiet"
    if share < AGGRESSIVE:
        return "identify"
    if share < CRITICAL:
        return "aggressive"
    return "critical" if share < TOO_LATE else "too late"


def scored(
    items: Sequence[ContextItem], prompt: str, now: datetime, lexicon: Lexicon, first_prompt: bool
) -> list[tuple[ContextItem, AdvisorScore]]:
    """Returns every item with its score for `prompt`, in the order given."""
    keywords = content_words(prompt)
    pairs = []
    for item in items:
        points, why = relevance(keywords, item.named, item.described, lexicon)
        minutes = max(0.0, (now - item.last_accessed).total_seconds() / 60)
        accessed = (10, 0) if first_prompt else (recency(minutes), frequency(item.accesses))
        pairs.append((item, AdvisorScore(*accessed, points, why)))
    return pairs


def advise(
    items: Sequence[ContextItem],
    prompt: str,
    share: float,
    now: datetime,
    lexicon: Lexicon,
    *,
    first_prompt: bool = False,
    growing: bool = False,
    asked: bool = False,
    most: int | None = MOST,
) -> Advice:
    """Returns the advice for a gauge at `share`, with at most `most` recommendations (None: all). Under 70% there is
    none, unless the user `asked`."""
    phase = phase_of(share)
    if phase == "quiet" and not asked:
        return Advice(phase)
    growth = (leak(items, now),) if growing else ()
    if phase == "too late":
        return Advice(phase, warnings=(*growth, "The context is critical: compact it now; there is no time to pick."))
    pairs = scored(items, prompt, now, lexicon, first_prompt)
    warnings = list(growth)
    if phase == "critical":
        warnings.append("The context is critical: remove something from it by hand.")
    if pairs and all(band(score.total) in ("keep", "keep unless critical") for _, score in pairs):
        proposals = []
        warnings.append(
            "Everything is relevant to the work: archive old decisions, and review which skills are needed."
        )
    else:
        proposals = _proposals(phase, pairs)
    return Advice(phase, tuple(pairs), tuple(proposals), tuple(warnings)).first(most)


def _proposals(phase: Phase, pairs: Sequence[tuple[ContextItem, AdvisorScore]]) -> list[Recommendation]:
    """Returns what the phase proposes, the lowest scores first."""
    by_score = sorted(pairs, key=lambda pair: (pair[1].total, -pair[0].tokens, pair[0].id))
    if phase in ("quiet", "identify"):
        lowest = by_score[: math.ceil(len(by_score) * LOWEST_SHARE)]
        return [Recommendation(item, score, "prune") for item, score in lowest]
    under = 10 if phase == "aggressive" else 16
    found = [Recommendation(item, score, "prune") for item, score in by_score if score.total < under]
    if phase == "aggressive":
        found += [Recommendation(item, score, "review") for item, score in by_score if 10 <= score.total <= 15]
    return found


def leak(items: Sequence[ContextItem], now: datetime) -> str:
    """Returns the warning that the context grows fast, with the likely cause if there is one."""
    fresh = [item for item in items if (now - item.loaded).total_seconds() <= 300]
    folders = Counter(item.path.rpartition("/")[0] or "." for item in fresh if item.type == "file")
    folder, files = folders.most_common(1)[0] if folders else ("", 0)
    warning = "Rapid context growth detected: review recent tool calls."
    if files >= LEAK_FILES:
        return f"{warning} {files} files of {folder} came in within five minutes: was a whole directory loaded?"
    largest = max(fresh, key=lambda item: item.tokens, default=None)
    return f"{warning} The largest that came in was {largest.path} ({largest.tokens:,} tokens)." if largest else warning


IN_ADD = (
    "This memory cannot take anything out of your client's window: use /compact there, or clear the files that are no "
    "longer needed."
)
IN_REPLACE = (
    '`prune(strategy="advisor", dry_run=false)` moves what is marked `prune` to cold storage, from where `recover` '
    "brings it back."
)
REVIEW_IN_REPLACE = "None of these is removed automatically; `anchor` the ones that must stay."
COMPACT_IN_REPLACE = '`prune(strategy="compact", dry_run=false)` compacts it; `recover` brings back what leaves.'


def message(advice: Advice, share: float, delivery: Delivery) -> str:
    """Returns the advice in words, with what to do; empty if there is none."""
    if not (advice.recommendations or advice.warnings):
        return ""
    lines = [f"Context at {share:.0%}.", *advice.warnings]
    if advice.recommendations:
        lines.append(f"Least needed now (about {advice.savings:,} tokens in all):")
    for one in advice.recommendations:
        what = f"{one.proposal} {one.item.type} {neutralise(one.item.path)}"
        lines.append(f"- {what}: {one.score.total} points, {one.item.tokens:,} tokens ({one.reason})")
    if advice.left_out:
        lines.append(f'- … and {advice.left_out} more: `prune(strategy="advisor")` lists them')
    if delivery == "add":
        lines.append(IN_ADD)
    elif any(one.proposal == "prune" for one in advice.recommendations):
        lines.append(IN_REPLACE)
    elif advice.recommendations:
        lines.append(REVIEW_IN_REPLACE)
    elif advice.phase == "too late":
        lines.append(COMPACT_IN_REPLACE)
    return "\n".join(lines)


def state_of(
    session: str, advice: Advice, items: Iterable[ContextItem], tokens: int, budget: int, now: datetime
) -> dict[str, Any]:
    """Returns the advisor's state of a session as JSON values; times are ISO 8601 in UTC. `tokens` are those of the
    whole context, `budget` is its limit. From 95% on the items have no scores."""
    scores = {item.id: score for item, score in advice.scores}
    return {
        "session_id": session,
        "updated_at": second_text(now),
        "total_context_tokens": tokens,
        "context_budget": budget,
        "items": [_item(item, scores.get(item.id)) for item in items],
        "pruning_recommendations": [
            {"id": one.item.id, "score": one.score.total, "reason": one.reason, "estimated_savings": one.item.tokens}
            for one in advice.recommendations
        ],
    }


def _item(item: ContextItem, score: AdvisorScore | None) -> dict[str, Any]:
    described: dict[str, Any] = {
        "id": item.id,
        "type": item.type,
        "path": item.path,
        "loaded_at": second_text(item.loaded),
        "last_accessed": second_text(item.last_accessed),
        "access_count": item.accesses,
        "estimated_tokens": item.tokens,
        "tags": list(item.tags),
    }
    if item.type == "file":
        described["mtime"] = second_text(item.mtime) if item.mtime else None
    if item.type == "agent":
        described |= {
            "agent_id": short_name(item.path),
            "completed_at": second_text(item.loaded),
            "topics": list(item.topics),
        }
    if score is not None:
        described["score"] = {**score.terms(), "total": score.total}
    return described


STATES = ".local/advisor"  # folder of the state files, one for each session
HOLDERS: tuple[ChunkKind, ...] = ("file", "skill", "agent", "tool")  # kinds of chunks that can contain items
ADVISED = "advised"  # namespace of the state: session → the phase of the last advice with a prompt
MOST_WITH_PROMPT, MOST_TOKENS = 3, 150  # recommendations and tokens of advice that comes with a prompt

Contents = Mapping[str, Sequence[str]]  # path of a file → the texts that tools returned of it


@dataclass(frozen=True, slots=True)
class AdvisorView:
    """The advisor's view of a session: the advice and its inputs. `chunks` are those that can contain items, without
    cold ones; `problem` is an error in the user's lexicon."""

    advice: Advice
    items: tuple[ContextItem, ...]
    gauges: Gauges
    delivery: Delivery
    chunks: tuple[LiveChunk, ...]
    prompt: str
    problem: str = ""


async def note(memory: Memory, session: str, client_tokens: int | None) -> str:
    """Returns the advice for `observe`'s answer; empty under 70%, or if `advisor.enabled` is off."""
    if not memory.settings.advisor.enabled:
        return ""
    full = await gauges(memory, session, client_tokens)
    if full.advised < QUIET:
        return ""
    view = await view_of(memory, session, client_tokens=client_tokens)
    await save(memory, session, view)
    said = message(view.advice, view.gauges.advised, view.delivery)
    return "\n".join(filter(None, (said, view.problem)))


async def with_prompt(memory: Memory, session: str, prompt: str, read: Callable[[], Contents] = dict) -> str:
    """Returns the advice that a client's hook adds to a prompt: from 70% of the client's window on, once for each
    phase, in at most `MOST_TOKENS` tokens. Empty if there is none. The session must have turns. `read` returns the
    texts that were read of each file, according to the client's transcript. It is called only if there is advice."""
    if not memory.settings.advisor.enabled:
        return ""
    phase = phase_of((await gauges(memory, session)).advised)
    if phase == (await memory.state.get(ADVISED, session) or "quiet"):
        return ""
    await memory.state.put(ADVISED, session, phase)
    if phase == "quiet":
        return ""
    view = await view_of(memory, session, prompt, most=None, contents=await run_sync(read))
    for most in range(MOST_WITH_PROMPT, -1, -1):
        view = replace(view, advice=view.advice.first(most))
        said = message(view.advice, view.gauges.advised, view.delivery)
        if memory.tokens.count(said) <= MOST_TOKENS:
            await save(memory, session, view)
            return said
    return ""


async def view_of(
    memory: Memory,
    session: str,
    prompt: str | None = None,
    *,
    client_tokens: int | None = None,
    asked: bool = False,
    most: int | None = MOST,
    contents: Contents = MappingProxyType({}),
) -> AdvisorView:
    """Returns the advisor's view of a session, with at most `most` recommendations (None: all). Writes nothing. Without
    a prompt the user's last message is used; without `client_tokens`, the client's last count. Files in `contents` have
    the size and the description of their texts there; others have an estimate."""
    row = await sessions.require(memory, session)
    turns = await sessions.session_turns(memory, session)
    chunks = await holders(memory, session, HOLDERS)
    full = await gauges(memory, session, client_tokens)
    asks = query_of(asking_turns(turns, alone=True)) if prompt is None else prompt
    delivery = row.delivery or "add"
    now = memory.clock()
    growing = is_growing(await memory.live.readings(session), full, now)
    first = sum(turn.role == "user" for turn in turns) <= 1
    by_number = {turn.number: turn for turn in turns}

    def judged() -> AdvisorView:
        lexicon, problem = memory.lexicon()
        items = [
            with_contents(item, contents.get(item.path, ()), memory.tokens.count)
            for item in items_of(chunks, by_number, estimated=delivery == "add")
        ]
        share = full.advised
        said = advise(items, asks, share, now, lexicon, first_prompt=first, growing=growing, asked=asked, most=most)
        return AdvisorView(said, tuple(items), full, delivery, tuple(chunks), asks, problem)

    return await run_sync(judged)


async def save(memory: Memory, session: str, view: AdvisorView) -> None:
    """Writes the view to the session's state file. A failure to write it is ignored."""
    full = view.gauges
    tokens = full.live_tokens if full.client_tokens is None else full.client_tokens
    state = state_of(session, view.advice, view.items, tokens, full.limit, memory.clock())
    contents = {f"{file_id(session)}.json": json.dumps(state, indent=1).encode("ascii")}
    with suppress(ContextManagerError):
        await run_sync(partial(memory.files.write_all_atomic, STATES, contents, synced=False))
