"""Chooses the knowledge files that move to `archive/` because nobody uses them.

    score = e^(−0.05 · days) · (references + 1)

A file is archived when its score is under 0.01 and it is older than 30 days: without a reference after 93 days, with
one after 106, with nine after 139. `references` counts reads and recoveries, so no file is archived before their log
covers 30 days. Identity, the core memory, indexes, and anchored, linked or subscribed files are never archived. The
score does not know when a file was used, so a file that was read or changed within 30 days also stays.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

DECAY_PER_DAY = 0.05
LEAST_SCORE = 0.01
LEAST_DAYS = 30
"""A file's age, and the log's, in days."""

NEVER = ("knowledge/identity/", "knowledge/memory/")


@dataclass(frozen=True, slots=True)
class EvictionScore:
    """A score that is its own explanation: `total` is the product of the two factors."""

    decay: float
    references: int

    @property
    def total(self) -> float:
        return self.decay * (self.references + 1)

    def terms(self) -> Mapping[str, float]:
        """The factors by name, as a dry run shows them."""
        return {"decay": self.decay, "references": self.references + 1}


@dataclass(frozen=True, slots=True)
class KnowledgeFile:
    """What is known of a file. `days` are its age by `updated`, else its last commit, else its mtime; `unchanged` those
    since its bytes last changed here, `unread` those since somebody last read it (None: never); `spared` says why it
    must stay, if it must."""

    path: str
    days: int
    unchanged: int
    references: int
    unread: int | None = None
    spared: str = ""


@dataclass(frozen=True, slots=True)
class Eviction:
    """Whether a file goes, and why (not)."""

    file: KnowledgeFile
    score: EvictionScore
    goes: bool
    why: str


def score(days: int, references: int) -> EvictionScore:
    """Scores a file that is `days` old and was read or recovered `references` times (both 0 or more)."""
    return EvictionScore(math.exp(-DECAY_PER_DAY * max(0, days)), max(0, references))


def decide(files: Iterable[KnowledgeFile]) -> list[Eviction]:
    """A decision for every file, the lowest score first; ties go by path."""
    decisions = [_decided(file) for file in files]
    return sorted(decisions, key=lambda one: (one.score.total, one.file.path))


def _decided(file: KnowledgeFile) -> Eviction:
    scored = score(file.days, file.references)
    age = f"{file.days} days old, {file.references} reference{'' if file.references == 1 else 's'}"
    spared = file.spared or never(file.path)
    if spared:
        return Eviction(file, scored, False, spared)
    if scored.total >= LEAST_SCORE or file.days <= LEAST_DAYS:
        return Eviction(file, scored, False, f"still of use: {age}")
    if file.unchanged <= LEAST_DAYS:
        return Eviction(file, scored, False, "changed on disk lately")
    if file.unread is not None and file.unread <= LEAST_DAYS:
        return Eviction(file, scored, False, "read lately")
    return Eviction(file, scored, True, f"{age}: {scored.total:.4f} points, under {LEAST_SCORE:g}")


def never(path: str) -> str:
    """Why a file of this name never goes; empty if it may."""
    if path.startswith(NEVER):
        return "identity and core memory never go"
    return "an index" if path.rsplit("/", 1)[-1].startswith("_") else ""


def archived_path(path: str) -> str:
    """Where a knowledge file goes: knowledge/people/ana.md to archive/people/ana.md."""
    return "archive/" + path.removeprefix("knowledge/")
