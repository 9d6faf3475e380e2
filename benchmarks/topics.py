"""`topics`: are the right topics activated, and how fast? Precision and recall by tier, without an LLM.

A set is a folder with `topics/*.md` and `messages.yaml`: a list of `text`, the `topics` that should come in, and
`near`, the topic that a near miss only sounds like. A hash of its text puts each message into one of two halves: one
for tuning, one only for measuring. Each message goes through the ordinary watchers, over ordinary files.

The speed is measured with made-up topics: what a message costs the watchers before the gate.
"""

from __future__ import annotations

import hashlib
import random
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from anyio.to_thread import run_sync

from benchmarks.workbench import Show, Talk, Workbench, percentile
from mcp_server.errors import Invalid, NotFound
from mcp_server.memory import Memory
from mcp_server.storage.topics import LOOK_AGAIN, TopicSet
from mcp_server.text.markdown import load
from mcp_server.topics.judge import Verdict, decided, weigh
from mcp_server.topics.topic import WatchedMessage
from mcp_server.topics.watch import first_tier

SET = Path(__file__).parent / "labeled-topics"
Half = Literal["tuning", "held out"]
HALVES: tuple[Half, ...] = ("tuning", "held out")
MEASURED: Half = "held out"

LEAST_PRECISION, LEAST_RECALL = 0.90, 0.80
"""The bars on the held-out half."""

TIERS = (
    "tier 1: a trigger matched",
    "and tier 2: not dropped, or alike without triggers",
    "and tier 3: through the gate",
)


@dataclass(frozen=True, slots=True)
class Labeled:
    """A message, the names of the topics that should come in, and the name of the one that it only sounds like."""

    text: str
    topics: frozenset[str] = frozenset()
    near: str = ""

    @property
    def half(self) -> Half:
        """Returns the half, by the first byte of the SHA-256 of the text."""
        return HALVES[hashlib.sha256(self.text.encode()).digest()[0] % 2]


@dataclass(frozen=True, slots=True)
class Counted:
    """Topics that came in rightly (`hits`) and wrongly (`false`), and that should have come in but did not (`missed`),
    over all messages."""

    hits: int
    false: int
    missed: int

    @property
    def precision(self) -> float:
        """Returns the share of the topics that came in that should have; 1 if none came in."""
        return self.hits / (self.hits + self.false) if self.hits + self.false else 1.0

    @property
    def recall(self) -> float:
        """Returns the share of the topics that should have come in that did; 1 if there were none."""
        return self.hits / (self.hits + self.missed) if self.hits + self.missed else 1.0

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "precision": self.precision, "recall": self.recall}


@dataclass(frozen=True, slots=True)
class Mistake:
    """A topic that came in wrongly (`false`), or that should have come in but did not, and why."""

    topic: str
    text: str
    false: bool
    why: str


@dataclass(frozen=True, slots=True)
class TopicsReport:
    """Counts by half and tier. `mistakes` are those of all tiers together, on the half for tuning only."""

    path: str
    embedder: str
    topics: int
    messages: dict[str, int]
    near_misses: dict[str, int]
    tiers: dict[str, dict[str, Counted]]
    mistakes: tuple[Mistake, ...]


async def measure_topics(bench: Workbench, path: Path = SET) -> TopicsReport:
    """Puts the set's topics into a temporary workspace and sends every message through the watchers, without an LLM."""
    messages = labeled(path)
    async with bench.temporary() as (memory, workspace):
        await run_sync(_copied, path, workspace)
        topics = await run_sync(memory.topics.read)
        _check(path, topics, messages)
        judged: list[tuple[Labeled, list[Verdict]]] = []
        for place, message in enumerate(messages):
            bench.show(place, len(messages), "judging")
            judged.append((message, await _judged(memory, topics, message)))
        return TopicsReport(
            path=str(path),
            embedder=memory.embedder.name if memory.embedder else "none",
            topics=len(topics.topics),
            messages={half: sum(one.half == half for one in messages) for half in HALVES},
            near_misses={half: sum(one.half == half and bool(one.near) for one in messages) for half in HALVES},
            tiers={half: _tiers([pair for pair in judged if pair[0].half == half]) for half in HALVES},
            mistakes=tuple(_mistakes([pair for pair in judged if pair[0].half == "tuning"])),
        )


def labeled(path: Path) -> list[Labeled]:
    """Returns the messages of a set. Raises NotFound or Invalid, naming the file."""
    place = path / "messages.yaml"
    if not place.is_file() or not (path / "topics").is_dir():
        raise NotFound(f"no labeled set in {path}: it needs messages.yaml and topics/*.md, as in {SET}")
    entries = load(place.read_text(encoding="utf-8"), place.name).get("messages")
    if not isinstance(entries, list):
        raise Invalid(f"{place.name}: `messages` must be a list of `text`, `topics`, `near`")
    found: list[Labeled] = []
    for number, one in enumerate(entries, start=1):
        if not isinstance(one, dict) or not isinstance(one.get("text"), str):
            raise Invalid(f"{place.name}: message {number} has no `text`")
        names = one.get("topics") or ()
        if not isinstance(names, list | tuple):
            raise Invalid(f"{place.name}: message {number}: `topics` must be a list of names")
        found.append(Labeled(one["text"], frozenset(map(str, names)), str(one.get("near") or "")))
    return found


def _copied(path: Path, workspace: Path) -> None:
    """Replaces the topics of a new workspace by those of the set."""
    shutil.rmtree(workspace / "topics", ignore_errors=True)
    shutil.copytree(path / "topics", workspace / "topics")


def _check(path: Path, topics: TopicSet, messages: Iterable[Labeled]) -> None:
    if topics.problems:
        raise Invalid(f"{path}: {topics.problems[0]}")
    for one in messages:
        unknown = (one.topics | ({one.near} - {""})) - topics.topics.keys()
        if unknown:
            raise Invalid(f"{path}: no topic {sorted(unknown)[0]!r}, which the message {one.text[:60]!r} names")


async def _judged(memory: Memory, topics: TopicSet, message: Labeled) -> list[Verdict]:
    heard = WatchedMessage(message.text)

    def weighed() -> list[Verdict]:
        return weigh(memory, heard, topics, first_tier(memory, topics, heard))

    return list(await decided(memory, heard, topics, await run_sync(weighed), cached_only=True))


def _tiers(judged: Sequence[tuple[Labeled, list[Verdict]]]) -> dict[str, Counted]:
    rules: tuple[Callable[[Verdict], bool], ...] = (
        lambda one: bool(one.matches),
        lambda one: one.routed.way in ("activate", "gate"),
        lambda one: one.active,
    )
    found: dict[str, Counted] = {}
    for tier, rule in zip(TIERS, rules, strict=True):
        came = [({one.topic for one in verdicts if rule(one)}, message.topics) for message, verdicts in judged]
        found[tier] = Counted(
            hits=sum(len(some & wanted) for some, wanted in came),
            false=sum(len(some - wanted) for some, wanted in came),
            missed=sum(len(wanted - some) for some, wanted in came),
        )
    return found


def _mistakes(judged: Sequence[tuple[Labeled, list[Verdict]]]) -> Iterable[Mistake]:
    for message, verdicts in judged:
        by_name = {one.topic: one for one in verdicts}
        for name in sorted({one.topic for one in verdicts if one.active} ^ message.topics):
            verdict = by_name.get(name)
            why = verdict.why if verdict else "no trigger matched"
            yield Mistake(name, message.text, name not in message.topics, why)


TOPICS, TRIGGERS, MESSAGES = 1_000, 5, 500
BAR_MS = 10.0
NAMED = 3
"""Topics that a message names by one of their words."""


@dataclass(frozen=True, slots=True)
class TopicsSpeed:
    """Milliseconds per message, over `messages` messages. `cpu_p95_ms` leaves out the time of waiting for a core;
    `look_ms` is the median of checking the files for changes; `first_ms` is the time of the first message, which reads
    the files; `changed_ms` that of a message after a file changed. `candidates`: mean number of topics that a message
    brings up."""

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


async def measure_topics_speed(bench: Workbench, topics: int = TOPICS, messages: int = MESSAGES) -> TopicsSpeed:
    """Fills a temporary workspace with made-up topics and sends made-up messages through the watchers, one by one."""
    async with bench.temporary() as (memory, workspace):
        return await run_sync(_measured, memory, workspace, topics, messages, bench.show)


def _measured(memory: Memory, workspace: Path, topics: int, messages: int, show: Show) -> TopicsSpeed:
    folder = workspace / "topics"
    folder.mkdir(exist_ok=True)
    made = made_up_topics(topics)
    for one in made:
        (folder / f"{one.name}.md").write_text(one.text, encoding="utf-8")
    talk, chance = Talk(7), random.Random(7)
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
    time.sleep(LOOK_AGAIN)  # the files are checked again after this time
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
    """Returns the milliseconds of a message, those of them for checking the files, and the number of candidates."""
    began = time.perf_counter()
    topics = memory.topics.read()
    looked = time.perf_counter()
    heard = WatchedMessage(text, paths=("src/app/main.py", "README.md"))
    found = weigh(memory, heard, topics, first_tier(memory, topics, heard))
    return 1000 * (time.perf_counter() - began), 1000 * (looked - began), len(found)


@dataclass(frozen=True, slots=True)
class MadeUp:
    """A topic's file, and a word that triggers it."""

    name: str
    text: str
    said: str


def made_up_topics(count: int) -> list[MadeUp]:
    """Returns topics with five triggers each, of all kinds that match messages."""
    talk, chance = Talk(8), random.Random(8)
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
