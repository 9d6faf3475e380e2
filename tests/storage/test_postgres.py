"""What a workspace on PostgreSQL promises beyond the ports: transactions, rights, the rules of the schema."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import LiteralString

import anyio
import anyio.lowlevel
import psycopg
import pytest
from anyio.to_thread import run_sync

from mcp_server.app import open_memory
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.errors import Conflict, NotFound, Unavailable
from mcp_server.model import Caller
from mcp_server.search.query import parse_query
from mcp_server.storage.local.index.index import Scan
from mcp_server.storage.postgres import locks, migrate, postings
from mcp_server.storage.postgres.connections import CONNECTIONS, parse
from mcp_server.storage.postgres.database import Connection
from mcp_server.storage.postgres.files import TeamFiles
from mcp_server.storage.postgres.migrate import ROLE, SCHEMA, SHARED_TABLES, prepare
from mcp_server.storage.postgres.opening import TeamStorage, open_storage
from mcp_server.storage.values import Change
from tests.conftest import KEYWORDS_ONLY
from tests.postgres import server
from tests.searching import candidates_of, values_of
from tests.storage.fingerprint import assert_as_rebuilt
from tests.storage.index.conftest import HashEmbedder

pytestmark = pytest.mark.anyio
AT = datetime(2026, 2, 16, tzinfo=UTC)


@pytest.fixture
async def storage(address: str) -> AsyncIterator[TeamStorage]:
    async with open_storage(address) as storage:
        yield storage


# ---------------------------------------------------------------- units of work


async def test_files_and_state_of_a_unit_of_work_are_stored_together_or_not_at_all(address: str) -> None:
    async with open_storage(address) as one, open_storage(address) as two:
        with suppress(KeyError):
            async with one.locks.transcript("s"):
                await run_sync(one.files.write_atomic, "raw/s.md", "turn")
                await one.state.put("n", "k", 1)
                assert one.files.read_text("raw/s.md") == "turn"
                assert not two.files.exists("raw/s.md")
                raise KeyError("killed here")
        assert not two.files.exists("raw/s.md")
        assert await two.state.get("n", "k") is None
        async with one.locks.transcript("s"):
            await run_sync(one.files.write_atomic, "raw/s.md", "turn")
            await one.state.put("n", "k", 1)
        assert two.files.exists("raw/s.md")
        assert await two.state.get("n", "k") == 1


async def test_a_failed_inner_block_is_dropped_and_the_outer_one_is_kept(storage: TeamStorage) -> None:
    async with storage.locks.transcript("s"):
        storage.files.write_atomic("raw/s.md", "turn")
        with suppress(KeyError):
            async with storage.locks.files():
                storage.files.write_atomic("knowledge/a.md", "fact")
                raise KeyError("inner")
        async with storage.locks.files():
            storage.files.write_atomic("knowledge/b.md", "fact")
    assert [found.path for found in storage.files.walk()] == ["knowledge/b.md", "raw/s.md"]


async def test_a_unit_of_work_with_a_failed_statement_is_dropped_as_a_whole(storage: TeamStorage) -> None:
    def refused(connection: Connection) -> None:
        connection.execute("SELECT 1 / 0")

    async def act() -> None:
        async with storage.locks.transcript("s"):
            storage.files.write_atomic("raw/s.md", "turn")
            with suppress(Unavailable):
                storage.database.run(refused)

    with pytest.raises(Unavailable, match="nothing was stored"):
        await act()
    assert not storage.files.exists("raw/s.md")


async def test_tasks_that_a_unit_of_work_starts_belong_to_it(storage: TeamStorage) -> None:
    async with storage.locks.transcript("s"):
        async with anyio.create_task_group() as tasks:
            for number in range(10):
                tasks.start_soon(run_sync, partial(storage.files.write_atomic, f"raw/{number}.md", "x"))
        assert len(list(storage.files.walk("raw"))) == 10


async def test_change_notices_reach_other_processes_after_the_commit(address: str) -> None:
    async with open_storage(address) as one, open_storage(address) as two, two.changes.listen() as changes:
        with suppress(KeyError):
            async with one.locks.transcript("s"):
                one.changes.publish(Change("turn", "raw/dropped.md", "s"))
                raise KeyError("dropped")
        async with one.locks.transcript("s"):
            one.changes.publish(Change("turn", "raw/s.md", "s"))
            one.files.write_atomic("raw/s.md", "turn")
        with anyio.fail_after(60):
            assert await changes.receive() == Change("turn", "raw/s.md", "s")
        assert two.files.exists("raw/s.md")


def end_connections(address: str, which: LiteralString) -> None:
    """Makes the server end these connections to a database."""
    with psycopg.connect(address, autocommit=True) as administrator:
        administrator.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND " + which
        )


async def test_a_connection_that_the_server_ended_is_replaced(address: str, storage: TeamStorage) -> None:
    storage.files.write_atomic("a.md", "x")
    end_connections(address, "pid <> pg_backend_pid()")
    assert storage.files.read_text("a.md") == "x"


async def test_a_cut_connection_ends_its_unit_of_work_and_frees_its_lock(address: str) -> None:
    async def act(storage: TeamStorage) -> None:
        async with storage.locks.transcript("s"):
            storage.files.write_atomic("raw/s.md", "turn")
            end_connections(address, "state = 'idle in transaction'")
            storage.files.write_atomic("raw/t.md", "turn")

    async with open_storage(address) as one, open_storage(address) as two:
        with pytest.raises(Unavailable):
            await act(one)
        with anyio.fail_after(60):
            async with two.locks.transcript("s"):
                assert not two.files.exists("raw/s.md")
        one.files.write_atomic("raw/s.md", "turn again")


async def test_after_a_crash_of_the_server_all_that_was_acknowledged_is_there(storage: TeamStorage) -> None:
    acknowledged: list[str] = []
    for round_ in range(2):
        for number in range(5):
            async with storage.locks.transcript("s"):
                storage.files.write_atomic(f"raw/{round_}-{number}.md", "turn")
                await storage.state.put("n", f"{round_}-{number}", number)
            acknowledged.append(f"raw/{round_}-{number}.md")
        await run_sync(server().restart)
    assert sorted(found.path for found in storage.files.walk()) == sorted(acknowledged)
    assert len(await storage.state.keys_of("n")) == len(acknowledged)


async def test_many_sessions_at_once_leave_connections_for_other_calls(storage: TeamStorage) -> None:
    async def record(number: int) -> None:
        async with storage.locks.transcript(f"s{number}"):
            await run_sync(storage.files.write_atomic, f"raw/{number}.md", "turn")
            await anyio.sleep(0.01)
            async with storage.locks.files():
                storage.files.write_atomic(f"knowledge/{number}.md", "fact")

    async def remember(number: int) -> None:
        async with storage.locks.files():
            storage.files.write_atomic(f"knowledge/x{number}.md", "fact")

    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            for number in range(40):
                tasks.start_soon(record, number)
                tasks.start_soon(remember, number)
            for number in range(40):
                storage.files.exists(f"raw/{number}.md")  # on the event loop: it must not wait for the units
                await anyio.lowlevel.checkpoint()
    assert len(list(storage.files.walk())) == 120


# ---------------------------------------------------------------- leases


async def test_a_lease_that_nobody_renews_ends_and_its_holder_learns_it(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "LEASE_SECONDS", 0.3)
    monkeypatch.setattr(locks, "RENEW_SECONDS", 1.0)
    async with open_storage(address) as one, open_storage(address) as two:
        paused = await run_sync(one.locks.try_maintainer)
        assert paused is not None
        taken = None
        with anyio.fail_after(60):
            while taken is None:
                taken = await run_sync(two.locks.try_maintainer)
                await anyio.sleep(0.05)
            assert taken.fence > paused.fence
            while True:
                if paused.lost:
                    break
                await anyio.sleep(0.05)
        taken.release()


# ---------------------------------------------------------------- history


async def test_earlier_versions_of_documents_are_kept(storage: TeamStorage) -> None:
    history = storage.history(lambda: datetime.now(UTC))
    for text in ("one", "two", "three"):
        storage.files.write_atomic("knowledge/a.md", text)
    storage.files.write_atomic("raw/s.md", "turn")
    storage.files.write_atomic("raw/s.md", "turns")
    found = history.versions(["knowledge"], 10)
    assert [(one.path, history.blob(one.blob)) for one in found] == [
        ("knowledge/a.md", text) for text in (b"three", b"two", b"one")
    ]
    assert history.show("knowledge/a.md", "v2") == "two"
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).date().isoformat()
    assert history.show("knowledge/a.md", tomorrow) == "three"
    with pytest.raises(NotFound, match="no version"):
        history.show("knowledge/a.md", "2020-01-01")
    storage.files.remove("knowledge/a.md")
    assert history.show("knowledge/a.md", "v3") == "three"
    storage.files.write_atomic("knowledge/a.md", "four", new=True)
    assert history.show("knowledge/a.md", "v5") == "four"
    assert storage.database.rows("SELECT version FROM file_version WHERE ws = %s AND path = %s", "raw/s.md") == [(2,)]
    with pytest.raises(Unavailable, match="no git repository"):
        _ = history.tags


async def test_two_writers_of_one_document_conflict(address: str) -> None:
    async with open_storage(address) as one, open_storage(address) as two:
        one.files.write_atomic("knowledge/a.md", "zero")
        done: list[str] = []

        async def write(storage: TeamStorage, text: str) -> None:
            with suppress(Conflict):
                await run_sync(storage.files.write_atomic, "knowledge/a.md", text, "zero")
                done.append(text)

        async with anyio.create_task_group() as tasks:
            for number in range(6):
                tasks.start_soon(write, (one, two)[number % 2], str(number))
        assert done == [one.files.read_text("knowledge/a.md")]


# ---------------------------------------------------------------- the index


async def test_postings_are_merged_into_blocks_and_deleted_ones_leave_them(
    storage: TeamStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postings, "MERGE_AT", 5)
    monkeypatch.setattr(postings, "CLEAR_AT", 3)
    monkeypatch.setattr(postings, "BLOCK", 4)
    index = storage.index(None, "none", 0)

    async def found() -> list[str]:
        candidates = await candidates_of(index, parse_query("crane", AT))
        return sorted(one.path for one in values_of(candidates))

    for number in range(14):
        storage.files.write_atomic(f"knowledge/reference/{number:02d}.md", f"The crane number {number}.\n")
        await index.refresh()
    assert len(await found()) == 14
    for number in range(0, 14, 2):
        storage.files.remove(f"knowledge/reference/{number:02d}.md")
        await index.refresh()
        assert len(await found()) == 14 - number // 2 - 1
    for number in range(1, 14, 2):
        storage.files.write_atomic(f"knowledge/reference/{number:02d}.md", f"A ship, a crane, {number}.\n")
    await index.refresh()
    assert await found() == [f"knowledge/reference/{number:02d}.md" for number in range(1, 14, 2)]
    rows = storage.database.run(
        lambda connection: connection.execute(
            "SELECT max(n), sum(n) FROM posting_block UNION ALL SELECT NULL, count(*) FROM posting_gone"
        ).fetchall()
    )
    assert rows[0][0] <= 4
    assert rows[1][1] < 3


async def test_the_files_are_searched_before_they_are_indexed(storage: TeamStorage) -> None:
    index = storage.index(None, "none", 0, scan=lambda files, read: Scan(files, read).search)
    storage.files.write_atomic("knowledge/a.md", "The crane.\n")
    found = await candidates_of(index, parse_query("cranes", AT))
    assert (found.used, [one.text for one in found.found]) == ("scan", ["The crane."])
    await index.refresh()
    assert (await candidates_of(index, parse_query("cranes", AT))).used == "keyword"


async def test_passages_are_embedded_later_if_there_was_no_embedder(storage: TeamStorage) -> None:
    storage.files.write_atomic("knowledge/a.md", "The crane.\n")
    await storage.index(None, "hash", 32).refresh()
    index = storage.index(HashEmbedder(), "hash", 32)
    await index.refresh()
    assert (await index.status()).not_embedded == 0
    await assert_as_rebuilt(index)


async def test_a_file_that_changed_while_it_was_indexed_is_indexed_again(storage: TeamStorage) -> None:
    index = storage.index(None, "none", 0)
    storage.files.write_atomic("knowledge/a.md", "The crane.\n")
    batch = index._batch(iter(["knowledge/a.md"]))
    storage.files.write_atomic("knowledge/a.md", "The ship.\n")
    index._write_batch(batch)
    assert (await index.status()).state == "building"
    await index.refresh()
    assert (await index.status()).state == "ready"
    assert [one.matched for one in values_of(await candidates_of(index, parse_query("ship", AT)))] == [1]


# ---------------------------------------------------------------- rights and the schema


@pytest.fixture(scope="module")
def administrator() -> Iterator[psycopg.Connection]:
    """A connection that sees the schema. Tests only read it."""
    address = server().new_database()
    prepare(parse(address))
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(f"SET search_path = {SCHEMA}, public")
        yield connection


def tables(administrator: psycopg.Connection) -> list[str]:
    rows = administrator.execute(
        "SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace(%s) AND relkind IN ('r', 'p') ORDER BY 1",
        (SCHEMA,),
    )
    return [name for (name,) in rows if name not in SHARED_TABLES]


async def test_of_a_transcript_that_grew_only_the_new_part_is_read(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    bytes_of = TeamFiles.bytes_of

    def counted(files: TeamFiles, connection: Connection, path: str, start: int = 0) -> bytes:
        data = bytes_of(files, connection, path, start)
        read.append(len(data))
        return data

    monkeypatch.setattr(TeamFiles, "bytes_of", counted)
    async with open_memory(address, KEYWORDS_ONLY) as memory:
        for number in range(20):
            await observe(memory, NewTurn("user", f"The crane lifts {number} tons.", "s"), Caller("library"))
        await memory.index.refresh()
        whole = read[-1]
        await observe(memory, NewTurn("user", "The crane is repaired in May.", "s"), Caller("library"))
        await memory.index.refresh()
        assert read[-1] < whole / 10
        assert await memory.index.last_turn("s") == 21
        row = await memory.state.session("s")
        assert row is not None
        text = memory.files.read_text(row.path)
        memory.files.write_atomic(row.path, text.replace("crane", "winch"))
        await memory.index.refresh()
        assert read[-1] == len(text.encode())
        await assert_as_rebuilt(memory.index)


def test_every_key_begins_with_the_workspace(administrator: psycopg.Connection) -> None:
    rows = administrator.execute(
        "SELECT c.conrelid::regclass::text, c.contype, "
        "(SELECT attname FROM pg_attribute WHERE attrelid = c.conrelid AND attnum = c.conkey[1]), "
        "(SELECT attname FROM pg_attribute WHERE attrelid = c.confrelid AND attnum = c.confkey[1]) "
        "FROM pg_constraint c WHERE c.connamespace = to_regnamespace(%s) AND c.contype IN ('p', 'u', 'f', 'x')",
        (SCHEMA,),
    ).fetchall()
    keys = [row for row in rows if row[0] not in SHARED_TABLES]
    assert {table for table, kind, *_ in keys if kind == "p"} == set(tables(administrator))
    assert [row for row in keys if row[2] != "ws" or row[3] not in (None, "ws")] == []
    indexes = administrator.execute(
        "SELECT i.indexrelid::regclass::text, (SELECT attname FROM pg_attribute WHERE attrelid = i.indrelid "
        "AND attnum = i.indkey[0]) FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid "
        "WHERE c.relnamespace = to_regnamespace(%s) AND c.relname <> ALL(%s)",
        (SCHEMA, list(SHARED_TABLES)),
    ).fetchall()
    assert [row for row in indexes if row[1] != "ws"] == []


def test_no_table_has_a_trigger_an_identity_a_rule_or_a_sequence(administrator: psycopg.Connection) -> None:
    of_schema = "JOIN pg_class c ON c.oid = {} WHERE c.relnamespace = to_regnamespace(%s)"
    for statement in (
        f"SELECT tgname FROM pg_trigger t {of_schema.format('t.tgrelid')} AND NOT t.tgisinternal",
        f"SELECT attname FROM pg_attribute a {of_schema.format('a.attrelid')} AND a.attidentity <> ''",
        f"SELECT rulename FROM pg_rewrite r {of_schema.format('r.ev_class')}",
        "SELECT relname FROM pg_class c WHERE c.relnamespace = to_regnamespace(%s) AND c.relkind = 'S'",
    ):
        assert administrator.execute(statement, (SCHEMA,)).fetchall() == []


def test_every_workspace_column_is_a_number_and_never_null(administrator: psycopg.Connection) -> None:
    rows = administrator.execute(
        "SELECT table_name FROM information_schema.columns WHERE table_schema = %s AND column_name = 'ws' "
        "AND data_type = 'bigint' AND is_nullable = 'NO'",
        (SCHEMA,),
    ).fetchall()
    assert {name for (name,) in rows} - SHARED_TABLES == set(tables(administrator))


def test_row_level_security_is_forced_on_every_table(administrator: psycopg.Connection) -> None:
    rows = administrator.execute(
        "SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace(%s) AND relkind = 'r' "
        "AND relrowsecurity AND relforcerowsecurity",
        (SCHEMA,),
    ).fetchall()
    assert {name for (name,) in rows} == set(tables(administrator))
    found = administrator.execute(
        "SELECT rolsuper, rolbypassrls, rolcanlogin FROM pg_roles WHERE rolname = %s", (ROLE,)
    ).fetchone()
    assert found == (False, False, False)


def test_a_statement_without_a_workspace_sees_and_writes_nothing(address: str) -> None:
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(f"SET search_path = {SCHEMA}, public")
        connection.execute("INSERT INTO entry VALUES (1, 'n', 'k', '1'), (2, 'n', 'k', '2')")
        connection.execute(f"SET ROLE {ROLE}")
        assert connection.execute("SELECT * FROM entry").fetchall() == []
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("INSERT INTO entry VALUES (1, 'n', 'l', '1')")
        connection.execute("SET app.ws = '1'")
        assert connection.execute("SELECT value FROM entry").fetchall() == [("1",)]
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("INSERT INTO entry VALUES (2, 'n', 'l', '1')")
        assert connection.execute("UPDATE entry SET value = '3' WHERE ws = 2").rowcount == 0
        for table in SHARED_TABLES:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(f"SELECT * FROM {table}")


async def test_a_user_without_special_rights_can_use_a_prepared_database(address: str) -> None:
    prepare(parse(address))
    with psycopg.connect(address, autocommit=True) as administrator:
        administrator.execute("DROP ROLE IF EXISTS plain")
        administrator.execute(f"CREATE ROLE plain LOGIN IN ROLE {ROLE}")
        administrator.execute(f"GRANT SELECT ON {SCHEMA}.migration TO plain")
        administrator.execute(f"GRANT SELECT, INSERT ON {SCHEMA}.workspace TO plain")
    async with open_storage(address.replace("postgres@", "plain@")) as storage:
        storage.files.write_atomic("a.md", "x")
        assert storage.files.read_text("a.md") == "x"
    with psycopg.connect(address, autocommit=True) as administrator:
        administrator.execute("DROP OWNED BY plain; DROP ROLE plain")


def test_a_program_that_does_not_know_what_was_taken_away_refuses_the_tables(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = migrate._files()
    gone = (1001, "1001_gone.sql", "-- needs 1000\nALTER TABLE entry DROP COLUMN value")
    newer = [*files, (1000, "1000_added.sql", "ALTER TABLE entry ADD COLUMN json jsonb"), gone]
    with monkeypatch.context() as patched:
        patched.setattr(migrate, "_files", lambda: newer[:-1])
        prepare(parse(address))
    prepare(parse(address))
    with monkeypatch.context() as patched:
        patched.setattr(migrate, "_files", lambda: newer)
        prepare(parse(address))
    with pytest.raises(Unavailable, match=r"newer version .* \(1001_gone.sql\).* pip install --upgrade"):
        prepare(parse(address))
    monkeypatch.setattr(migrate, "_files", lambda: newer[:-1])
    prepare(parse(address))


def test_a_migration_that_takes_something_away_says_which_programs_can_work_with_the_rest() -> None:
    takes = re.compile(r"\b(DROP|RENAME|SET NOT NULL|TYPE)\b", re.IGNORECASE)
    silent = [name for _, name, text in migrate._files() if takes.search(text) and not migrate.NEEDS.search(text)]
    assert silent == []


async def test_replicas_that_start_together_prepare_an_empty_database_once() -> None:
    with psycopg.connect(server().address("postgres"), autocommit=True) as administrator:
        administrator.execute(f"CREATE DATABASE empty_{time.time_ns()}")
        row = administrator.execute("SELECT datname FROM pg_database WHERE datname LIKE 'empty%'").fetchone()
    assert row is not None
    numbers: list[int] = []

    async def start() -> None:
        numbers.append(await run_sync(prepare, parse(server().address(row[0]))))

    async with anyio.create_task_group() as tasks:
        for _ in range(6):
            tasks.start_soon(start)
    assert numbers == [1] * 6


async def test_the_workspaces_of_a_process_share_its_connections_and_close_them(address: str) -> None:
    select = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    with psycopg.connect(address, autocommit=True) as administrator:

        def connections() -> int:
            row = administrator.execute(select).fetchone()
            assert row is not None
            return int(row[0])

        async with AsyncExitStack() as stack:
            several = [
                await stack.enter_async_context(open_storage(f"{address}&workspace=w{number}")) for number in range(20)
            ]
            async with anyio.create_task_group() as tasks:
                for storage in several:
                    tasks.start_soon(storage.state.name_directory, "/folder", "id")
            assert 2 <= connections() <= CONNECTIONS + 1
        assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("change ")]
        with anyio.fail_after(60):
            while connections():  # noqa: ASYNC110 - PostgreSQL gives us no event
                await anyio.sleep(0.05)
