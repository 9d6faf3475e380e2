"""The ladder: what becomes of live chunks when a session grows (S1 "Adaptive Drop Logic", SPEC §5).

Curation, from 40% on: chunks at or below the cutoff go to cold storage. Nothing goes while the gate is closed, since
then no similarity means anything.

Compaction, from 50% on, step by step until the gauge is under that again:

    1. tool results become one line
    2. chunks between cutoff and keep are summarised
    3. the lowest scores go to cold storage first
    4. what is protected becomes head and tail

After a message that says nothing ("ok, thanks"), or while the gate is closed to it, every step takes only what is at
or below the cutoff by an open gate: the rest waits for a message to be judged by, until the gauge is over 85%.

The limit, 85%: should the gauge stand over it after all that, every text is cut to an equal part, also system ones.

Protected are the newest chunks, important and anchored ones, and what was just recovered; system messages are touched
by the limit alone. What the index does not know yet cannot be judged: curation keeps it, and compaction takes it last.
Everything is decided here as values; an action carries it out, so that a dry run is the real run without its last
step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mcp_server.relevance.chunks import Action, ChunkScore, Decision, LiveChunk
from mcp_server.text.budget import shared_out

EXCERPT_TOKENS = 200
"""What head and tail of a protected chunk may take at least."""

LEAST_EXCERPT = 40
"""Tokens that a text keeps even at the limit."""

UNJUDGED = "not indexed yet"
"""Why curation keeps what nobody could compare with the message."""

Scored = tuple[LiveChunk, ChunkScore]


@dataclass(frozen=True, slots=True)
class LadderRules:
    """S1 "Config Knobs": scores, numbers of chunks, tokens."""

    keep: float = 0.5
    cutoff: float = 0.3
    min_chunks_to_keep: int = 5
    summarise: bool = True
    summary_tokens: int = 500


@dataclass(frozen=True, slots=True)
class Protected:
    """What no rule may take away: the newest chunks, those an anchor names, and, up to `exchange`, what was recovered.
    `unknown` are those that nobody could compare with the message yet."""

    newest: frozenset[str] = frozenset()
    anchored: frozenset[str] = frozenset()
    exchange: int = 0
    unknown: frozenset[str] = frozenset()

    def why(self, chunk: LiveChunk) -> str:
        """Why a chunk may not be dropped; empty if it may."""
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
    """The ids of the chunks that are kept for being the newest; `chunks` are in the order in which they came."""
    return frozenset(chunk.id for chunk in chunks[max(0, len(chunks) - rules.min_chunks_to_keep) :])


def curate(scored: Sequence[Scored], gate_open: bool, protected: Protected, rules: LadderRules) -> list[Decision]:
    """A decision for every chunk, in the order given: keep or drop."""
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
    """A decision for every chunk, in the order given: the fewest steps of the ladder that bring the sum of their tokens
    to `target` or under it, as far as that is possible. `spare`: what cannot be judged, or is over the cutoff, stays as
    it is."""
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
    """A decision for every chunk, in the order given: every text, system ones too, is cut to an equal part of what
    brings them all to `target`; none below 40 tokens."""
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
    """`sizes` with `to_save` taken off the largest, so that these become equal; none below `least`."""
    parts = shared_out(sizes, max(0, sum(sizes) - to_save))
    return [max(part, min(size, least)) for part, size in zip(parts, sizes, strict=True)]
