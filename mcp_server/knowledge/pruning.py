"""What a pruning does, or would do, in words a person knows: what is kept, what fades, what is gone.

keep     stays as it is
fading   gets shorter, or is on its way out: the original can be brought back
gone     leaves, and can be brought back
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from mcp_server.text.fencing import neutralise

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


Strategy = Literal["auto", "clarity", "advisor", "compact", "memory", "files"]
Fate = Literal["keep", "fading", "gone"]

LISTED = 10
"""Of each fate so many are listed for people; programs get all."""


@dataclass(frozen=True, slots=True)
class Fated:
    """One thing and what becomes of it. `tokens` before and `after`, where they are counted."""

    id: str
    what: str
    fate: Fate
    why: str
    tokens: int | None = None
    after: int | None = None

    @property
    def line(self) -> str:
        """The thing in one line."""
        named = self.what if self.id in self.what else f"{self.id} {self.what}"
        size = ""
        if self.tokens is not None:
            size = f" ({self.tokens:,} tokens" + (f" → {self.after:,})" if self.fate == "fading" else ")")
        return f"- {neutralise(named)}{size}: {self.why}"


@dataclass(frozen=True, slots=True)
class Pruned:
    """A pruning. `of` says what was looked at, `where` the things go to, `undo` what `recover` takes to bring them
    back; `before` and `after` are tokens of the live context where it is about that: of our `mirror`, where the client
    keeps its own."""

    strategy: Strategy
    dry_run: bool
    of: str
    fates: tuple[Fated, ...] = ()
    session: str | None = None
    where: str = "cold storage"
    before: int | None = None
    after: int | None = None
    limit: int | None = None
    mirror: bool = False
    notes: tuple[str, ...] = ()
    undo: tuple[str, ...] = ()

    def of_fate(self, fate: Fate) -> list[Fated]:
        """The things of one fate, in their order."""
        return [one for one in self.fates if one.fate == fate]

    @property
    def changes(self) -> bool:
        """Whether anything goes or gets shorter."""
        return any(one.fate != "keep" for one in self.fates)

    def as_dict(self) -> dict[str, Any]:
        """What a program reads."""
        listed: Mapping[str, list[dict[str, Any]]] = {
            fate: [
                {"id": one.id, "what": one.what, "why": one.why, "tokens": one.tokens, "after": one.after}
                for one in self.of_fate(fate)
            ]
            for fate in ("gone", "fading", "keep")
        }
        return {
            "strategy": self.strategy,
            "dry_run": self.dry_run,
            "session": self.session,
            "of": self.of,
            "tokens_before": self.before,
            "tokens_after": self.after,
            "limit": self.limit,
            **listed,
            "notes": list(self.notes),
            "undo": list(self.undo),
        }

    @property
    def markdown(self) -> str:
        """The account as a person or a model reads it."""
        counts = ", ".join(f"{fate} {len(self.of_fate(fate))}" for fate in ("keep", "fading", "gone"))
        head = f"prune {self.strategy}"
        lines = [f"{head}: {self.of}: {counts}{self._gauge}"]
        if not self.changes:
            lines.append(f"Nothing {'is' if self.dry_run else 'was'} to be pruned.")
        goes, shorter = ("would go", "would get shorter") if self.dry_run else ("went", "got shorter")
        lines += _listed(f"gone ({goes} to {self.where}):", self.of_fate("gone"))
        lines += _listed(f"fading ({shorter} or is next):", self.of_fate("fading"))
        lines += _kept(self.of_fate("keep"))
        lines += self.notes
        if self.undo:
            lines.append(
                f"bring back: recover {' | '.join(self.undo[:LISTED])}{' …' if len(self.undo) > LISTED else ''}"
            )
        if self.dry_run and self.changes:
            lines.append("This was a dry run: nothing has changed.")
        return "\n".join(lines)

    @property
    def _gauge(self) -> str:
        if self.before is None or self.after is None or self.limit is None:
            return ""
        will = "would become" if self.dry_run else "became"
        whose = "our mirror" if self.mirror else "live context"
        return f"; {whose} {self.before:,} {will} {self.after:,} of {self.limit:,} tokens"


def _listed(head: str, things: Sequence[Fated]) -> list[str]:
    if not things:
        return []
    rest = len(things) - LISTED
    return [head, *(one.line for one in things[:LISTED]), *([f"- … and {rest} more"] if rest > 0 else [])]


def _kept(things: Sequence[Fated]) -> list[str]:
    """What is kept is counted by its reasons: there is nothing to decide about it."""
    reasons = Counter(one.why for one in things if one.why)
    said = [f"{why} ({count})" for why, count in reasons.most_common()]
    return [f"keep: {'; '.join(said)}"] if said else []
