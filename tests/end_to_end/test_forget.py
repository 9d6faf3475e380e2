"""`forget` beside a running server, killed in the middle, and as a person types it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from mcp_server.app import open_memory
from mcp_server.conversations import sessions
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.forgetting.forget import finish
from mcp_server.knowledge.remember import NewFact, remember
from mcp_server.model import Caller
from mcp_server.status.status import status
from tests.conftest import Run, copied
from tests.end_to_end.servers import eventually
from tests.gitting import git
from tests.holding import holding, in_git
from tests.preloaded import context_manager, python
from tests.running import run
from tests.serving import PLAIN, call, environment, process, say

pytestmark = pytest.mark.anyio

FACT = "The vault's code is 47-11 Zephyr"
KILLED = """
import logging, os, signal, sys
import anyio
from pathlib import Path
from mcp_server.forgetting.forget import forget
from mcp_server.forgetting.target import ForgetTarget
from mcp_server.app import open_memory

class Kill(logging.Handler):
    def emit(self, record):
        if record.getMessage() == "forget: " + sys.argv[2]:
            os.kill(os.getpid(), signal.SIGKILL)

steps = logging.getLogger("mcp_server.forgetting.forget")
steps.setLevel(logging.INFO)
steps.addHandler(Kill())

async def main():
    async with open_memory(Path(sys.argv[1]), os.environ) as memory:
        await forget(memory, ForgetTarget(text="the vaults code is 4711 zephyr"), history=True)

anyio.run(main)
"""


def command(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run(context_manager("--workspace", str(root), *arguments), env=environment(root))


async def filled(root: Path) -> None:
    """A workspace with the fact in a closed conversation and in MEMORY.md, committed and indexed."""
    async with open_memory(root, PLAIN) as memory:
        await observe(memory, NewTurn("user", f"{FACT}, keep it safe", session="ses_1"), Caller())
        await sessions.end_session(memory, "ses_1")
        await remember(memory, NewFact(f"{FACT}.", project="global"), Caller())
        await memory.index.rebuild()


async def test_a_running_server_forgets_too(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    async with process(root) as client:
        session = await say(client, f"{FACT}, keep it safe")
        await call(client, "remember", content=f"{FACT}.", project="global")
        assert "zephyr" in (await call(client, "compile_context", message="what is the vault code?")).lower()
        done = await anyio.to_thread.run_sync(command, root, "forget", FACT, "--apply")
        assert done.returncode == 0, done.stderr
        assert "Not deleted" not in done.stdout
        assert holding(root, "zephyr") == []
        assert "zephyr" not in (await call(client, "search", query="vault code")).lower()
        assert "zephyr" not in (await call(client, "compile_context", message="what is the vault code?")).lower()
        await say(client, "Go on", session=session)
        assert "2" in await call(client, "status", view="sessions")
    assert holding(root, "zephyr") == []


@pytest.fixture(scope="module")
def holding_it(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace that holds the fact, made once for all tests of this file."""
    made = tmp_path_factory.mktemp("filled") / "memory"
    anyio.run(filled, made)
    return made


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
@pytest.mark.parametrize("stage", ["files", "index", "rewriting the history"])
async def test_killed_in_the_middle_it_is_carried_on_by_the_next(holding_it: Path, tmp_path: Path, stage: str) -> None:
    root = tmp_path / "memory"
    copied(holding_it, root)
    assert holding(root, "zephyr")
    killed = await anyio.to_thread.run_sync(
        lambda: subprocess.run(python("-c", KILLED, str(root), stage), env=environment(root), timeout=120)
    )
    assert killed.returncode == -signal.SIGKILL
    assert list((root / ".local/forget").glob("*.json"))

    if stage == "files":
        async with process(root) as client:  # a server's start does the same as the command
            await call(client, "status")
            await eventually(lambda: not list((root / ".local/forget").glob("*.json")))
    else:
        async with open_memory(root, PLAIN) as memory:
            assert "was interrupted" in (await status(memory)).markdown
            (receipt,) = await finish(memory)
            assert receipt.done
    assert holding(root, "zephyr") == []
    assert in_git(root, "zephyr") == []
    git(root, "fsck", "--strict")
    assert not list((root / ".local/forget").glob("*.json"))


def test_a_person_sees_every_place_first_and_is_told_what_git_holds(
    holding_it: Path, run: Run, workspace: Path
) -> None:
    copied(holding_it, workspace)
    shown = run("forget", FACT)
    for words in (
        "knowledge/memory/MEMORY.md",
        "removed",
        "raw/conversations",
        "marked",
        "renamed to",
        "Nothing is deleted yet",
    ):
        assert words in shown
    assert "Git holds it: 1 commits" in shown
    done = run("forget", FACT, "--apply")
    assert "Git still holds it" in done
    assert "--history" in done
    assert holding(workspace, "zephyr") == []
    assert in_git(workspace, "zephyr")
    rewritten = run("forget", FACT, "--apply", "--history")
    assert "STILL HOLDS ALL OF IT" in rewritten
    assert in_git(workspace, "zephyr") == []
    (bundle,) = workspace.parent.glob("*.bundle")
    assert f"rm '{bundle}'" in rewritten.replace("\n", "")
    assert "No copy was found" in run("forget", FACT)
    assert '"done": false' in run("forget", FACT, "--json")
    assert "No deletion was interrupted" in run("forget", "--apply")


def test_a_person_approves_and_rejects_and_hostile_text_cannot_drive_the_terminal(run: Run, workspace: Path) -> None:
    hostile = "I like \x1b[2Jtea\u202e and \x07bells"
    assert "waiting" in run("remember", hostile, "--kind", "identity")
    run("remember", "I like coffee", "--kind", "identity")
    listed = run("approve")
    for character in ("\x1b", "\u202e", "\x07"):
        assert character not in listed
    numbers = [line.split()[0] for line in listed.splitlines() if line.startswith("prop_")]
    assert len(numbers) == 2
    assert "dropped" in run("approve", numbers[0], "--reject", "--apply")
    assert "appended" in run("approve", "--all", "--apply")
    text = (workspace / "knowledge/identity/USER.md").read_text()
    assert "coffee" in text
    assert "tea" not in text
    assert "Nothing waits" in run("approve")
    assert not list((workspace / ".local/pending").iterdir())
