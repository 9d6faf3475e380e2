"""The ladder: decides which live chunks are shortened or dropped when a session grows.

Curation, from 40% on: chunks at or below the cutoff go to cold storage until the gauge is a step below, those with the
lowest score per token first, because dropping a short chunk frees little space, and it is soon needed again.

Compaction, from 50% on, until the gauge is at 45%. Each step takes only what is still needed:

    1. tool results become one line
    2. large chunks become excerpts, protected ones too
    3. chunks between cutoff and keep are summarised
    4. chunks below keep go to cold storage, the lowest score per token first
    5. every chunk of more than 200 tokens becomes an excerpt
    6. the others go, those that could not be compared before those at or above keep

The limit, 85%: if the gauge is still over it, every text is cut to an equal part, system messages too.

Protected are the newest chunks, important and anchored ones, and chunks that just came back: they are shortened, but
not dropped. Only the limit changes system messages. All functions return decisions and change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mcp_server.relevance.chunks import Action, ChunkScore, Decision, LiveChunk
from mcp_server.settings import Context
from mcp_server.tokens import shared_out

EXCERPT_TOKENS = 200  # least tokens of an excerpt
LEAST_EXCERPT = 40  # least tokens of a text at the limit
UNJUDGED = "not indexed yet"  # why curation keeps a chunk that could not be compared with the message
Scored = tuple[LiveChunk, ChunkScore]


@dataclass(frozen=True, slots=True)
class Protected:
    """The chunks that must stay: the newest, the anchored, and those that came back a short time ago. `exchange` is the
    number of the current exchange; `unknown` are chunks that could not be compared with the message."""

    newest: frozenset[str] = frozenset()
    anchored: frozenset[str] = frozenset()
    exchange: int = 0
    unknown: frozenset[str] = frozenset()

    def why(self, chunk: LiveChunk) -> str:
        """Returns why a chunk must stay; empty if it may be dropped."""
        if chunk.system:
            return "system"
        if chunk.id in self.anchored:
            return "anchored"
        if chunk.important:
            return "important"
        if chunk.immune > self.exchange:
            return "just recovered"
        return "among the newest" if chunk.id in self.newest else ""


def newest(chunks: Sequence[LiveChunk], knobs: Context) -> frozenset[str]:
    """Returns the ids of the newest chunks, which are kept. `chunks` are oldest first."""
    return frozenset(chunk.id for chunk in chunks[max(0, len(chunks) - knobs.min_chunks_to_keep) :])


def _score_per_token(pair: Scored) -> float:
    chunk, score = pair
    return score.total / max(1, chunk.tokens)


def curate(scored: Sequence[Scored], target: int, protected: Protected, knobs: Context) -> list[Decision]:
    """Returns a decision for every chunk, in the order given: keep or drop. Chunks at or below the cutoff go
    until `target` tokens are left."""
    decided: dict[str, Decision] = {}
    left, cutoff = sum(chunk.tokens for chunk, _ in scored) - target, knobs.relevance_cutoff
    for chunk, score in sorted(scored, key=_score_per_token):
        why = protected.why(chunk) or (UNJUDGED if chunk.id in protected.unknown else "")
        if not why and score.total <= cutoff and left > 0:
            decided[chunk.id] = Decision(chunk, "drop", score.total, f"score at or below {cutoff:g}", 0)
            left -= chunk.tokens
        else:
            why = why or (f"score over {cutoff:g}" if score.total > cutoff else "enough room without it")
            decided[chunk.id] = Decision(chunk, "keep", score.total, why, chunk.tokens)
    return [decided[chunk.id] for chunk, _ in scored]


def compact(
    scored: Sequence[Scored], target: int, protected: Protected, knobs: Context, large: int = EXCERPT_TOKENS
) -> list[Decision]:
    """Returns a decision for every chunk, in the order given: the fewest steps of the ladder that bring their tokens to
    `target`, if possible. A chunk of more than `large` tokens counts as large."""
    decided = {
        chunk.id: Decision(chunk, "keep", score.total, protected.why(chunk), chunk.tokens) for chunk, score in scored
    }
    left = sum(chunk.tokens for chunk, _ in scored) - target

    def climb(candidates: Sequence[Scored], action: Action, after: Callable[[LiveChunk], int], why: str) -> None:
        nonlocal left
        for chunk, score in candidates:
            tokens = after(chunk)
            if left > 0 and tokens < decided[chunk.id].tokens:
                left -= decided[chunk.id].tokens - tokens
                decided[chunk.id] = Decision(chunk, action, score.total, why, tokens)

    def excerpts(least: int) -> None:
        texts = [pair for pair in scored if pair[0].has_text and not pair[0].system]
        parts = _equal_parts([decided[chunk.id].tokens for chunk, _ in texts], left, least)
        most = {chunk.id: tokens for (chunk, _), tokens in zip(texts, parts, strict=True)}
        climb(texts, "excerpt", lambda chunk: most[chunk.id], "too long to stay whole")

    def order(pair: Scored) -> tuple[bool, bool, float]:
        return pair[1].total >= knobs.relevance_keep, pair[0].id in protected.unknown, _score_per_token(pair)

    free = sorted((pair for pair in scored if not protected.why(pair[0])), key=order)  # of equal ones the older first
    tools = [pair for pair in free if pair[0].one_line is not None and pair[0].form == "whole"]
    climb(tools, "one line", lambda chunk: chunk.one_line or 0, "a tool's result")
    excerpts(max(large, EXCERPT_TOKENS))
    if knobs.summarize_medium_chunks:
        middling = [
            (chunk, score)
            for chunk, score in free
            if knobs.relevance_cutoff < score.total < knobs.relevance_keep
            and decided[chunk.id].action == "keep"
            and chunk.form == "whole"
            and chunk.kind == "message"
        ]
        between = f"score between {knobs.relevance_cutoff:g} and {knobs.relevance_keep:g}"
        climb(middling, "summarise", lambda chunk: min(chunk.tokens, knobs.summary_target_tokens), between)
    lowest = "the lowest score for its size"
    climb([pair for pair in free if not any(order(pair)[:2])], "drop", lambda chunk: 0, lowest)
    excerpts(EXCERPT_TOKENS)
    climb(free, "drop", lambda chunk: 0, lowest)
    return list(decided.values())


def limit(scored: Sequence[Scored], target: int) -> list[Decision]:
    """Returns a decision for every chunk, in the order given: every text is cut to an equal part that brings the sum to
    `target`; none below 40 tokens."""
    texts = [chunk for chunk, _ in scored if chunk.has_text]
    over = sum(chunk.tokens for chunk, _ in scored) - target
    parts = _equal_parts([chunk.tokens for chunk in texts], max(0, over), LEAST_EXCERPT)
    most = {chunk.id: tokens for chunk, tokens in zip(texts, parts, strict=True)}
    why = "the context is over its limit"
    return [
        Decision(chunk, "excerpt", score.total, why, most[chunk.id])
        if most.get(chunk.id, chunk.tokens) < chunk.tokens
        else Decision(chunk, "keep", score.total, "", chunk.tokens)
        for chunk, score in scored
    ]


def _equal_parts(sizes: Sequence[int], to_save: int, least: int) -> list[int]:
    """Returns `sizes` minus `to_save`, taken off the largest so that they become equal; none below `least`."""
    parts = shared_out(sizes, max(0, sum(sizes) - to_save))
    return [max(part, min(size, least)) for part, size in zip(parts, sizes, strict=True)]
