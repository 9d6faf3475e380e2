"""Live state: what no file holds, in a database that may be lost."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from mcp_server.conversations.source_keys import TurnKey
from mcp_server.errors import Unavailable
from mcp_server.storage.local.locks import Locks
from mcp_server.storage.local.state import LocalState, count_conversations
from mcp_server.storage.values import SessionRow
from tests.preloaded import python

pytestmark = pytest.mark.anyio

AT = datetime(2026, 2, 16, 18, 45, 3, 120_000, tzinfo=UTC)
ROW = SessionRow("s", "raw/s.md", "open", "name:atlas", None, "replace", "Title", AT, AT, 2, None, 512)

READ_AND_CLOSE = """\
import sys
from mcp_server.storage.sqlite import driver
connection = driver().module.connect(sys.argv[1])
print(connection.execute("SELECT count(*) FROM sessions").fetchone()[0])
connection.close()
"""


async def opened(folder: Path) -> LocalState:
    return await LocalState.open(folder / "state.db", Locks(folder))


def sessions_in_another_process(folder: Path) -> int:
    """Opens the file in another process, counts the sessions, and closes it."""
    command = python("-c", READ_AND_CLOSE, str(folder / "state.db"))
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


async def test_counting_conversations_in_a_process_that_has_the_state_open_loses_nothing_that_it_stores_later(
    tmp_path: Path,
) -> None:
    state = await opened(tmp_path)
    assert count_conversations(tmp_path) == (0, "")
    assert sessions_in_another_process(tmp_path) == 0  # it must not delete the write-ahead log
    await state.save_session(ROW, [])
    assert sessions_in_another_process(tmp_path) == 1
    await state.close()


async def test_a_damaged_file_is_moved_aside_and_replaced(tmp_path: Path) -> None:
    (tmp_path / "state.db").write_bytes(b"this is no database" * 500)
    state = await opened(tmp_path)
    (aside,) = state.file.moved_aside()
    assert aside.read_bytes().startswith(b"this is no database")
    other = await opened(tmp_path)  # another process, which did not find it
    assert aside.name in (other.damage or "")
    await other.close()
    assert not await state.complete()
    await state.completed()
    assert await state.complete()
    await state.close()


async def test_two_processes_see_that_the_other_wrote(tmp_path: Path) -> None:
    one, two = await opened(tmp_path), await opened(tmp_path)
    before = await one.data_version()

    await two.put("n", "k", 1)

    assert await one.data_version() != before
    await one.close()
    await two.close()


@pytest.mark.parametrize("spoilt", [b"garbage " * 5000, None])
async def test_a_file_that_is_spoilt_or_deleted_while_it_is_open_is_replaced(
    tmp_path: Path, spoilt: bytes | None
) -> None:
    one, two = await opened(tmp_path), await opened(tmp_path)
    await one.put("n", "k", 1)
    await one.completed()
    assert await two.complete()
    before = await two.data_version()
    for path in tmp_path.glob("state.db*"):
        if spoilt:
            path.write_bytes(spoilt)
        else:
            path.unlink()
    for state in (one, two):
        with contextlib.suppress(Unavailable):  # one that finds it damaged says so, once
            await state.get("n", "k")
        assert not await state.complete()
    await one.put("n", "k", 2)
    assert await two.get("n", "k") == 2
    assert await two.data_version() != before
    assert len(list(tmp_path.glob("*damaged*"))) == (1 if spoilt else 0)
    await one.close()
    await two.close()


async def test_a_state_of_the_version_before_gets_its_index(tmp_path: Path) -> None:
    old = sqlite3.connect(tmp_path / "state.db")
    old.execute("PRAGMA user_version = 1")
    old.close()
    state = await opened(tmp_path)
    await state.save_session(ROW, [TurnKey(1, "user", "s", 0, "a")])
    assert (await state.known("two", [("user", "s", "a")], anywhere=True)).elsewhere == {"a"}
    await state.close()
