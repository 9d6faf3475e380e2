"""The ladder: decides which live chunks are shortened or dropped when a session grows.

Curation, from 40% on: chunks at or below the cutoff go to cold storage. While the gate is closed nothing goes, because
similarities mean nothing then.

Compaction, from 50% on, in steps until the gauge is below that again:

    1. tool results become one line
    2. chunks between cutoff and keep are summarised
    3. the lowest scores go to cold storage first
    4. protected chunks become head and tail

After a message without content words ("ok, thanks"), or while the gate is closed, each step takes only chunks at or
below the cutoff of an open gate; the others wait for a message that can be compared, until the gauge is over 85%.

The limit, 85%: if the gauge is still over it, every text is cut to an equal part, system messages too.

Protected are the newest chunks, important and anchored ones, and chunks that just came back. Only the limit changes
system messages. Curation keeps chunks that are not indexed yet, and compaction takes them last. All functions return
decisions and change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mcp_server.relevance.chunks import Action, ChunkScore, Decision, LiveChunk
from mcp_server.text.budget import shared_out

EXCERPT_TOKENS = 200
"""Least tokens of the head and tail of a protected chunk."""

LEAST_EXCERPT = 40
"""Least tokens of a text at the limit."""

UNJUDGED = "not indexed yet"
"""Why curation keeps a chunk that could not be compared with the message."""

Scored = tuple[LiveChunk, ChunkScore]


@dataclass(frozen=True, slots=True)
class LadderRules:
    """The settings of the ladder: scores, numbers of chunks, tokens."""

    keep: float = 0.5
    cutoff: float = 0.3
    min_chunks_to_keep: int = 5
    summarise: bool = True
    summary_tokens: int = 500


@dataclass(frozen=True, slots=True)
class Protected:
    """The chunks that must stay: the newest, the anchored, and until `exchange` those that came back. `unknown` could
    not be compared with the message."""

    newest: frozenset[str] = frozenset()
    anchored: frozenset[str] = frozenset()
    exchange: int = 0
    unknown: frozenset[str] = frozenset()

    def why(self, chunk: LiveChunk) -> str:
        """Returns why a chunk must stay; empty if it need not."""
        if chunk.system:
            return "system"
        if chunk.id in self.anchored:
            return "anchored"
        if chunk.important:
            return "important"
        if chunk.immune > self.exchange:
            return "just recovered"
        return "among the newest" if chunk.id in self.newest else ""


def newest(chunks: Sequence[LiveChunk], rules: LadderRules) -> frozenset[str]:
    """Returns the ids of the newest chunks, which are kept. `chunks` are oldest first."""
    return frozenset(chunk.id for chunk in chunks[max(0, len(chunks) - rules.min_chunks_to_keep) :])


def curate(scored: Sequence[Scored], gate_open: bool, protected: Protected, rules: LadderRules) -> list[Decision]:
    """Returns a decision for every chunk, in the order given: keep or drop."""
    decisions = []
    for chunk, score in scored:
        why = protected.why(chunk) or (UNJUDGED if chunk.id in protected.unknown else "")
        why = why or ("" if gate_open else "nothing here is about the message, so nothing is judged by it")
        if why:
            decisions.append(Decision(chunk, "keep", score.total, why, chunk.tokens))
        elif score.total <= rules.cutoff:
            decisions.append(Decision(chunk, "drop", score.total, f"score at or below {rules.cutoff:g}", 0))
        else:
            decisions.append(Decision(chunk, "keep", score.total, f"score over {rules.cutoff:g}", chunk.tokens))
    return decisions


def compact(
    scored: Sequence[Scored],
    target: int,
    protected: Protected,
    rules: LadderRules,
    *,
    spare: bool = False,
    gate_open: bool = True,
) -> list[Decision]:
    """Returns a decision for every chunk, in the order given: the fewest steps of the ladder that bring their tokens to
    `target`, if possible. `spare`: chunks that cannot be compared or are over the cutoff stay as they are."""
    decided = {
        chunk.id: Decision(chunk, "keep", score.total, protected.why(chunk), chunk.tokens) for chunk, score in scored
    }
    left = sum(chunk.tokens for chunk, _ in scored) - target

    def climb(candidates: Sequence[Scored], action: Action, after: Callable[[LiveChunk], int], why: str) -> None:
        nonlocal left
        for chunk, score in candidates:
            if left <= 0:
                return
            tokens = after(chunk)
            if tokens < decided[chunk.id].tokens:
                left -= decided[chunk.id].tokens - tokens
                decided[chunk.id] = Decision(chunk, action, score.total, why, tokens)

    def last_to_go(pair: Scored) -> tuple[bool, float]:
        return pair[0].id in protected.unknown, pair[1].total

    def may_go(chunk: LiveChunk, score: ChunkScore) -> bool:
        judged = gate_open and chunk.id not in protected.unknown and score.total <= rules.cutoff
        return not protected.why(chunk) and (judged or not spare)

    free = sorted((pair for pair in scored if may_go(*pair)), key=last_to_go)  # of equals the older first
    tools = [pair for pair in free if pair[0].one_line is not None and pair[0].form == "whole"]
    climb(tools, "one line", lambda chunk: chunk.one_line or 0, "a tool's result")
    if rules.summarise:
        middling = [
            (chunk, score)
            for chunk, score in free
            if rules.cutoff < score.total < rules.keep and chunk.form == "whole" and chunk.kind == "message"
        ]
        between = f"score between {rules.cutoff:g} and {rules.keep:g}"
        climb(middling, "summarise", lambda chunk: min(chunk.tokens, rules.summary_tokens), between)
    climb(free, "drop", lambda chunk: 0, "the lowest score goes first")
    if left > 0 and not spare:
        guarded = [pair for pair in scored if pair[0].has_text and not pair[0].system and protected.why(pair[0])]
        parts = _equal_parts([decided[chunk.id].tokens for chunk, _ in guarded], left, EXCERPT_TOKENS)
        most = {chunk.id: tokens for (chunk, _), tokens in zip(guarded, parts, strict=True)}
        climb(guarded, "excerpt", lambda chunk: most[chunk.id], "protected, but too long to stay whole")
    return list(decided.values())


def limit(scored: Sequence[Scored], target: int) -> list[Decision]:
    """Returns a decision for every chunk, in the order given: every text is cut to an equal part that brings the sum to
    `target`; none below 40 tokens."""
    texts = [chunk for chunk, _ in scored if chunk.has_text]
    over = sum(chunk.tokens for chunk, _ in scored) - target
    parts = _equal_parts([chunk.tokens for chunk in texts], max(0, over), LEAST_EXCERPT)
    most = {chunk.id: tokens for chunk, tokens in zip(texts, parts, strict=True)}
    decisions = []
    for chunk, score in scored:
        tokens = most.get(chunk.id, chunk.tokens)
        if tokens < chunk.tokens:
            decisions.append(Decision(chunk, "excerpt", score.total, "the context is over its limit", tokens))
        else:
            decisions.append(Decision(chunk, "keep", score.total, "", chunk.tokens))
    return decisions


def _equal_parts(sizes: Sequence[int], to_save: int, least: int) -> list[int]:
    """Returns `sizes` minus `to_save`, taken off the largest so that they become equal; none below `least`."""
    parts = shared_out(sizes, max(0, sum(sizes) - to_save))
    return [max(part, min(size, least)) for part, size in zip(parts, sizes, strict=True)]
