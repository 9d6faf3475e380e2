"""The port of members: the roles of people and programs in the workspaces of a team's memory, and the audit log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

Role = Literal["reader", "writer", "owner"]

ROLES: tuple[Role, ...] = ("reader", "writer", "owner")
"""From the fewest rights to the most. Each role includes those before it."""


def includes(role: Role, needed: Role) -> bool:
    """Returns whether `role` has all rights of `needed`."""
    return ROLES.index(role) >= ROLES.index(needed)


@dataclass(frozen=True, slots=True)
class Principal:
    """A person or a program that signed in. `subject` is its id at the issuer, `name` its display name, `roles` has its
    role in each workspace, `personal` is its own workspace, which nobody else uses."""

    id: str
    subject: str
    name: str
    personal: str
    roles: Mapping[str, Role]


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a workspace, as an operator sees it. `personal` is the name of the member's own workspace."""

    subject: str
    name: str
    role: Role
    issuer: str
    personal: str


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """A line of the audit log: who made a call, which paths and sessions it concerned, and how it ended. It contains no
    text of the memory."""

    at: datetime
    principal: str
    client: str
    action: str
    targets: Sequence[str]
    outcome: str


class Members(Protocol):
    """Principals, memberships and audit log of one database. All methods block."""

    @property
    def workspace(self) -> str:
        """Returns the workspace that the database's address names."""

    def sign_in(self, issuer: str, subject: str, name: str) -> Principal:
        """Returns the principal with its current roles. Creates it, with a personal workspace, at its first call."""

    def secret(self, name: str) -> bytes:
        """Returns a random key of 32 bytes that all replicas share."""

    def record(self, workspace: str, entry: AuditEntry) -> None:
        """Writes a line of a workspace's audit log."""

    def check(self) -> None:
        """Raises Unavailable if the database does not answer."""

    def all(self, workspace: str) -> list[Member]:
        """Returns the members of a workspace."""

    def add(self, workspace: str, issuer: str | None, subject: str, role: Role) -> None:
        """Sets the role of a principal in a workspace. Raises NotFound if `issuer` is None and the subject is
        unknown."""

    def remove(self, workspace: str, subject: str) -> None:
        """Ends a membership. Raises NotFound if there is none."""

    def log(self, workspace: str, limit: int) -> list[AuditEntry]:
        """Returns the last lines of the audit log, newest first, with subjects as principals."""
