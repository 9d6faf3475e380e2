"""Topics for a client's window: what a prompt brings in that the window was not sent before, and corrections."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from mcp_server.context.injection import fingerprints, was_sent
from mcp_server.context.receipt import Receipt
from mcp_server.memory import Memory
from mcp_server.topics import watch
from mcp_server.topics.activations import Correction
from mcp_server.topics.topic import ActiveTopic
from mcp_server.topics.topic_context import active_context

SHARE = 0.65
"""Most of an injection that topics may take: it comes once a window, and passages still find room beside them."""


@dataclass(frozen=True, slots=True)
class Offered:
    """What may be pushed: topics with what comes with them, where the window lacks it, and corrections."""

    topics: tuple[ActiveTopic, ...] = ()
    corrections: tuple[Correction, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.topics or self.corrections)

    def shown(self, receipt: Receipt) -> tuple[str, ...]:
        """The names of the topics whose instructions went in."""
        inside = _inside(receipt)
        return tuple(topic.name for topic in self.topics if topic.source.path in inside)

    def marks(self, receipt: Receipt) -> set[str]:
        """The fingerprints of what the window has now: of a file of which a part went in, all lines."""
        inside = _inside(receipt)
        files = [file for topic in self.topics for file in (topic.source, *topic.subscriptions)]
        return {mark for file in files if file.path in inside for mark in fingerprints(file.text)}


async def offered(memory: Memory, session: str, prompt: str, seen: watch.Seen, sent: Collection[str]) -> Offered:
    """Judges the prompt, and returns what is active and not in the window; `sent` are the fingerprints of what is."""
    topics, standing = await watch.judge_prompt(memory, session, prompt, seen)
    living = standing.active.living(standing.exchanges, memory.settings.watchers.topic_ttl)
    active = await active_context(memory, topics, standing.active, living)
    fresh = tuple(
        replace(topic, subscriptions=tuple(one for one in topic.subscriptions if not was_sent(one.text, sent)))
        for topic in active.topics
        if topic.payloads or not was_sent(topic.source.text, sent)
    )
    return Offered(fresh, active.corrections)


def rows(receipt: Receipt) -> list[dict[str, Any]]:
    """What became of topics and corrections, for the log, as it names passages."""
    return [
        {
            "id": one.id,
            "slot": one.slot,
            "source": one.source,
            "turn": one.turn,
            "title": "",
            "score": one.score,
            "tokens": one.tokens,
            "included": one.included,
            "reason": one.reason,
        }
        for one in receipt.considered
        if one.slot in ("topics", "corrections")
    ]


def _inside(receipt: Receipt) -> set[str]:
    return {one.source for one in receipt.considered if one.included and one.slot == "topics"}
