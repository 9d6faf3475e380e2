"""Which knowledge files move to `archive/` because nobody uses them, and the report of a pruning.

    score = e^(−0.05 · days) · (references + 1)

A file is archived when its score is under 0.01 and it is older than 30 days: without a reference after 93 days, with
one after 106, with nine after 139. `references` counts reads and recoveries, so no file is archived before their log
covers 30 days. Identity, the core memory, indexes, and anchored, linked or subscribed files are never archived. The
score does not know when a file was used, so a file that was read or changed within 30 days also stays.

A report names for each thing what becomes of it:

    keep     it stays
    fading   it gets shorter, or is next to leave; its original can be restored
    gone     it leaves, and can be restored
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
"""Days: the least age of a file that is archived, and of the log of reads."""

NEVER = ("knowledge/identity/", "knowledge/memory/")

Strategy = Literal["auto", "clarity", "advisor", "compact", "memory", "files"]
Fate = Literal["keep", "fading", "gone"]

LISTED = 10
"""Things of each fate that are listed for people; programs get all."""


@dataclass(frozen=True, slots=True)
class Fated:
    """A file or entry and the decision on it. `tokens` and `after` are its tokens before and after the pruning, if they
    were counted."""

    id: str
    what: str
    fate: Fate
    why: str
    tokens: int | None = None
    after: int | None = None

    @property
    def line(self) -> str:
        """The thing on one line."""
        named = self.what if self.id in self.what else f"{self.id} {self.what}"
        size = ""
        if self.tokens is not None:
            size = f" ({self.tokens:,} tokens" + (f" → {self.after:,})" if self.fate == "fading" else ")")
        return f"- {neutralise(named)}{size}: {self.why}"


@dataclass(frozen=True, slots=True)
class Pruned:
    """The report of a pruning `of` some things, which go to `where`. `undo` are ids for `recover`. `before` and `after`
    are tokens of the live context, if that was pruned; with `mirror` they count our copy of the client's context."""

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
        """Returns the things of one fate, in order."""
        return [one for one in self.fates if one.fate == fate]

    @property
    def changes(self) -> bool:
        """Returns whether anything leaves or gets shorter."""
        return any(one.fate != "keep" for one in self.fates)

    def as_dict(self) -> dict[str, Any]:
        """Returns JSON values."""
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
        """The report for people and models."""
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
    """Returns a line that counts the kept things by reason."""
    reasons = Counter(one.why for one in things if one.why)
    said = [f"{why} ({count})" for why, count in reasons.most_common()]
    return [f"keep: {'; '.join(said)}"] if said else []


# ---------------------------------------------------------------- unused files


@dataclass(frozen=True, slots=True)
class KnowledgeFile:
    """The inputs of the decision about a file. `days` is its age, `unchanged` the days since its bytes changed,
    `unread` the days since it was last read (None: never); `spared` is a reason why it must stay, if there is one."""

    path: str
    days: int
    unchanged: int
    references: int
    unread: int | None = None
    spared: str = ""


def score(days: int, references: int) -> float:
    """Returns the score of a file that is `days` old and was read or recovered `references` times."""
    return math.exp(-DECAY_PER_DAY * days) * (references + 1)


def decide(files: Iterable[KnowledgeFile]) -> list[Fated]:
    """Returns a decision for every file, the lowest score first; files of one score are sorted by path."""
    return [_decided(file) for file in sorted(files, key=lambda one: (score(one.days, one.references), one.path))]


def _decided(file: KnowledgeFile) -> Fated:
    total = score(file.days, file.references)
    age = f"{file.days} days old, {file.references} reference{'' if file.references == 1 else 's'}"
    kept = file.spared or never(file.path)
    if not kept and (total >= LEAST_SCORE or file.days <= LEAST_DAYS):
        kept = f"still of use: {age}"
    if not kept and file.unchanged <= LEAST_DAYS:
        kept = "changed on disk lately"
    if not kept and file.unread is not None and file.unread <= LEAST_DAYS:
        kept = "read lately"
    if kept:
        return Fated(file.path, file.path, "keep", kept)
    return Fated(file.path, file.path, "gone", f"{age}: {total:.4f} points, under {LEAST_SCORE:g}")


def never(path: str) -> str:
    """Returns why a file is never archived; empty if it may be."""
    if path.startswith(NEVER):
        return "identity and core memory never go"
    return "an index" if path.rsplit("/", 1)[-1].startswith("_") else ""
