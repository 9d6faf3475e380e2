"""What is recorded of turns that arrive, asked without reading all keys."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from mcp_server.conversations.source_keys import TurnKey
from mcp_server.model import Role
from mcp_server.storage.local.locks import Locks
from mcp_server.storage.local.state import State
from mcp_server.storage.values import SessionRow

pytestmark = pytest.mark.anyio
AT = datetime(2026, 2, 16, tzinfo=UTC)


def row(session: str) -> SessionRow:
    return SessionRow(session, f"{session}.md", "open", "", None, None, session, AT, AT, 3, AT, 10)


@pytest.fixture
async def state(tmp_path: Path) -> AsyncIterator[State]:
    opened = await State.open(tmp_path / "state.db", Locks(tmp_path))
    keys = [TurnKey(1, "user", "s1", 0), TurnKey(2, "agent", "s2", 0, "a"), TurnKey(3, "user", "s1", 1)]
    await opened.save_session(row("one"), keys)
    await opened.save_session(row("other"), [TurnKey(1, "user", "s3", 0, "b")])
    yield opened
    await opened.close()


async def test_ids_contents_and_copies_are_found(state: State) -> None:
    arriving: list[tuple[Role, str, str]] = [("user", "s1", "x"), ("agent", "s2", "a"), ("user", "s3", "b")]
    known = await state.known("one", arriving, anywhere=True)
    assert known.ids == {"a"}
    assert known.elsewhere == {"b"}
    assert known.nameless == {("user", "s1"): (1, 3)}
    assert known.counts == {("user", "s1"): 2, ("agent", "s2"): 1}
    assert (await state.known("one", arriving)).elsewhere == frozenset()


async def test_a_turn_is_named_once(state: State) -> None:
    await state.name_turns("one", [(1, "x"), (2, "y")])
    await state.name_turns("one", [(1, "z")])
    assert [key.turn_id for key in await state.keys("one")] == ["x", "a", None]


async def test_several_values_are_removed_at_once(state: State) -> None:
    for key in "abc":
        await state.put("n", key, 1)
    await state.remove("n", "a", "c", "nothing")
    assert await state.entries("n") == {"b": 1}


async def test_a_state_of_the_version_before_gets_its_index(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    old = sqlite3.connect(path)
    old.execute("PRAGMA user_version = 1")
    old.close()
    opened = await State.open(path, Locks(tmp_path))
    await opened.save_session(row("one"), [TurnKey(1, "user", "s", 0, "a")])
    assert (await opened.known("two", [("user", "s", "a")], anywhere=True)).elsewhere == {"a"}
    await opened.close()
