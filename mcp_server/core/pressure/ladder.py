"""The ladder: what becomes of live chunks when a session grows (S1 "Adaptive Drop Logic", SPEC §5).

Curation, from 40% on: chunks at or below the cutoff go to cold storage. Nothing goes while the gate is closed, since
then no similarity means anything.

Compaction, from 50% on, step by step until the gauge is under that again:

    1. tool results become one line
    2. chunks between cutoff and keep are summarised
    3. the lowest scores go to cold storage first
    4. what is protected becomes head and tail

Protected are the newest chunks, important and anchored ones, and what was just recovered; system messages are never
touched. Everything is decided here as values; an action carries it out, so that a dry run is the real run without its
last step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mcp_server.core.pressure.chunks import Action, Decision, LiveChunk
from mcp_server.core.scoring.live_chunks import ChunkScore

EXCERPT_TOKENS = 200
"""What head and tail of a protected chunk may take."""

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
    """What no rule may take away: the newest chunks, those an anchor names, and, up to `exchange`, what was recovered
    by itself."""

    newest: frozenset[str] = frozenset()
    anchored: frozenset[str] = frozenset()
    exchange: int = 0

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
        why = protected.why(chunk) or (
            "" if gate_open else "nothing here is about the message, so nothing is judged by it"
        )
        if why:
            decisions.append(Decision(chunk, "keep", score.total, why, chunk.tokens))
        elif score.total <= rules.cutoff:
            decisions.append(Decision(chunk, "drop", score.total, f"score at or below {rules.cutoff:g}", 0))
        else:
            decisions.append(Decision(chunk, "keep", score.total, f"score over {rules.cutoff:g}", chunk.tokens))
    return decisions


def compact(scored: Sequence[Scored], target: int, protected: Protected, rules: LadderRules) -> list[Decision]:
    """A decision for every chunk, in the order given: the fewest steps of the ladder that bring the sum of their tokens
    to `target` or under it, as far as that is possible."""
    decided = {chunk.id: Decision(chunk, "keep", score.total, "", chunk.tokens) for chunk, score in scored}
    left = sum(chunk.tokens for chunk, _ in scored) - target

    def climb(candidates: list[Scored], action: Action, after: Callable[[LiveChunk], int], why: str) -> None:
        nonlocal left
        for chunk, score in candidates:
            if left <= 0:
                return
            tokens = after(chunk)
            if tokens < decided[chunk.id].tokens:
                left -= decided[chunk.id].tokens - tokens
                decided[chunk.id] = Decision(chunk, action, score.total, why, tokens)

    free = sorted(
        (pair for pair in scored if not protected.why(pair[0])), key=lambda pair: pair[1].total
    )  # stable: of equals the older goes first
    tools = [pair for pair in free if pair[0].one_line is not None and pair[0].form == "whole"]
    climb(tools, "one line", lambda chunk: chunk.one_line or 0, "a tool's result")
    if rules.summarise:
        middling = [pair for pair in free if rules.cutoff < pair[1].total < rules.keep and pair[0].form == "whole"]
        between = f"score between {rules.cutoff:g} and {rules.keep:g}"
        climb(middling, "summarise", lambda chunk: min(chunk.tokens, rules.summary_tokens), between)
    climb(free, "drop", lambda chunk: 0, "the lowest score goes first")
    guarded = [pair for pair in scored if not pair[0].system and protected.why(pair[0])]
    longest = sorted(guarded, key=lambda pair: -pair[0].tokens)
    climb(longest, "excerpt", lambda chunk: min(chunk.tokens, EXCERPT_TOKENS), "protected, but too long to stay whole")
    return list(decided.values())
