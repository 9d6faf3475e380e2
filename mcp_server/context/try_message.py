"""`topics test`: which topics a message would activate, and what a context would contain. Writes nothing.

Runs the same triggers, scores, table and gate as for a recorded message, and asks the LLM if one is configured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anyio.to_thread import run_sync

from mcp_server.context.compiler import compile_inputs, compiler_settings
from mcp_server.context.inputs import CompileInputs
from mcp_server.context.sections import Considered
from mcp_server.memory import Memory
from mcp_server.text.fencing import neutralise
from mcp_server.text.words import bounded
from mcp_server.topics.judge import Verdict, decided, weigh
from mcp_server.topics.topic import Correction, Direction, TopicActivation, Trouble, WatchedMessage
from mcp_server.topics.topic_context import as_texts
from mcp_server.topics.watch import LONGEST_WATCHED, describe_trigger, first_tier

SLOTS = ("topics", "corrections")


@dataclass(frozen=True, slots=True)
class Trial:
    """The result for a message. `verdicts` are those of the considered topics, active ones first; `others` counts the
    other topics. `items` are the candidates for the context with their tokens, `text` is its text."""

    heard: WatchedMessage
    verdicts: tuple[Verdict, ...]
    others: int
    troubles: tuple[Trouble, ...]
    problems: tuple[str, ...]
    corrections: tuple[Correction, ...]
    items: tuple[Considered, ...]
    tokens: int
    text: str
    llm: bool

    def as_dict(self) -> dict[str, Any]:
        """Returns JSON values."""
        return {
            "message": self.heard.text,
            "direction": self.heard.direction,
            "paths": list(self.heard.paths),
            "topics": [_verdict(one) for one in self.verdicts],
            "not_considered": self.others,
            "troubles": [_fields(one, "topic", "line", "what") for one in self.troubles],
            "problems": list(self.problems),
            "corrections": [_fields(one, "topic", "hint") for one in self.corrections],
            "injected": {
                "tokens": self.tokens,
                "items": [_fields(one, "id", "tokens", "included", "reason") for one in self.items],
                "text": self.text,
            },
            "llm": self.llm,
        }

    @property
    def markdown(self) -> str:
        """The result for a model: each considered topic, tier by tier."""
        come = sum(one.active for one in self.verdicts)
        lines = [f"{come} of {len(self.verdicts) + self.others} topics come in ({self.tokens:,} tokens)."]
        for one in self.verdicts:
            said = ", ".join(f"{match.kind} {match.said[:60]!r}" for match in one.matches) or "no trigger matched"
            tier2 = f"{one.about.similarity} {one.score:.3f} (threshold {one.threshold:g})"
            gate = one.why if one.by == "none" else f"{one.routed.why}; {one.why}"
            lines.append(f"- **{one.topic}** {'comes in' if one.active else 'stays out'}: {said} · {tier2} · {gate}")
        lines += [f"- {one.topic}: line {one.line}: {one.what}" for one in self.troubles]
        return neutralise("\n".join(lines))


async def try_message(
    memory: Memory, message: str, *, direction: Direction = "input", paths: Sequence[str] = ()
) -> Trial:
    """Returns what a message would activate. `direction` is `output` for an agent's message, which touched `paths`."""
    heard = WatchedMessage(bounded(message, LONGEST_WATCHED), direction, tuple(paths))
    topics = await run_sync(memory.topics.read)
    tier1 = await run_sync(first_tier, memory, topics, heard)
    weighed = await run_sync(weigh, memory, heard, topics, tier1)
    verdicts = await decided(memory, heard, topics, weighed)
    active = [one for one in verdicts if one.active]
    fired = [TopicActivation(one.topic, by=describe_trigger(one.matches, one.score), score=one.score) for one in active]
    found = [Correction(one.topic, match.correction, 0) for one in active for match in one.matches if match.correction]
    corrections = tuple(dict.fromkeys(found)) if direction == "output" else ()
    inputs = CompileInputs(
        message=message,
        budget=memory.settings.context_compiler.token_budget,
        now=memory.clock(),
        local_date=memory.local_date(memory.clock()),
        topics=await run_sync(as_texts, memory, topics, fired),
        corrections=corrections,
        settings=compiler_settings(memory.settings),
    )
    compiled = await run_sync(compile_inputs, inputs, memory.tokens.count)
    return Trial(
        heard=heard,
        verdicts=verdicts,
        others=len(topics.topics) - len(verdicts),
        troubles=tier1.troubles,
        problems=topics.problems,
        corrections=corrections,
        items=tuple(one for one in compiled.receipt.considered if one.slot in SLOTS),
        tokens=sum(slot.tokens for slot in compiled.receipt.slots if slot.name in SLOTS),
        text=compiled.text if fired or corrections else "",
        llm=memory.llm is not None,
    )


def _fields(one: object, *names: str) -> dict[str, Any]:
    return {name: getattr(one, name) for name in names}


def _verdict(one: Verdict) -> Mapping[str, Any]:
    tier1 = [
        _fields(match, "kind", "said", "start", "end") | {"line": match.trigger.line, "correction": match.correction}
        for match in one.matches
    ]
    return {
        "topic": one.topic,
        "path": one.about.path,
        "active": one.active,
        "activation": one.about.activation,
        "priority": one.about.priority,
        "tier1": tier1,
        "tier2": {
            "method": one.about.similarity,
            "score": one.likeness.score,
            "threshold": one.threshold,
            "terms": dict(one.likeness.terms),
        },
        "tier3": {
            "way": one.routed.way,
            "table": one.routed.why,
            "decided_by": one.by,
            "why": one.why,
            "value": one.deliberation.value,
            "needed": one.deliberation.needed,
            "terms": dict(one.deliberation.terms),
        },
    }
