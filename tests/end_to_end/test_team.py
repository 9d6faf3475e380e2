"""A team's memory from end to end: the library, the server and commands on PostgreSQL, and replicas that are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import anyio
import pytest
from anyio.to_thread import run_sync
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from mcp_server.agent import AgentMemory
from mcp_server.app import open_memory
from mcp_server.cli.main import main
from mcp_server.conversations import sessions
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.errors import Invalid, Unavailable
from mcp_server.model import Caller
from mcp_server.status.doctor import reset
from tests import running
from tests.conftest import KEYWORDS_ONLY
from tests.end_to_end.replicas import turns_by_writer
from tests.postgres import server
from tests.preloaded import context_manager, python

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).parent.parent.parent

TURNS = int(os.environ.get("CM_TEAM_TURNS", "60"))
KILLS = int(os.environ.get("CM_TEAM_KILLS", "3"))
"""The long run is 600 turns and 10 kills (docs/team.md)."""


@pytest.fixture
def address() -> str:
    return server().new_database()


@pytest.fixture(scope="module")
def shared() -> str:
    return server().new_database()


async def test_an_agent_records_searches_remembers_and_compiles(address: str) -> None:
    async with AgentMemory.open(address, environ=KEYWORDS_ONLY, project="atlas") as memory:
        heard = await memory.observe("user", "We chose PostgreSQL because many replicas write at once.")
        again = await memory.observe("user", "We chose PostgreSQL because many replicas write at once.")
        assert (heard.turn, heard.recorded, again.recorded) == (1, True, False)
        assert heard.notes == ()
        written = await memory.remember("The release is on the first Monday of each month.", kind="rule")
        found = await memory.search("when is the release?")
        assert "first Monday" in found.hits[0].passage.text
        assert "first Monday" in (await memory.read(written.path)).text
        assert "replicas" in (await memory.search("why PostgreSQL?", session=heard.session)).hits[0].passage.text
        compiled = await memory.compile("when is the release?", session=heard.session, budget=2_000)
        assert "first Monday" in compiled
        checkpoint = await memory.checkpoint(session=heard.session)
        assert checkpoint.turn == 1
    async with AgentMemory.open(address, environ=KEYWORDS_ONLY, project="atlas") as memory:
        assert (await memory.observe("agent", "Noted.", session=heard.session)).turn == 2
        assert (await memory.status()).problems == ()
        before = await memory.read(written.path, at="v1")
        await memory.remember("The release notes are in English.", kind="rule")
        assert "English" in (await memory.read(written.path)).text
        assert (await memory.read(written.path, at="v1")).text == before.text
        ended = await sessions.end_session(memory.memory, heard.session)
        assert ended.note == ""
        assert (await memory.observe("user", "One more thing.", session=heard.session)).turn == 3


async def test_nothing_is_published_while_nothing_changes(address: str) -> None:
    async with AgentMemory.open(address, environ=KEYWORDS_ONLY, project="atlas") as memory:
        await memory.remember("The harbour crane lifts forty tons.")
        state = memory.memory.state
        with anyio.fail_after(120):
            before, now = -1, await state.data_version()
            while now != before:  # until three seconds pass without a notice
                await anyio.sleep(3)
                before, now = now, await state.data_version()


async def test_a_reset_reads_the_conversations_back(address: str) -> None:
    async with open_memory(address, KEYWORDS_ONLY) as memory:
        said = NewTurn("user", "The harbour crane lifts forty tons.", "s", turn_id="a")
        await observe(memory, said, Caller())
        await reset(memory)
        again = await observe(memory, said, Caller())
        assert (again.turn, again.recorded) == (1, False)


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("postgresql://nobody@127.0.0.1:1/none", "check that the server runs"),
        ("postgresql://nobody@127.0.0.1:1/", "names no database"),
        ("postgresql://nobody:secret@127.0.0.1:port/x", "malformed"),
        ("postgresql://nobody:secret#more@127.0.0.1/x", "malformed"),
        ("postgresql://nobody:secret@127.0.0.1:1/x?workspace=../y", "not a workspace name"),
    ],
)
async def test_an_address_that_does_not_work_is_explained_without_its_password(address: str, said: str) -> None:
    with pytest.raises((Invalid, Unavailable), match=said) as raised:
        async with open_memory(address, KEYWORDS_ONLY):
            pass
    assert "secret" not in str(raised.value)


async def test_a_client_of_the_server_records_and_searches(address: str) -> None:
    environ = {**os.environ, **KEYWORDS_ONLY}
    command = python("-m", "mcp_server", "--workspace", address)
    parameters = StdioServerParameters(command=command[0], args=command[1:], env=environ, cwd=str(ROOT))
    with anyio.fail_after(180):
        async with Client(stdio_client(parameters)) as client:
            answer = await client.call_tool("observe", {"role": "user", "content": "The crane lifts forty tons."})
            assert not answer.is_error, answer
            answer = await client.call_tool("remember", {"content": "The crane is repaired in May.", "kind": "fact"})
            assert not answer.is_error, answer
            answer = await client.call_tool("search", {"query": "when is the crane repaired?"})
            assert "in May" in str(answer.content)


def test_commands_take_the_address_or_say_what_is_not_offered(address: str, tmp_path: Path) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        environ = {**os.environ, **KEYWORDS_ONLY, "PYTHONPATH": str(ROOT)}
        return running.run(context_manager("--workspace", address, *arguments), env=environ, cwd=tmp_path)

    assert run("remember", "The crane is repaired in May.").returncode == 0
    found = run("search", "when is the crane repaired?")
    assert "in May" in found.stdout
    examined = run("doctor")
    assert examined.returncode == 0, examined.stdout
    assert "Everything important works" in examined.stdout
    refused = run("serve", "--http")
    assert refused.returncode == 1
    assert "needs OAuth" in refused.stderr
    refused = run("serve", "--http", "--hooks")
    assert "not offered for a memory on PostgreSQL" in refused.stderr


@pytest.mark.parametrize(
    "command",
    [
        "init",
        "demo",
        "install",
        "sync",
        "page --no-browser",
        "history tags",
        "explore list",
        "reconstruct list",
        "config set search.embedder none",
    ],
)
def test_a_command_that_is_not_offered_says_so(
    shared: str, command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in KEYWORDS_ONLY.items():
        monkeypatch.setenv(name, value)
    assert main(["--workspace", shared, *command.split()]) == 1
    said = capsys.readouterr().err
    assert "PostgreSQL" in said
    assert "fault" not in said


async def test_killed_replicas_lose_and_double_no_turn_and_keep_the_order(address: str, tmp_path: Path) -> None:
    """Two processes write into one session. One of them is killed again and again, and sends what was not
    acknowledged again, as a client does."""
    share = TURNS // 2

    def start(name: str, first: int) -> subprocess.Popen[str]:
        arguments = ("-m", "tests.storage.team_writer", address, "ses_team", name, str(first), str(share))
        command = python(*arguments, pid_file=tmp_path / f"{name}.pid")
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)

    def kill_and_go_on() -> None:
        first = 0
        for kill in range(KILLS + 1):
            writer = start("killed", first)
            assert writer.stdout is not None
            stop = share if kill == KILLS else (kill + 1) * share // (KILLS + 1)
            for line in writer.stdout:
                first = int(line) + 1
                if first >= stop:
                    break
            if kill < KILLS:
                os.kill(int((tmp_path / "killed.pid").read_text()), signal.SIGKILL)
            rest = writer.communicate()[0]
            first = max([first, *(int(line) + 1 for line in rest.splitlines() if line.strip().isdigit())])
        assert first == share

    steady = start("steady", 0)
    await run_sync(kill_and_go_on)
    await run_sync(steady.communicate)
    assert steady.returncode == 0
    await turns_by_writer(address, ("killed", "steady"), share)
    async with open_memory(address, KEYWORDS_ONLY) as memory:
        assert all(two.number == one.number + 1 for one, two in pairwise(await memory.state.keys("ses_team")))


async def test_without_the_extra_the_address_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("mcp_server.storage.postgres.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(Unavailable, match=r"pip install 'context-manager-mcp\[postgres\]'"):
        async with open_memory("postgresql://nobody@127.0.0.1:1/none", KEYWORDS_ONLY):
            pass
