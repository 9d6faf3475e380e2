"""What a pruning does, or would do, in words a person knows: what is kept, what fades, what is gone.

keep     stays as it is
fading   gets shorter, or is on its way out: the original can be brought back
gone     leaves, and can be brought back
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from mcp_server.text.fencing import neutralise

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
