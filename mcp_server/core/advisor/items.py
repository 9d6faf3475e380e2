"""What the advisor judges: files, skills and agent outputs in a client's context (S2 "Context Item Types")."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from mcp_server.core.text.words import words

ItemType = Literal["skill", "file", "agent"]

ESTIMATES: dict[ItemType, int] = {"skill": 550, "file": 850, "agent": 1500}
"""Tokens where nobody counted: the middle of S2's size estimates."""


@dataclass(frozen=True, slots=True)
class ContextItem:
    """One item with its accesses. `path` is what the client calls it; times are aware, in UTC."""

    id: str
    type: ItemType
    path: str
    loaded: datetime
    last_accessed: datetime
    accesses: int
    tokens: int
    tags: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    description: str = ""
    mtime: datetime | None = None

    @property
    def named(self) -> frozenset[str]:
        """The words of its path and tags, folded."""
        return frozenset(words(" ".join((self.path.replace("_", " "), *self.tags))))

    @property
    def described(self) -> frozenset[str]:
        """The words of its description and topics, folded."""
        return frozenset(words(" ".join((self.description, *self.topics))))
