"""Brings the schema of a database up to date with numbered SQL files, and creates workspaces.

Each file runs once, in one transaction, under a lock that other replicas wait for. A statement that waits longer than
LOCK_TIMEOUT for a busy table fails, so that it does not block the readers behind it, and the file is tried again.

Two versions of the program can use a database at the same time, because a migration only adds tables and columns
(expands). A later migration removes those that are no longer needed (contracts). It has the line `-- needs N`: programs
that do not know migration N refuse to open the database.

All tables of workspaces have row-level security, which their owner cannot bypass either. Units of work run as ROLE,
which owns no tables: a statement without its workspace sees no rows.
"""

from __future__ import annotations

import re
import time
from importlib import resources

import psycopg
from psycopg import errors, sql

from mcp_server.errors import Unavailable
from mcp_server.storage.postgres.connections import Address

SCHEMA = "context_manager"
ROLE = "context_manager_member"
SHARED_TABLES = frozenset({"workspace", "migration", "principal", "membership", "secret"})
"""Tables that all workspaces share. ROLE has no rights on them."""

LOCK_TIMEOUT = "500ms"
NEEDS = re.compile(r"^-- needs (\d+)$", re.MULTILINE)

PATIENCE = 60.0
"""Seconds for which a migration is retried while tables are locked or another replica migrates."""


def prepare(address: Address) -> int:
    """Updates the schema, creates the workspace of the address if it is missing, and returns the workspace's number.

    Raises Unavailable if the database cannot be opened. If the user may not create schema, extension or role, the
    message says what an administrator has to do.
    """
    until = time.monotonic() + PATIENCE
    while True:
        try:
            with psycopg.connect(address.connection, autocommit=True, connect_timeout=10) as connection:
                _migrate(connection)
                _check_known(connection, address)
                return _workspace(connection, address.workspace)
        except (
            errors.LockNotAvailable,
            errors.UniqueViolation,
            errors.DuplicateObject,
            errors.DuplicateTable,
            errors.DuplicateSchema,
            errors.InternalError_,
        ) as error:  # another replica is migrating
            if time.monotonic() > until:
                raise Unavailable(
                    f"{address.shown} stayed busy while its tables were brought up to date: {error}"
                ) from error
            time.sleep(0.1)
        except errors.InsufficientPrivilege as error:
            raise Unavailable(
                f"{address.shown}: {_line(error)}. An administrator of the database runs once: "
                f"CREATE EXTENSION vector; "
                f"CREATE ROLE {ROLE} NOLOGIN; GRANT {ROLE} TO <the user>; GRANT CREATE ON DATABASE <it> TO <the user>"
            ) from error
        except errors.UndefinedFile as error:
            raise Unavailable(
                f"{address.shown}: the server has no pgvector; install it there (pgvector 0.7 or newer)"
            ) from error
        except psycopg.Error as error:
            raise Unavailable(
                f"{address.shown} cannot be opened: {_line(error)}; check that the server runs, and the address, user "
                "and password (PGPASSWORD or ~/.pgpass)"
            ) from error


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


def _migrate(connection: psycopg.Connection) -> None:
    known = _files()
    if _number(connection) >= known[-1][0]:
        return
    with connection.transaction():
        connection.execute("SELECT set_config('lock_timeout', %s, true)", (LOCK_TIMEOUT,))
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
        connection.execute(f"SET LOCAL search_path = {SCHEMA}, public")
        connection.execute(
            "CREATE TABLE IF NOT EXISTS migration "
            "(number integer PRIMARY KEY, name text NOT NULL, at timestamptz NOT NULL DEFAULT now())"
        )
        connection.execute("LOCK TABLE migration IN EXCLUSIVE MODE")
        _make_role(connection)
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
    for number, name, text in known:
        with connection.transaction():
            connection.execute("SELECT set_config('lock_timeout', %s, true)", (LOCK_TIMEOUT,))
            connection.execute(f"SET LOCAL search_path = {SCHEMA}, public")
            connection.execute("LOCK TABLE migration IN EXCLUSIVE MODE")
            done = connection.execute("SELECT 1 FROM migration WHERE number = %s", (number,)).fetchone()
            if done is None:
                connection.execute(text)
                _secure(connection)
                connection.execute("INSERT INTO migration (number, name) VALUES (%s, %s)", (number, name))
                if needs := NEEDS.search(text):
                    connection.execute("UPDATE migration SET needs = %s WHERE number = %s", (int(needs[1]), number))


def _check_known(connection: psycopg.Connection, address: Address) -> None:
    """Raises Unavailable if a newer version of the program removed something that this version needs."""
    newest = _files()[-1][0]
    row = connection.execute(
        f"SELECT name FROM {SCHEMA}.migration WHERE needs > %s ORDER BY number LIMIT 1", (newest,)
    ).fetchone()
    if row is not None:
        raise Unavailable(
            f"{address.shown}: a newer version of the program has changed the tables ({row[0]}), and this version "
            "cannot work with them; install the newest one: pip install --upgrade 'context-manager-mcp[postgres]'"
        )


def _files() -> list[tuple[int, str, str]]:
    """Returns number, name and SQL of each migration, in order."""
    folder = resources.files("mcp_server.storage.postgres") / "migrations"
    found = [(one.name, one.read_text("utf-8")) for one in folder.iterdir() if one.name.endswith(".sql")]
    return sorted((int(name.partition("_")[0]), name, text) for name, text in found)


def _number(connection: psycopg.Connection) -> int:
    try:
        row = connection.execute(f"SELECT coalesce(max(number), 0) FROM {SCHEMA}.migration").fetchone()
    except (errors.UndefinedTable, errors.InvalidSchemaName):
        return 0
    return int(row[0]) if row else 0


def _make_role(connection: psycopg.Connection) -> None:
    """Creates ROLE without the right to bypass row-level security, and makes this user a member of it."""
    found = connection.execute("SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = %s", (ROLE,)).fetchone()
    if found is None:
        connection.execute(f"CREATE ROLE {ROLE} NOLOGIN NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE")
    elif found[0]:
        raise Unavailable(f"the role {ROLE} can bypass row-level security; ALTER ROLE {ROLE} NOSUPERUSER NOBYPASSRLS")
    member = connection.execute("SELECT pg_has_role(current_user, %s, 'SET')", (ROLE,)).fetchone()
    if member is None or not member[0]:
        connection.execute(f"GRANT {ROLE} TO CURRENT_USER")
    connection.execute(f"GRANT USAGE ON SCHEMA {SCHEMA} TO {ROLE}")


def _secure(connection: psycopg.Connection) -> None:
    """Gives ROLE its rights on every table of workspaces, and forces row-level security on tables without it."""
    tables = connection.execute(
        "SELECT relname, relforcerowsecurity FROM pg_class WHERE relnamespace = to_regnamespace(%s) AND relkind = 'r'",
        (SCHEMA,),
    ).fetchall()
    for name, forced in tables:
        if name in SHARED_TABLES or forced:
            continue
        table = sql.Identifier(name)
        for statement in (
            "ALTER TABLE {} ENABLE ROW LEVEL SECURITY",
            "ALTER TABLE {} FORCE ROW LEVEL SECURITY",
            "CREATE POLICY of_workspace ON {} USING (ws = nullif(current_setting('app.ws', true), '')::bigint)",
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON {{}} TO {ROLE}",
        ):
            connection.execute(sql.SQL(statement).format(table))


def _workspace(connection: psycopg.Connection, name: str) -> int:
    """Returns the number of a workspace, which is created if it is missing."""
    with connection.transaction():
        connection.execute(f"SET LOCAL search_path = {SCHEMA}, public")
        row = connection.execute("SELECT ws FROM workspace WHERE name = %s", (name,)).fetchone()
        if row is None:
            row = connection.execute(
                "INSERT INTO workspace (ws, name) SELECT coalesce(max(ws), 0) + 1, %s FROM workspace RETURNING ws",
                (name,),
            ).fetchone()
    assert row is not None
    return int(row[0])
