"""`kill -9` around a drop, a recovery and a session's end: nothing is lost, nothing is there twice, and the next
process goes on."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mcp_server.app import open_memory
from mcp_server.conversations.sessions import session_turns
from mcp_server.memory import Memory
from mcp_server.pressure.cold import cold_records, expire, recover_chunk
from mcp_server.recovery.recover import recover
from mcp_server.recovery.recoverable import recoverable
from mcp_server.relevance.live_set import live_set
from tests.preloaded import python
from tests.pressing import ASKS, hold, limited, say, talk
from tests.running import run

pytestmark = pytest.mark.anyio

KILLED = """
import os, signal, sys
from dataclasses import replace
from pathlib import Path
import anyio
from mcp_server.pressure.cold import recover_chunk
from mcp_server.conversations.sessions import end_session
from mcp_server.app import open_memory
from mcp_server.storage.live_sets import ColdStorage
from mcp_server.storage.live_sets import LiveSets
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
    def put_all(self, records, *, copies=False):
        records = list(records)
        if sys.argv[2] == "half" or (sys.argv[2] == "end" and copies):
            super().put_all(records[:1])
            die()
        super().put_all(records, copies=copies)

    def remove_all(self, records):
        if records and sys.argv[2] == "back":
            die()
        super().remove_all(records)

async def main():
    async with open_memory(Path(sys.argv[1]), limited(1000)) as memory:
        dying = replace(memory, live=Live(memory.state), cold=Cold(memory.files))
        await hold(dying, talk(14))
        await recover_chunk(dying, dying.cold.of("s")[0].chunk_id, dry_run=False)
        await end_session(dying, "s")

anyio.run(main)
"""


def killed(workspace: Path, moment: str) -> None:
    """Runs a conversation in a process of its own until it dies: halfway through the records of its first drop, before
    the live set knows of it, right after; before the record of the first chunk that came back goes; halfway through the
    copies at its end."""
    command = python("-c", KILLED, str(workspace), moment)
    done = run(command, cwd=Path(__file__).parents[2])
    assert done.returncode == -9, done.stderr


async def everything_is_somewhere_once(memory: Memory) -> None:
    """Each turn is live or cold, in the index of chunks once, and what is cold comes back byte for byte. Cold storage
    lists what is not whole in the live context, and nothing else."""
    turns = {turn.number: turn for turn in await session_turns(memory, "s")}
    assert list(turns) == list(range(1, len(turns) + 1))
    assert len({turn.turn_id for turn in turns.values()}) == len(turns)
    chunks = await live_set(memory, "s")
    assert sorted(chunk.turn for chunk in chunks) == sorted(turns)
    away = {chunk.id: turns[chunk.turn].content for chunk in chunks if chunk.form != "whole"}
    for name, content in away.items():
        assert (await recover(memory, name, ASKS)).content == content
    assert {record.chunk_id for record in await cold_records(memory, "s") if record.form != "whole"} == set(away)
    assert {one.id for one in await recoverable(memory, limit=1000) if one.kind == "cold"} == set(away)


@pytest.mark.parametrize("moment", ["half", "before", "after", "back", "end"])
async def test_a_kill_loses_nothing_and_doubles_nothing_even_if_the_state_is_lost_too(
    workspace: Path, tmp_path: Path, moment: str
) -> None:
    killed(workspace, moment)
    without_state = tmp_path / "without state"
    shutil.copytree(workspace, without_state)
    for name in ("state.db", "state.db-wal", "state.db-shm"):
        (without_state / ".local" / name).unlink(missing_ok=True)
    await goes_on(workspace, moment)
    await goes_on(without_state, moment)


async def goes_on(workspace: Path, moment: str) -> None:
    """Asserts that the next process finds everything once, and that the client may say everything again."""
    async with open_memory(workspace, limited(1000)) as memory:
        recorded = len(await session_turns(memory, "s"))
        await everything_is_somewhere_once(memory)
        await expire(memory)  # once a day, the server that maintains does it
        await everything_is_somewhere_once(memory)
        live = {chunk.id for chunk in await memory.live.of("s") if chunk.form == "whole"}
        assert not live & {record.chunk_id for record in memory.cold.of("s")}
        assert moment != "end" or await memory.live.of("s") == []
        heard = await hold(memory, talk(14))  # the client says everything again: it did not hear all answers
        assert [one.turn for one in heard if not one.recorded] == list(range(1, recorded + 1))
        await everything_is_somewhere_once(memory)
        record = next(one for one in memory.cold.of("s") if one.form == "cold")
        await recover_chunk(memory, record.chunk_id, dry_run=False)
        await say(memory, "That is all.")
        await everything_is_somewhere_once(memory)
