"""`bench topics`: do the right topics come in? Precision and recall by tier, on a labelled set, without an LLM.

A set is a folder with `topics/*.md` and `messages.yaml`: a list of `text`, the `topics` that should come in, and
`near`, the topic that a near miss only sounds like. Its messages are split in two by a hash of their text: on one half
one may tune, the other one is for measuring. Each message goes through the ordinary watchers, over ordinary files.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from anyio.to_thread import run_sync

from mcp_server.bench.workbench import Workbench
from mcp_server.errors import Invalid, NotFound
from mcp_server.memory import Memory
from mcp_server.storage.topic_files import TopicSet
from mcp_server.text.yaml import load
from mcp_server.topics.judge import Verdict, decided, weigh
from mcp_server.topics.topic import Heard
from mcp_server.topics.watch import first_tier

Half = Literal["tuning", "held out"]
HALVES: tuple[Half, ...] = ("tuning", "held out")
MEASURED: Half = "held out"

LEAST_PRECISION, LEAST_RECALL = 0.90, 0.80
"""The bars on the half that is held out."""

TIERS = (
    "tier 1: a trigger matched",
    "and tier 2: not dropped, or alike without triggers",
    "and tier 3: through the gate",
)


@dataclass(frozen=True, slots=True)
class Labelled:
    """A message with the names of the topics that should come in, and of the one that it only sounds like."""

    text: str
    topics: frozenset[str] = frozenset()
    near: str = ""

    @property
    def half(self) -> Half:
        """By the first byte of the SHA-256 of the text."""
        return HALVES[hashlib.sha256(self.text.encode()).digest()[0] % 2]


@dataclass(frozen=True, slots=True)
class Counted:
    """Topics that came in and should have (`hits`), should not have (`false`), and should have but did not (`missed`),
    over all messages."""

    hits: int
    false: int
    missed: int

    @property
    def precision(self) -> float:
        """Share of what came in that should have; 1 for nothing."""
        return self.hits / (self.hits + self.false) if self.hits + self.false else 1.0

    @property
    def recall(self) -> float:
        """Share of what should have come in that did; 1 for nothing."""
        return self.hits / (self.hits + self.missed) if self.hits + self.missed else 1.0

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "precision": self.precision, "recall": self.recall}


@dataclass(frozen=True, slots=True)
class Mistake:
    """A topic that came in for a message and should not have (`false`), or the other way round, and why."""

    topic: str
    text: str
    false: bool
    why: str


@dataclass(frozen=True, slots=True)
class TopicsReport:
    """What came out: by half and tier; `mistakes` of the whole pipeline on the half for tuning only."""

    path: str
    embedder: str
    topics: int
    messages: dict[str, int]
    near_misses: dict[str, int]
    tiers: dict[str, dict[str, Counted]]
    mistakes: tuple[Mistake, ...]

    def as_dict(self) -> dict[str, Any]:
        tiers = {half: {tier: one.as_dict() for tier, one in by.items()} for half, by in self.tiers.items()}
        return {**asdict(self), "tiers": tiers}


async def measure_topics(bench: Workbench, path: Path, embedder: str | None = None) -> TopicsReport:
    """Puts the set's topics into a temporary workspace and every message through the watchers, with no LLM."""
    overrides = {"CONTEXT_MANAGER_SEARCH__EMBEDDER": embedder} if embedder else {}
    messages = labelled(path)
    async with bench.temporary(overrides) as (memory, workspace):
        await run_sync(_copied, path, workspace)
        topics = await run_sync(memory.topics.read)
        _check(path, topics, messages)
        judged: list[tuple[Labelled, list[Verdict]]] = []
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


def labelled(path: Path) -> list[Labelled]:
    """The messages of a set. Raises NotFound or Invalid, naming the file."""
    place = path / "messages.yaml"
    if not place.is_file() or not (path / "topics").is_dir():
        raise NotFound(f"no labelled set in {path}: it needs messages.yaml and topics/*.md (tests/bench/labelled)")
    entries = load(place.read_text(encoding="utf-8"), place.name).get("messages")
    if not isinstance(entries, list):
        raise Invalid(f"{place.name}: `messages` must be a list of `text`, `topics`, `near`")
    found: list[Labelled] = []
    for number, one in enumerate(entries, start=1):
        if not isinstance(one, dict) or not isinstance(one.get("text"), str):
            raise Invalid(f"{place.name}: message {number} has no `text`")
        names = one.get("topics") or ()
        if not isinstance(names, list | tuple):
            raise Invalid(f"{place.name}: message {number}: `topics` must be a list of names")
        found.append(Labelled(one["text"], frozenset(map(str, names)), str(one.get("near") or "")))
    return found


def _copied(path: Path, workspace: Path) -> None:
    """Only these topics: those that a new workspace begins with would come in, too."""
    shutil.rmtree(workspace / "topics", ignore_errors=True)
    shutil.copytree(path / "topics", workspace / "topics")


def _check(path: Path, topics: TopicSet, messages: Iterable[Labelled]) -> None:
    if topics.problems:
        raise Invalid(f"{path}: {topics.problems[0]}")
    for one in messages:
        unknown = (one.topics | ({one.near} - {""})) - topics.topics.keys()
        if unknown:
            raise Invalid(f"{path}: no topic {sorted(unknown)[0]!r}, which the message {one.text[:60]!r} names")


async def _judged(memory: Memory, topics: TopicSet, message: Labelled) -> list[Verdict]:
    heard = Heard(message.text)

    def weighed() -> list[Verdict]:
        return weigh(memory, heard, topics, first_tier(memory, topics, heard))

    return list(await decided(memory, heard, topics, await run_sync(weighed), alone=True))


def _tiers(judged: Sequence[tuple[Labelled, list[Verdict]]]) -> dict[str, Counted]:
    def matched(one: Verdict) -> bool:
        return bool(one.matches)

    def kept(one: Verdict) -> bool:
        return one.decision.routed.way in ("activate", "gate")

    def active(one: Verdict) -> bool:
        return one.active

    rules = (matched, kept, active)
    found: dict[str, Counted] = {}
    for tier, rule in zip(TIERS, rules, strict=True):
        hits = false = missed = 0
        for message, verdicts in judged:
            came = {one.topic for one in verdicts if rule(one)}
            hits += len(came & message.topics)
            false += len(came - message.topics)
            missed += len(message.topics - came)
        found[tier] = Counted(hits, false, missed)
    return found


def _mistakes(judged: Sequence[tuple[Labelled, list[Verdict]]]) -> Iterable[Mistake]:
    for message, verdicts in judged:
        by_name = {one.topic: one for one in verdicts}
        for name in sorted({one.topic for one in verdicts if one.active} ^ message.topics):
            verdict = by_name.get(name)
            why = verdict.why if verdict else "no trigger matched"
            yield Mistake(name, message.text, name not in message.topics, why)
