"""What happens to a team's memory if processes, connections or the server fail: nothing acknowledged is lost or
doubled, and every wait ends."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import anyio
import httpx2
import psycopg
import pytest
from anyio.to_thread import run_sync

from mcp_server.app import open_memory
from mcp_server.conversations import sessions
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.errors import Unavailable
from mcp_server.history.committing import export_history
from mcp_server.model import Caller
from mcp_server.search.search import SearchRequest, search
from mcp_server.storage.ports import Held, Locks
from mcp_server.storage.postgres import database, migrate
from mcp_server.storage.postgres.connections import parse
from mcp_server.storage.postgres.database import Connection
from mcp_server.storage.postgres.locks import Lease
from mcp_server.storage.postgres.opening import open_storage
from tests.conftest import KEYWORDS_ONLY
from tests.end_to_end.replicas import http_client, operator, posted, replicas, turns_by_writer
from tests.holding import holding
from tests.issuing import AUDIENCE, issuer
from tests.postgres import server, tables
from tests.preloaded import python

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).parent.parent.parent
TURNS = int(os.environ.get("CM_TEAM_TURNS", "60")) // 2
WRITERS = ("anna", "bert", "cleo", "dirk")
KILLS = int(os.environ.get("CM_TEAM_KILLS", "2"))


@pytest.fixture
def address() -> str:
    return server().new_memory()


def started(
    module: str, *arguments: str, stdin: int | None = None, pid_file: Path | None = None
) -> subprocess.Popen[str]:
    command, pipe = python("-m", module, *arguments, pid_file=pid_file), subprocess.PIPE
    return subprocess.Popen(command, stdin=stdin, stdout=pipe, stderr=pipe, text=True, cwd=ROOT)


def writers(address: str) -> list[subprocess.Popen[str]]:
    """Two processes that write TURNS turns each into one session. Returns when both have begun."""
    found = [started("tests.storage.team_writer", address, "ses_team", name, "0", str(TURNS)) for name in ("a", "b")]
    for one in found:
        assert one.stdout is not None
        assert one.stdout.readline() == "0\n"
    return found


async def written(address: str, running: list[subprocess.Popen[str]]) -> float:
    """Waits for the writers and checks the session: every turn once, in order, without gaps. Returns the longest time
    of a turn."""
    waits = []
    for one in running:
        _, said = await run_sync(one.communicate)
        assert one.returncode == 0, said
        waits.append(float(said.split()[-1]))
    await turns_by_writer(address, ("a", "b"), TURNS)
    print("longest turn", max(waits))
    return max(waits)


async def test_a_crash_of_the_server_while_two_replicas_write_loses_and_doubles_nothing(address: str) -> None:
    running = await run_sync(writers, address)
    await run_sync(server().restart)
    await anyio.sleep(0.5)
    await run_sync(server().restart)
    assert await written(address, running) < 60


async def test_a_newer_version_expands_all_tables_while_this_one_writes_and_nothing_is_lost_or_doubled(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [name for name, _ in tables(address)]
    files = migrate._files()
    later = [
        (1000 + at, f"{1000 + at}.sql", f"ALTER TABLE {name} ADD COLUMN later text NOT NULL DEFAULT ''")
        for at, name in enumerate(names)
    ]
    running = await run_sync(writers, address)
    with monkeypatch.context() as newer:
        for at in range(len(later)):
            newer.setattr(migrate, "_files", lambda at=at: [*files, *later[: at + 1]])
            await run_sync(migrate.prepare, parse(address))
    assert await written(address, running) < 60
    with psycopg.connect(address) as connection:
        (added,) = connection.execute("SELECT count(*) FROM pg_attribute WHERE attname = 'later'").fetchone() or (0,)
    assert added == len(names)
    async with open_memory(address, KEYWORDS_ONLY) as memory:  # this version starts again on the newer tables
        await memory.index.refresh()
        found = await search(memory, SearchRequest("a says 7"))
        assert "a says 7" in [hit.passage.text for hit in found.hits]


@contextmanager
def paused_holder(address: str, pid_file: Path, kind: str, *more: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Yields a replica that works under the maintainer's lease and was paused in the middle, and its fencing number."""
    holder = started("tests.storage.lease_holder", address, "1", kind, *more, stdin=subprocess.PIPE, pid_file=pid_file)
    assert holder.stdout is not None
    try:
        fence = int(holder.stdout.readline())
        if kind != "wait":
            assert holder.stdout.readline() == "in the middle\n"
        send(pid_file, signal.SIGSTOP)
        yield holder, fence
    finally:
        send(pid_file, signal.SIGKILL)
        holder.communicate()


async def taken_over(locks: Locks) -> Held:
    """Returns the maintainer's lease when the one of another process has ended."""
    with anyio.fail_after(60):
        while (taken := await run_sync(locks.try_maintainer)) is None:  # noqa: ASYNC110 - the lease is in the database
            await anyio.sleep(0.05)
    return taken


def send(pid_file: Path, number: signal.Signals) -> None:
    """Sends a signal to a replica, unless it has ended."""
    with suppress(ProcessLookupError):
        os.kill(int(pid_file.read_text()), number)


async def said_after_the_pause(holder: subprocess.Popen[str], pid_file: Path) -> str:
    """Lets a paused replica go on, and returns what it says at the end of its work."""
    assert holder.stdin is not None
    assert holder.stdout is not None
    holder.stdin.write("\n")
    holder.stdin.flush()
    send(pid_file, signal.SIGCONT)
    with anyio.fail_after(60):
        return await run_sync(holder.stdout.readline, abandon_on_cancel=True)


async def test_a_paused_replica_learns_that_another_has_taken_its_lease(address: str, tmp_path: Path) -> None:
    with paused_holder(address, tmp_path / "pid", "wait") as (holder, fence):
        async with open_storage(address) as storage:
            taken = await taken_over(storage.locks)
            assert isinstance(taken, Lease)
            assert taken.fence == fence + 1
            assert await said_after_the_pause(holder, tmp_path / "pid") == "lost\n"
            assert not taken.lost
            taken.release()


@pytest.mark.parametrize("kind", ["file", "state", "index", "git"])
async def test_what_a_paused_replica_writes_after_another_has_taken_over_is_refused_by_its_fencing_number(
    address: str, kind: str, tmp_path: Path
) -> None:
    settings = {**KEYWORDS_ONLY, "CONTEXT_MANAGER_GIT__EXPORT_FOLDER": str(tmp_path / "git")}
    async with open_memory(address, settings) as memory:
        await memory.index.refresh()
        async with memory.locks.files():
            memory.files.write_atomic("knowledge/people/people.md", "# People\n\nAna moors at the old quay.\n")
        with paused_holder(address, tmp_path / "pid", kind, str(tmp_path / "git")) as (holder, fence):
            taken = await taken_over(memory.locks)
            before = dict(tables(address))
            said = await said_after_the_pause(holder, tmp_path / "pid")
            assert f"another process has taken over this work (lease 'maintainer', number {fence})" in said
            changed = [name for name, rows in tables(address) if rows != before[name]]
            assert set(changed) <= {"lease", "counter", "change"}  # these change while processes are open
        with taken:  # and what was refused can be done by the process that has the lease now
            if kind == "index":
                assert await memory.index.refresh() == 1
            elif kind == "git":
                await export_history(memory)
                log = ["git", "-C", str(tmp_path / "git" / "main.git"), "log", "--format=%s", "--", "knowledge/people"]
                subjects = (await run_sync(subprocess.check_output, log)).splitlines()
                assert subjects  # two versions may lie in two commits, none in both
                assert len(subjects) == len(set(subjects))
            else:
                await memory.state.put("late", "key", "written by the new one")
        assert holding(address, "the paused one") == []


async def test_turns_go_on_while_a_replica_behind_the_proxy_is_killed_and_none_is_lost_or_doubled(
    tmp_path: Path,
) -> None:
    """Writers send a call that was not answered again, with the same `turn_id`. The proxy does not know who is dead."""
    address = server().new_database()
    acknowledged: dict[str, int] = {}
    unanswered: list[type[Exception]] = []
    stored_unanswered = 0
    with issuer() as login, replicas(address, tmp_path, login.environment()) as two:
        await run_sync(operator, address, "quay", login.url, "members", "add", "ana")

        async def write(name: str) -> None:
            nonlocal stored_unanswered
            url = f"{AUDIENCE}/quay"
            async with http_client(two, login.token("ana")) as http:
                for number in range(TURNS):
                    said = f"{name} says {number}"
                    turn = {"role": "user", "content": said, "session": "ses_team", "turn_id": f"{name}-{number}"}
                    while said not in acknowledged:
                        try:
                            answer = await posted(http, url, "tools/call", name="observe", arguments=turn)
                        except httpx2.TransportError as error:
                            unanswered.append(type(error))
                            await anyio.sleep(0.05)
                            continue
                        found = re.search(r"^turn (\d+) ", str(answer["result"]["content"][0]["text"]), re.MULTILINE)
                        assert found, answer
                        acknowledged[said] = int(found[1])
                        stored_unanswered += "already recorded" in str(answer)

        async def more(turns: int) -> None:
            until = min(len(acknowledged) + turns, len(WRITERS) * TURNS)
            while len(acknowledged) < until:  # noqa: ASYNC110 - several tasks fill it
                await anyio.sleep(0.01)

        with anyio.fail_after(60 + 10 * KILLS + TURNS):
            async with anyio.create_task_group() as tasks:
                for name in WRITERS:
                    tasks.start_soon(write, name)
                for kill in range(KILLS):
                    await more(len(WRITERS) * TURNS // (2 * KILLS + 1))
                    two[kill % 2].kill()
                    await more(2 * len(WRITERS))  # by the other one alone
                    await run_sync(two[kill % 2].start_again)
    print(dict(Counter(unanswered)), "of which", stored_unanswered, "had been stored")
    assert unanswered
    turns = await turns_by_writer(f"{address}&workspace=quay", WRITERS, TURNS)
    assert {turn.content: turn.number for turn in turns} == acknowledged


class Wire:
    """A connection to the server in between, which can lose the answer to a commit, or stop passing anything on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.text: bytes | None = None
        """The answer to the commit of the transaction that has this text is lost."""
        self.silent = False
        self.lost = 0
        self._over = False
        self._all: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(folder / ".s.PGSQL.5432"))
        self._socket.listen(50)
        self._start(self._accept)

    def close(self) -> None:
        self._over = True
        for one in (self._socket, *self._all):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for one in (self._socket, *self._all):
            one.close()

    def _start(self, function: Callable[..., None], *arguments: object) -> None:
        self._threads.append(threading.Thread(target=function, args=arguments, daemon=True))
        self._threads[-1].start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                here, _ = self._socket.accept()
                there = socket.socket(socket.AF_UNIX)
                self._all += [here, there]
                there.connect(str(server().folder / ".s.PGSQL.5432"))
                armed = threading.Event()
                self._start(self._pass_on, here, there, armed, True)
                self._start(self._pass_on, there, here, armed, False)

    def _pass_on(self, source: socket.socket, target: socket.socket, armed: threading.Event, asking: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                while self.silent and not self._over:
                    time.sleep(0.02)
                if asking and self.text is not None and self.text in data:
                    self.text = None
                    armed.set()
                if not asking and armed.is_set() and b"COMMIT\0" in data:
                    self.lost += 1
                    break
                target.sendall(data)
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def wire() -> Iterator[Wire]:
    import shutil
    import tempfile

    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    wire = Wire(folder)
    yield wire
    wire.close()
    shutil.rmtree(folder)


async def test_a_message_whose_commit_was_not_answered_is_recorded_once(address: str, wire: Wire) -> None:
    through = address.replace(str(server().folder), str(wire.folder))
    async with open_memory(through, KEYWORDS_ONLY) as memory:
        await observe(memory, NewTurn("user", "Hello", "s", turn_id="m0"), Caller("library"))
        for number in range(1, 6):
            turn = NewTurn("user", f"The crane lifts {number} tons.", "s", turn_id=f"m{number}")
            wire.text = f"lifts {number} tons".encode()
            with pytest.raises(Unavailable):
                await observe(memory, turn, Caller("library"))
            again = await observe(memory, turn, Caller("library"))
            assert (again.turn, again.recorded) == (number + 1, False)
        assert wire.lost == 5
        turns = await sessions.session_turns(memory, "s")
    assert [turn.content for turn in turns] == ["Hello", *(f"The crane lifts {number} tons." for number in range(1, 6))]


async def test_a_silent_connection_loses_its_lock_and_the_next_one_continues(
    address: str, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "IDLE_SECONDS", 1)
    through = address.replace(str(server().folder), str(wire.folder))
    async with open_storage(through) as cut, open_storage(address) as other:

        async def write() -> None:
            async with cut.locks.transcript("s"):
                cut.files.write_atomic("raw/s.md", "never stored")
                wire.silent = True
                begun = time.monotonic()
                with anyio.fail_after(60):
                    async with other.locks.transcript("s"):
                        assert not other.files.exists("raw/s.md")
                        other.files.write_atomic("raw/s.md", "stored")
                print("waited", time.monotonic() - begun)
                wire.silent = False

        with pytest.raises(Unavailable):
            await write()
        assert cut.files.read_text("raw/s.md") == "stored"


async def test_a_statement_that_takes_too_long_is_ended_with_a_sentence(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "STATEMENT_SECONDS", 1)
    async with open_storage(address) as storage:
        with anyio.fail_after(30), pytest.raises(Unavailable, match="took too long"):
            await storage.database.call(lambda connection: connection.execute("SELECT pg_sleep(60)"))
        storage.files.write_atomic("a.md", "x")


async def test_transactions_that_wait_for_each_other_are_run_again(address: str) -> None:
    async with open_storage(address) as one, open_storage(address) as two:
        for path in ("a.md", "b.md"):
            one.files.write_atomic(path, "0")

        async def count(storage: database.Database, first: str, second: str) -> None:
            def add(connection: Connection) -> None:
                for path in (first, second):
                    connection.execute(
                        "UPDATE file SET size = size + 1 WHERE ws = %s AND path = %s", (storage.ws, path)
                    )
                    time.sleep(0.05)

            for _ in range(5):
                await storage.call(add)

        with anyio.fail_after(120):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(count, one.database, "a.md", "b.md")
                tasks.start_soon(count, two.database, "b.md", "a.md")
        assert [one.files.stat(path).size for path in ("a.md", "b.md")] == [11, 11]
