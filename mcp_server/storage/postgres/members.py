"""Principals, memberships and the audit log, in PostgreSQL.

Memberships are read before a workspace is chosen, so they have no row-level security; ROLE has no rights on them. The
audit log belongs to its workspace.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from typing import Any, LiteralString, TypeVar

import psycopg
from psycopg_pool import ConnectionPool

from mcp_server.errors import Invalid, NotFound, Unavailable
from mcp_server.storage.members import AuditEntry, Member, Principal, Role
from mcp_server.storage.postgres.connections import OPTIONS, Address, Connection
from mcp_server.storage.postgres.database import explained
from mcp_server.storage.postgres.migrate import ROLE, SCHEMA, prepare

T = TypeVar("T")

CONNECTIONS = 4
SECONDS = 5.0
"""Seconds to wait for a connection. After that the sign-in fails with an error."""

TRIES = 20
"""Attempts to create a workspace with the next number, which another replica may use at the same time."""


class TeamMembers:
    """The members of all workspaces of a database. Creates the workspace of the address if it is missing."""

    def __init__(self, address: Address) -> None:
        self._address = address
        prepare(address)
        self._pool: ConnectionPool[Connection] = ConnectionPool(
            address.connection,
            connection_class=Connection,
            kwargs={"autocommit": True, **OPTIONS, "options": f"-c search_path={SCHEMA},public"},
            min_size=1,
            max_size=CONNECTIONS,
            timeout=SECONDS,
            check=ConnectionPool.check_connection,
            open=False,
        )
        self._pool.open()

    @property
    def workspace(self) -> str:
        return self._address.workspace

    def close(self) -> None:
        self._pool.close()

    def check(self) -> None:
        self._rows("SELECT 1")

    def sign_in(self, issuer: str, subject: str, name: str) -> Principal:
        who = _id(issuer, subject)
        statement = (
            "SELECT p.name, p.personal, w.name, m.role FROM principal p "
            "LEFT JOIN membership m ON m.principal = p.id LEFT JOIN workspace w ON w.ws = m.ws WHERE p.id = %s"
        )
        rows = self._rows(statement, who)
        if not rows or rows[0][1] is None or rows[0][0] != name:
            self._run(lambda connection: _enter(connection, who, issuer, subject, name))
            rows = self._rows(statement, who)
        roles = {workspace: role for _, _, workspace, role in rows if workspace is not None}
        return Principal(who, subject, name, _personal(who), roles)

    def secret(self, name: str) -> bytes:
        def read(connection: Connection) -> bytes:
            connection.execute(
                "INSERT INTO secret (name, value) VALUES (%s, %s) ON CONFLICT (name) DO NOTHING",
                (name, secrets.token_bytes(32)),
            )
            row = connection.execute("SELECT value FROM secret WHERE name = %s", (name,)).fetchone()
            assert row is not None
            return bytes(row[0])

        return self._run(read)

    def record(self, workspace: str, entry: AuditEntry) -> None:
        statement = (
            "INSERT INTO audit (ws, at, id, principal, client, action, targets, outcome) "
            "VALUES (%s, %s, %s, %s, %s, %s, %s, %s)"
        )
        values = (entry.at, secrets.token_hex(4), entry.principal, entry.client, entry.action)
        self._within(
            workspace, lambda connection: connection.run(statement, *values, list(entry.targets), entry.outcome)
        )

    def log(self, workspace: str, limit: int) -> list[AuditEntry]:
        lines = "SELECT at, principal, client, action, targets, outcome FROM audit WHERE ws = %s ORDER BY at DESC, id"
        rows = self._within(workspace, lambda connection: connection.rows(f"{lines} LIMIT %s", limit))
        named = self._rows("SELECT id, subject FROM principal WHERE id = ANY(%s)", [row[1] for row in rows])
        subjects: dict[str, str] = dict(named)
        return [AuditEntry(at, subjects.get(who, who), *rest) for at, who, *rest in rows]

    def all(self, workspace: str) -> list[Member]:
        rows = self._rows(
            "SELECT p.subject, p.name, m.role, p.issuer, p.id FROM membership m "
            "JOIN workspace w ON w.ws = m.ws JOIN principal p ON p.id = m.principal WHERE w.name = %s "
            "ORDER BY p.subject",
            workspace,
        )
        return [Member(subject, name, role, issuer, _personal(who)) for subject, name, role, issuer, who in rows]

    def add(self, workspace: str, issuer: str | None, subject: str, role: Role) -> None:
        def write(connection: Connection) -> None:
            with connection.transaction():
                who = _known(connection, issuer, subject)
                connection.execute(
                    "INSERT INTO membership (ws, principal, role) SELECT ws, %s, %s FROM workspace WHERE name = %s "
                    "ON CONFLICT (ws, principal) DO UPDATE SET role = excluded.role",
                    (who, role, workspace),
                )

        self._run(write)

    def remove(self, workspace: str, subject: str) -> None:
        statement = (
            "DELETE FROM membership m USING workspace w, principal p WHERE w.name = %s AND m.ws = w.ws "
            "AND p.id = m.principal AND p.subject = %s"
        )
        if not self._run(lambda connection: connection.execute(statement, (workspace, subject)).rowcount):
            raise NotFound(f"{subject!r} is no member of {workspace}; `members list` shows the members")

    def _run(self, fn: Callable[[Connection], T]) -> T:
        with explained(self._address), self._pool.connection() as connection:
            return fn(connection)

    def _rows(self, statement: LiteralString, *values: object) -> list[Any]:
        return self._run(lambda connection: connection.execute(statement, values).fetchall())

    def _within(self, workspace: str, fn: Callable[[Connection], T]) -> T:
        """Returns `fn(connection)` of a transaction that sees only this workspace."""

        def run(connection: Connection) -> T:
            row = connection.execute("SELECT ws FROM workspace WHERE name = %s", (workspace,)).fetchone()
            if row is None:
                raise Unavailable(f"the workspace {workspace} was deleted")
            connection.ws = row[0]
            with connection.transaction():
                connection.execute(f"SET LOCAL ROLE {ROLE}; SET LOCAL app.ws = '{row[0]}'")
                return fn(connection)

        return self._run(run)


def _id(issuer: str, subject: str) -> str:
    return hashlib.sha256(f"{issuer}\0{subject}".encode()).hexdigest()[:32]


def _personal(who: str) -> str:
    return f"personal-{who}"


def _known(connection: Connection, issuer: str | None, subject: str) -> str:
    """Returns the id of a subject. Creates it if it is new and its issuer is given; otherwise raises NotFound.
    Raises Invalid if several issuers have the subject."""
    found = connection.execute(
        "SELECT id FROM principal WHERE subject = %s AND issuer = coalesce(%s, issuer)", (subject, issuer)
    ).fetchall()
    if len(found) == 1:
        return str(found[0][0])
    if found:
        raise Invalid(f"several issuers have a subject {subject!r}; set CONTEXT_MANAGER_OAUTH_ISSUER to one of them")
    if issuer is None:
        raise NotFound(
            f"nobody with the subject {subject!r} has signed in yet; to add them now, set CONTEXT_MANAGER_OAUTH_ISSUER"
        )
    who = _id(issuer, subject)
    connection.execute(
        "INSERT INTO principal (id, issuer, subject, name) VALUES (%s, %s, %s, '') ON CONFLICT (id) DO NOTHING",
        (who, issuer, subject),
    )
    return who


def _enter(connection: Connection, who: str, issuer: str, subject: str, name: str) -> None:
    """Creates a principal and its personal workspace, or updates its name."""
    statements: tuple[tuple[LiteralString, tuple[object, ...]], ...] = (
        (
            "INSERT INTO principal (id, issuer, subject, name) VALUES (%s, %s, %s, %s) "
            "ON CONFLICT (id) DO UPDATE SET name = excluded.name",
            (who, issuer, subject, name),
        ),
        (
            "INSERT INTO workspace (ws, name) SELECT coalesce(max(ws), 0) + 1, %s FROM workspace "
            "ON CONFLICT (name) DO NOTHING",
            (_personal(who),),
        ),
        (
            "INSERT INTO membership (ws, principal, role) SELECT w.ws, p.id, 'owner' FROM workspace w, principal p "
            "WHERE w.name = %s AND p.id = %s AND p.personal IS NULL ON CONFLICT DO NOTHING",
            (_personal(who), who),
        ),
        (
            "UPDATE principal SET personal = (SELECT ws FROM workspace WHERE name = %s) WHERE id = %s",
            (_personal(who), who),
        ),
    )
    for left in range(TRIES, 0, -1):
        try:
            with connection.transaction():
                for statement, values in statements:
                    connection.execute(statement, values)
            return
        except psycopg.errors.UniqueViolation:  # another replica has used the number
            if left == 1:
                raise
