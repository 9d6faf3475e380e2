"""Long work in a process of its own: it is done, a crash of it costs nothing, and it does not outlive who wanted it."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest

from mcp_server.app import maintain, open_memory
from mcp_server.conversations.closed_sessions import PENDING_EXTRACTION
from mcp_server.conversations.imports import ImportedSession, ImportedTurn, record_session
from mcp_server.errors import Unavailable
from mcp_server.jobs import worker
from mcp_server.jobs.scheduler import JOBS, due, planned
from mcp_server.knowledge.extract import extract_pending
from mcp_server.memory import Memory
from mcp_server.search.search import SearchRequest, find
from tests.conftest import KEYWORDS_ONLY
from tests.end_to_end.servers import eventually
from tests.preloaded import programs

pytestmark = pytest.mark.anyio
START = datetime(2023, 5, 8, 13, 56, tzinfo=UTC)
ROOT = Path(__file__).parents[2]
MANY = 10


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that `worker.run` starts have their imports done."""
    monkeypatch.setattr(sys, "executable", str(programs() / "python"))


def talk(number: int) -> ImportedSession:
    said = (f"I adopted {number + 2} kittens yesterday.", f"I moved to Zagreb{number} last week.")
    turns = tuple(
        ImportedTurn("user", text, START + timedelta(days=number, seconds=place), f"D{number}:{place}", "Ana")
        for place, text in enumerate(said)
    )
    return ImportedSession(f"talk-{number}", turns, "import:test", title="Ana")


async def imported(workspace: Path, sessions: int) -> None:
    async with open_memory(workspace, KEYWORDS_ONLY) as memory:
        for number in range(sessions):
            await record_session(memory, talk(number))


async def left(workspace: Path) -> int:
    async with open_memory(workspace, KEYWORDS_ONLY) as memory:
        return len(await memory.state.keys_of(PENDING_EXTRACTION))


def lines(workspace: Path) -> list[str]:
    """What is known, without the front matter's dates."""
    found = sorted((workspace / "knowledge").rglob("*.md"))
    return [line for path in found for line in path.read_text().splitlines() if "[src: " in line]


def started(workspace: Path) -> subprocess.Popen[bytes]:
    """A child as a server starts it."""
    command = [sys.executable, "-P", "-c", worker.PROGRAM, str(ROOT)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(worker.order("knowledge", workspace, KEYWORDS_ONLY))
    process.stdin.flush()
    return process


@pytest.mark.usefixtures("quick")
async def test_closed_conversations_become_knowledge_in_a_process_of_their_own(workspace: Path) -> None:
    await imported(workspace, 2)
    assert await worker.run("knowledge", workspace, KEYWORDS_ONLY)
    assert await left(workspace) == 0
    assert "Zagreb1" in (workspace / "knowledge/people/ana.md").read_text()


@pytest.mark.usefixtures("quick")
async def test_jobs_that_are_due_run_there_too(memory: Memory, workspace: Path) -> None:
    await planned(memory, JOBS)
    await memory.state.put("jobs", "condense-daily", {"done": "2020-01-01T00:00:00+00:00"})
    assert [job.name for job, _ in await due(memory, JOBS)] == ["condense-daily"]
    assert await worker.run("jobs", workspace, KEYWORDS_ONLY)
    (ran,) = [one for one in await planned(memory, JOBS) if one.name == "condense-daily"]
    assert ran.last is not None


@pytest.mark.usefixtures("quick")
async def test_a_server_finds_what_its_child_wrote(workspace: Path) -> None:
    await imported(workspace, 1)
    async with (
        open_memory(workspace, KEYWORDS_ONLY) as memory,
        memory.changes.listen() as heard,
        maintain(memory, KEYWORDS_ONLY),
    ):
        with anyio.fail_after(300):  # a child lets everybody else go first
            async for _ in heard:  # of the file, or of the index alone where the child was quicker than our watcher
                found = await find(memory, SearchRequest(query="kittens", category="person", scope="all"))
                if any(hit.passage.path == "knowledge/people/ana.md" for hit in found.hits):
                    break


async def test_a_child_that_is_killed_leaves_nothing_out_and_nothing_twice(workspace: Path, tmp_path: Path) -> None:
    await imported(workspace, MANY)
    await imported(tmp_path / "undisturbed", MANY)
    with started(workspace) as process:
        await eventually(lambda: lines(workspace))
        process.kill()
    for root in (workspace, tmp_path / "undisturbed"):
        async with open_memory(root, KEYWORDS_ONLY) as memory:
            await extract_pending(memory)
        assert await left(root) == 0
    assert lines(workspace) == lines(tmp_path / "undisturbed")


async def test_a_child_ends_with_whoever_started_it(workspace: Path) -> None:
    await imported(workspace, MANY)
    with started(workspace) as process:
        assert process.stdin is not None
        process.stdin.close()
        await anyio.to_thread.run_sync(lambda: process.wait(60))
    assert await left(workspace) > 0


@pytest.mark.usefixtures("quick")
async def test_a_child_that_fails_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(Unavailable, match="code 1"):
        await worker.run("knowledge", tmp_path / "file", KEYWORDS_ONLY)
