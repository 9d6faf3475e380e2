"""A process is killed while it indexes a long message."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import anyio

from mcp_server.app import catch_up, open_memory
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.memory import Memory
from mcp_server.model import Caller
from mcp_server.search.query import parse_query
from mcp_server.storage.local.index import writer as filling
from tests.preloaded import python
from tests.searching import candidates_of
from tests.serving import PLAIN, ROOT, environment
from tests.storage.fingerprint import fingerprint
from tests.torture.frame import Case, Trial

SENTENCES, SHORT = 42_000, 600
"""About 4 MB; in CI some passages, which are written in as many transactions."""

INDEXING = """
import sys
from pathlib import Path
import anyio
from mcp_server.app import catch_up, open_memory
from mcp_server.storage.local.index import writer as filling
from tests.killing import die_at
from tests.serving import PLAIN

async def main():
    async with open_memory(Path(sys.argv[1]), PLAIN) as memory:
        await catch_up(memory)

die_at(int(sys.argv[2]), (filling, "write"))
filling.SOON = int(sys.argv[3])
anyio.run(main)
"""


async def prepared(kept: Path, sentences: int) -> tuple[Path, str]:
    """Returns a workspace that holds a long message which is not indexed yet, and the fingerprint of its rebuilt index.
    Makes it once a case; later rounds use the same one."""
    root, noted = kept / "memory", kept / "fingerprint"
    if not noted.exists():
        shutil.rmtree(root, ignore_errors=True)
        async with open_memory(root, PLAIN) as memory:
            await say(memory, "A short message before it.")
            await catch_up(memory)
            long = (
                f"quokka{number:05} lives near harbour {number % 97}, and nobody has seen it there before; ask Ana."
                for number in range(sentences)
            )
            await say(memory, " ".join(long))
        shutil.copytree(root, kept / "rebuilt")
        async with open_memory(kept / "rebuilt", PLAIN) as memory:
            await memory.index.rebuild()
            expected = await fingerprint(memory.index)
        shutil.rmtree(kept / "rebuilt")
        noted.write_text(expected)
    return root, noted.read_text()


async def say(memory: Memory, content: str) -> None:
    await observe(memory, NewTurn(role="user", content=content, session="s"), Caller())


async def killed_while_indexing(trial: Trial) -> None:
    """Kills the process at one of its write transactions, or at a random moment; then restarts and compares."""
    sentences, soon = (SHORT, 10) if trial.short else (SENTENCES, filling.SOON)
    ready, expected = await prepared(trial.kept, sentences)
    shutil.copytree(ready, trial.root)
    at_a_write = trial.chance.random() < 0.8
    step = trial.chance.randint(2, sentences // 600 if not trial.short else 5) if at_a_write else 1_000_000
    pid_file = trial.folder / "pid"
    command = python("-c", INDEXING, str(trial.root), str(step), str(soon), pid_file=pid_file)
    process = await anyio.open_process(command, cwd=ROOT, env=environment(trial.root), stdout=None, stderr=None)
    async with process:
        if not at_a_write:
            with anyio.move_on_after(trial.chance.uniform(1.0, 4.0)):
                await process.wait()
            if process.returncode is None:
                os.kill(int(pid_file.read_text()) if pid_file.exists() else process.pid, signal.SIGKILL)
        await process.wait()
    trial.tally.faults += process.returncode == -signal.SIGKILL
    async with open_memory(trial.root, PLAIN) as memory:
        await catch_up(memory)
        last = f"quokka{sentences - 1:05}"
        found = await candidates_of(memory.index, parse_query(last, memory.clock()), mode="keyword")
        assert found.found, f"search does not find {last} after a kill at write {step}"
        left = await fingerprint(memory.index)
        assert left == expected, f"the index differs from a rebuilt one after a kill at write {step}"
    trial.tally.load += 1


CASES = (
    Case(
        "killed while indexing",
        "after a kill during the indexing of a 4 MB message, search finds its last word and the index equals a "
        "rebuilt one",
        killed_while_indexing,
    ),
)
