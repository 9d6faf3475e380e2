"""A team's memory is backed up and restored with PostgreSQL's own tools."""

from __future__ import annotations

import subprocess
from pathlib import Path

import anyio
import psycopg
import pytest

from mcp_server.agent import AgentMemory
from tests.conftest import KEYWORDS_ONLY
from tests.postgres import Server, server

pytestmark = pytest.mark.anyio


async def test_a_dump_restored_on_another_server_answers_at_once_also_from_the_index(tmp_path: Path) -> None:
    first = server()
    address = first.new_database()
    async with AgentMemory.open(address, environ=KEYWORDS_ONLY, project="atlas") as memory:
        heard = await memory.observe("user", "The harbour crane lifts forty tons.")
        await memory.remember("The mast is lowered in October.", kind="rule")
        await memory.remember("The mast is raised in April.", kind="rule")
        await memory.memory.index.refresh()
        before = (await memory.search("when is the mast lowered?")).hits
    dump = tmp_path / "memory.dump"
    await anyio.to_thread.run_sync(run, first, "pg_dump", "--format=custom", f"--file={dump}", address)

    other = await anyio.to_thread.run_sync(Server, first.programs)
    try:
        with psycopg.connect(other.address("postgres"), autocommit=True) as connection:
            connection.execute("CREATE ROLE context_manager_member NOLOGIN")
            connection.execute("CREATE DATABASE restored")
        restored = other.address("restored")
        command = ("pg_restore", "--exit-on-error", "--no-owner", f"--dbname={restored}", str(dump))
        await anyio.to_thread.run_sync(run, other, *command)
        async with AgentMemory.open(restored, environ=KEYWORDS_ONLY, project="atlas") as memory:
            status = await memory.memory.index.status()
            assert (status.state, status.not_embedded) == ("ready", 0)
            after = (await memory.search("when is the mast lowered?")).hits
            assert [hit.passage.text for hit in after] == [hit.passage.text for hit in before] != []
            assert (await memory.observe("agent", "Noted.", session=heard.session)).turn == 2
            page = next(hit.passage.path for hit in after if "October" in hit.passage.text)
            assert "April" not in (await memory.read(page, at="v1")).text
    finally:
        await anyio.to_thread.run_sync(other.end)


def run(of: Server, program: str, *arguments: str) -> None:
    subprocess.run([str(of.programs / program), *arguments], check=True, capture_output=True)
