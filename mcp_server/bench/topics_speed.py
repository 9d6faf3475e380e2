"""What a message costs the watchers before the gate, with many topics: looking at the files, tier 1, tier 2."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from anyio.to_thread import run_sync

from mcp_server.bench import made_up
from mcp_server.bench.metrics import percentile
from mcp_server.bench.workbench import Workbench
from mcp_server.memory import Memory
from mcp_server.storage.topic_files import LOOK_AGAIN
from mcp_server.topics.judge import weigh
from mcp_server.topics.topic import Heard
from mcp_server.topics.watch import first_tier

TOPICS, TRIGGERS, MESSAGES = 1_000, 5, 500
BAR_MS = 10.0
NAMED = 3
"""Topics that a message names: it says one of their words."""


@dataclass(frozen=True, slots=True)
class TopicsSpeed:
    """Milliseconds a message, over `messages`; `cpu_p95_ms` without waiting for a core on a busy machine. `first_ms` is
    what the first one took, which reads the files and computes what is kept; `changed_ms` one after a file changed.
    `candidates`: topics that a message brings up, on average."""

    topics: int
    triggers: int
    messages: int
    look_ms: float
    median_ms: float
    p95_ms: float
    cpu_p95_ms: float
    first_ms: float
    changed_ms: float
    candidates: float
    bar_ms: float = BAR_MS

    @property
    def met(self) -> bool:
        return self.p95_ms <= self.bar_ms

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "met": self.met}


async def measure_speed(bench: Workbench, topics: int = TOPICS, messages: int = MESSAGES) -> TopicsSpeed:
    """Fills a temporary workspace with made-up topics and puts made-up messages through the watchers, one by one."""
    async with bench.temporary() as (memory, workspace):
        return await run_sync(_measured, memory, workspace, topics, messages, bench.show)


def _measured(
    memory: Memory, workspace: Path, topics: int, messages: int, show: Callable[[float, float, str], None]
) -> TopicsSpeed:
    folder = workspace / "topics"
    folder.mkdir(exist_ok=True)
    made = made_up_topics(topics)
    for one in made:
        (folder / f"{one.name}.md").write_text(one.text, encoding="utf-8")
    talk, chance = made_up.Talk(7), random.Random(7)
    said = [" ".join([talk.turn(), *(one.said for one in chance.choices(made, k=NAMED))]) for _ in range(messages)]
    first_ms = _message(memory, talk.turn())[0]
    taken: list[float] = []
    looked: list[float] = []
    computed: list[float] = []
    candidates = 0
    for place, text in enumerate(said):
        if place % 50 == 0:
            show(place, messages, f"{topics:,} topics")
        began = time.thread_time()
        milliseconds, look, found = _message(memory, text)
        computed.append(1000 * (time.thread_time() - began))
        taken.append(milliseconds)
        looked.append(look)
        candidates += found
    changed = folder / f"{made[0].name}.md"
    changed.write_text(changed.read_text(encoding="utf-8") + "\nOne more line.\n", encoding="utf-8")
    time.sleep(LOOK_AGAIN)  # only time makes it look at the files again
    changed_ms = _message(memory, said[0])[0]
    return TopicsSpeed(
        topics=topics,
        triggers=TRIGGERS,
        messages=messages,
        look_ms=percentile(looked, 0.5),
        median_ms=percentile(taken, 0.5),
        p95_ms=percentile(taken, 0.95),
        cpu_p95_ms=percentile(computed, 0.95),
        first_ms=first_ms,
        changed_ms=changed_ms,
        candidates=candidates / max(1, messages),
    )


def _message(memory: Memory, text: str) -> tuple[float, float, int]:
    """Milliseconds that a message took in all, and those of them for looking at the files; topics brought up."""
    began = time.perf_counter()
    topics = memory.topics.read()
    looked = time.perf_counter()
    heard = Heard(text, paths=("src/app/main.py", "README.md"))
    found = weigh(memory, heard, topics, first_tier(memory, topics, heard))
    return 1000 * (time.perf_counter() - began), 1000 * (looked - began), len(found)


@dataclass(frozen=True, slots=True)
class MadeUp:
    """A topic's file, and a word that sets it off."""

    name: str
    text: str
    said: str


def made_up_topics(count: int) -> list[MadeUp]:
    """Topics of five triggers each, of all kinds that look at messages, about words that people say."""
    talk, chance = made_up.Talk(8), random.Random(8)
    found: list[MadeUp] = []
    for number in range(count):
        words = [word for word in talk.sentence(40).rstrip(".").split() if len(word) > 4]
        rare = [f"{word}{chance.randrange(5000)}" for word in words] or [f"rare{number}"]
        triggers = [
            f"  - {{type: keywords, match: [{', '.join(rare[:4])}, {chance.choice(rare)} board]}}",
            f"  - {{type: pattern, match: '\\b({chance.choice(rare)}s?|{chance.choice(rare)}-?{number})\\b'}}",
            f"  - {{type: pattern, match: '/{chance.choice(rare)}\\s+(plan|review|{number})/i', scope: both}}",
            f"  - {{type: url, match: [example{number}.com/*/issues/, git.example.org/team{number}/]}}",
            [
                f"  - {{type: glob, match: ['**/module{number}/*.py', '*.ext{number}']}}",
                f"  - {{type: mention, match: ['@user{number}', Person{number}]}}",
                f"  - {{type: code, match: [language{number}]}}",
                f"  - {{type: sentiment_shift, at_least: {5 + number % 5}}}",
            ][number % 4],
        ]
        lines = "\n".join(f"- {talk.sentence(12)}" for _ in range(8))
        front = "\n".join(["type: topic", f"description: {' '.join(rare[:6])}", "triggers:", *triggers])
        text = f"---\n{front}\n---\n\n# Topic {number}\n\n{lines}\n"
        found.append(MadeUp(f"made-up-{number:04d}", text, rare[0]))
    return found
