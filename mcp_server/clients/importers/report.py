"""The report of an import: what was imported, and what was left out and why."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mcp_server.clients.importers.imported import Format, Skipped

NAMED = 1000
"""Skipped items that are named; the rest is only counted."""

REASONS, EXAMPLES = 24, 3
"""Lines of the summary, and names in each line."""


@dataclass(frozen=True, slots=True)
class ImportReport:
    """The result of an import.

    `files` counts markdown files; `unchanged` counts files that have not changed since an earlier import and were not
    read again. `reasons` counts skipped items by reason; `skipped` has the first of them. `commit` is the id of the
    commit, or a sentence why there is none; empty if nothing was new.
    """

    format: Format
    sessions: int = 0
    new_sessions: int = 0
    turns: int = 0
    new_turns: int = 0
    copied: int = 0
    files: int = 0
    new_files: int = 0
    changed_files: int = 0
    unchanged: int = 0
    redacted: int = 0
    commit: str = ""
    skipped: tuple[Skipped, ...] = ()
    skipped_count: int = 0
    reasons: Mapping[str, int] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @property
    def markdown(self) -> str:
        """The report in words."""
        new = self.new_files or self.changed_files or self.new_turns
        verb = "imported" if new else "read"
        if self.format == "markdown":
            known = self.files - self.new_files - self.changed_files
            lines = [
                f"{self.files} files {verb}: {self.new_files} new, {self.changed_files} changed, {known} as they were"
            ]
        else:
            known = self.turns - self.new_turns
            lines = [
                f"{self.sessions} sessions, {self.turns} turns {verb}: {self.new_sessions} sessions and "
                f"{self.new_turns} turns new, {known} turns already recorded"
            ]
            if self.files:
                lines.append(
                    f"{self.files} files of projects and memories: {self.new_files} new, {self.changed_files} changed, "
                    f"{self.files - self.new_files - self.changed_files} as they were"
                )
        if self.copied:
            lines.append(f"{self.copied} of those are recorded in the session that they were copied from")
        if self.unchanged:
            lines.append(
                "1 file did not change since it was imported and was not read again"
                if self.unchanged == 1
                else f"{self.unchanged} files did not change since they were imported and were not read again"
            )
        if self.redacted:
            lines.append(f"{self.redacted} turns held secrets, which were redacted before writing")
        if self.skipped_count:
            lines += [f"{self.skipped_count} skipped:", *self._reasons()]
        return "\n".join(lines)

    def _reasons(self) -> list[str]:
        names: dict[str, list[str]] = {}
        for item in self.skipped:
            if item.name:
                names.setdefault(item.why, []).append(item.name)
        ranked = sorted(self.reasons.items(), key=lambda reason: (-reason[1], reason[0]))
        lines: list[str] = []
        for why, count in ranked[:REASONS]:
            named = list(dict.fromkeys(names.get(why, [])))
            if count == 1 and named:
                lines.append(f"  {named[0]}: {why}")
            else:
                more = ", …" if len(named) > EXAMPLES else ""
                lines.append(f"  {count:,} × {why}" + (f": {', '.join(named[:EXAMPLES])}{more}" if named else ""))
        if rest := ranked[REASONS:]:
            lines.append(f"  {sum(count for _, count in rest):,} for {len(rest)} other reasons (--json names them)")
        return lines

    def with_skipped(self, item: Skipped) -> ImportReport:
        """Returns the report with one more skipped item."""
        named = (*self.skipped, item) if len(self.skipped) < NAMED else self.skipped
        return dataclasses.replace(self.with_counted({item.why: 1}), skipped=named)

    def with_counted(self, reasons: Mapping[str, int]) -> ImportReport:
        """Returns the report with more skipped items that have no names, counted by reason."""
        counts = {why: self.reasons.get(why, 0) + reasons.get(why, 0) for why in {**self.reasons, **reasons}}
        return dataclasses.replace(self, skipped_count=self.skipped_count + sum(reasons.values()), reasons=counts)
