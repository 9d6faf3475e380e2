"""`kill -9` around a drop: nothing is lost, nothing is there twice, and the next process goes on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mcp_server.actions.cold import recover_chunk
from mcp_server.actions.live_set import live_set
from mcp_server.actions.sessions import session_turns
from mcp_server.app import open_memory
from mcp_server.memory import Memory
from tests.pressing import hold, limited, say, talk

pytestmark = pytest.mark.anyio

KILLED = """
import os, signal, sys
from dataclasses import replace
from pathlib import Path
import anyio
from mcp_server.app import open_memory
from mcp_server.store.cold_storage import ColdStorage
from mcp_server.store.live_sets import LiveSets
from tests.pressing import hold, limited, talk

def die():
    os.kill(os.getpid(), signal.SIGKILL)

class Live(LiveSets):
    async def put(self, session, chunks):
        chunks = list(chunks)
        drops = any(chunk.form == "cold" for chunk in chunks)
        if drops and sys.argv[2] == "before":
            die()
        await super().put(session, chunks)
        if drops and sys.argv[2] == "after":
            die()

class Cold(ColdStorage):
    def put_all(self, records):
        records = list(records)
        if sys.argv[2] == "half":
            super().put_all(records[:1])
            die()
        super().put_all(records)

async def main():
    async with open_memory(Path(sys.argv[1]), limited(1500)) as memory:
        dying = replace(memory, live=Live(memory.state), cold=Cold(memory.files))
        await hold(dying, talk(40))

anyio.run(main)
"""


def killed(workspace: Path, moment: str) -> None:
    """Runs a conversation in a process of its own until it dies at its first drop."""
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(workspace), moment],
        capture_output=True,
        text=True,
        check=False,
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    assert done.returncode == -9, done.stderr


async def everything_is_somewhere_once(memory: Memory) -> None:
    """Each turn is live or cold, in the index of chunks once, and what is cold comes back byte for byte."""
    turns = {turn.number: turn for turn in await session_turns(memory, "s")}
    assert list(turns) == list(range(1, len(turns) + 1))
    assert len({turn.turn_id for turn in turns.values()}) == len(turns)
    chunks = await live_set(memory, "s")
    assert sorted(chunk.turn for chunk in chunks) == sorted(turns)
    for chunk in chunks:
        if chunk.form == "cold":
            assert memory.cold.get("s", chunk.id).content == turns[chunk.turn].content
    records = [record.chunk_id for record in memory.cold.of("s")]
    assert len(records) == len(set(records))
    context = [chunk.turn for chunk in chunks if chunk.form != "cold"]
    assert len(context) == len(set(context))


@pytest.mark.parametrize("moment", ["half", "before", "after"])
@pytest.mark.parametrize("state", ["kept", "lost"])
async def test_a_kill_around_a_drop_loses_nothing_and_doubles_nothing(workspace: Path, moment: str, state: str) -> None:
    killed(workspace, moment)
    if state == "lost":
        for name in ("state.db", "state.db-wal", "state.db-shm"):
            (workspace / ".local" / name).unlink(missing_ok=True)
    async with open_memory(workspace, limited(1500)) as memory:
        recorded = len(await session_turns(memory, "s"))
        await everything_is_somewhere_once(memory)
        heard = await hold(memory, talk(40))  # the client says everything again: it did not hear all answers
        assert [one.turn for one in heard if not one.recorded] == list(range(1, recorded + 1))
        await everything_is_somewhere_once(memory)
        record = next(one for one in memory.cold.of("s") if one.form == "cold")
        await recover_chunk(memory, record.chunk_id, dry_run=False)
        await say(memory, "That is all.")
        await everything_is_somewhere_once(memory)
