"""`doctor` finds the broken link: a real handshake, a real hook command, and each failing line says what to do."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from anyio.abc import SocketAttribute

from mcp_server import __version__
from mcp_server.app import maintain, open_memory
from mcp_server.clients.hooks import protocol
from mcp_server.clients.installers.chain import PLUGIN_HOOK, PLUGIN_SERVER, examine_chain, handshake
from mcp_server.clients.installers.install import install
from mcp_server.clients.installers.known import Machine, client_named
from mcp_server.clients.installers.plan import Launch, launching, plan
from mcp_server.memory import Memory
from mcp_server.status.doctor import Check
from tests import preloaded
from tests.conftest import KEYWORDS_ONLY
from tests.preloaded import programs
from tests.serving import PLAIN

pytestmark = pytest.mark.anyio


@pytest.fixture
def here(tmp_path: Path) -> Machine:
    home = tmp_path / "home"
    (home / ".cursor").mkdir(parents=True)
    return Machine(home, {"HOME": str(home), "PATH": os.environ["PATH"]})


async def checks(memory: Memory, here: Machine) -> dict[str, Check]:
    return {check.name: check for check in await examine_chain(memory, here)}


def launch(memory: Memory, here: Machine) -> Launch:
    return launching(here, memory.disk.root, programs() / "python")


async def test_a_whole_chain_is_in_order(memory: Memory, here: Machine) -> None:
    for name in ("cursor", "claude-code", "codex"):
        install(memory, plan(client_named(name), here, launch(memory, here)))
    found = await checks(memory, here)
    assert all(check.ok for check in found.values()), found
    assert "connected in" in found["Cursor"].detail
    assert "all 7 there" in found["Claude Code hooks"].detail
    assert {"Codex", "Claude Code", "hook socket", "hook queue"} <= set(found)


async def test_with_no_client_it_names_one_that_is_here(memory: Memory, here: Machine) -> None:
    found = await checks(memory, here)
    assert not found["clients"].ok
    assert not found["clients"].matters
    assert found["clients"].advice in ("context-manager install cursor", "context-manager install claude-code")


async def test_a_command_that_is_gone_is_named(memory: Memory, here: Machine) -> None:
    gone = Launch(("/gone/context-manager-mcp",), ("/gone/context-manager",), memory.disk.root)
    install(memory, plan(client_named("claude-code"), here, gone))
    found = await checks(memory, here)
    for name in ("Claude Code", "Claude Code hooks"):
        assert not found[name].ok
        assert found[name].matters
        assert "there is no /gone/context-manager" in found[name].detail
        assert found[name].advice == "context-manager install claude-code"


async def test_a_broken_configuration_is_named_with_its_line(memory: Memory, here: Machine) -> None:
    (here.home / ".cursor" / "mcp.json").write_text('{\n"mcpServers": {')
    found = await checks(memory, here)
    assert not found["Cursor"].ok
    assert "mcp.json: line 2" in found["Cursor"].detail


async def test_another_memory_and_missing_hooks_are_noticed(memory: Memory, here: Machine, tmp_path: Path) -> None:
    other = launching(here, tmp_path / "other memory", programs() / "python")
    install(memory, plan(client_named("cursor"), here, other))
    install(memory, plan(client_named("claude-code"), here, launch(memory, here)))
    settings = here.home / ".claude" / "settings.json"
    said = json.loads(settings.read_bytes())
    del said["hooks"]["Stop"]
    settings.write_text(json.dumps(said))
    found = await checks(memory, here)
    assert "but to another memory" in found["Cursor"].detail
    assert not found["Cursor"].matters
    assert found["Claude Code hooks"].detail == "missing: Stop"
    settings.unlink()
    found = await checks(memory, here)
    assert "with --hooks, but without hooks" in found["Claude Code"].detail
    assert "nothing is recorded" in found["Claude Code hooks"].detail


async def test_a_hook_command_that_fails_is_told(memory: Memory, here: Machine, tmp_path: Path) -> None:
    broken = tmp_path / "context-manager"
    broken.write_text(f"#!{sys.executable}\nimport sys\nsys.exit('no such event')\n")
    broken.chmod(0o755)
    good = launch(memory, here)
    install(memory, plan(client_named("claude-code"), here, Launch(good.server, (str(broken),), good.workspace)))
    found = await checks(memory, here)
    assert "exit code 1; it said: no such event" in found["Claude Code hooks"].detail


async def test_a_project_that_was_installed_into_is_looked_at_too(
    memory: Memory, here: Machine, tmp_path: Path
) -> None:
    install(memory, plan(client_named("cursor"), here, launch(memory, here), project=tmp_path))
    assert (await checks(memory, here))[f"Cursor ({tmp_path})"].ok


async def test_the_plugin_counts_as_connected(memory: Memory, here: Machine) -> None:
    (here.home / ".claude").mkdir()
    (here.home / ".claude" / "settings.json").write_text('{"enabledPlugins": {"memory@context-manager": true}}')
    path = os.pathsep.join([str(programs()), here.environ["PATH"]])
    usual = replace(here, environ={**here.environ, "PATH": path, "CONTEXT_MANAGER_HOME": str(memory.disk.root)})
    found = await checks(memory, usual)
    assert found["Claude Code"].ok, found["Claude Code"]
    assert "the plugin memory@context-manager is enabled; connected in" in found["Claude Code"].detail
    assert "clients" not in found


async def test_a_plugin_beside_an_installation_is_told_of(memory: Memory, here: Machine) -> None:
    """The plugin was enabled after the installation: `install` refuses the other order."""
    install(memory, plan(client_named("claude-code"), here, launch(memory, here)))
    settings = here.home / ".claude" / "settings.json"
    settings.write_text(
        json.dumps({**json.loads(settings.read_bytes()), "enabledPlugins": {"context-manager@x": True}})
    )
    found = (await checks(memory, here))["Claude Code"]
    assert not found.ok
    assert not found.matters
    assert (
        "keep only one: claude plugin disable context-manager@x, or context-manager uninstall claude-code"
        in found.detail
    )


async def test_a_plugin_whose_commands_are_not_on_path_is_told_of(memory: Memory, here: Machine) -> None:
    """In Claude Code it says nothing: this is where somebody looks who wonders why."""
    (here.home / ".claude").mkdir()
    (here.home / ".claude" / "settings.json").write_text('{"enabledPlugins": {"memory@context-manager": true}}')
    found = (await checks(memory, replace(here, environ={**here.environ, "PATH": "/usr/bin:/bin"})))["Claude Code"]
    assert not found.ok
    assert "context-manager-mcp is not on PATH" in found.detail
    assert "PATH" in found.advice


def test_what_the_plugin_starts_is_what_is_looked_at() -> None:
    plugin = Path(__file__).parents[3] / "plugin"
    (server,) = json.loads((plugin / ".mcp.json").read_text("utf-8"))["mcpServers"].values()
    assert (server["command"], *server["args"]) == PLUGIN_SERVER
    for (group,) in json.loads((plugin / "hooks/hooks.json").read_text("utf-8"))["hooks"].values():
        assert group["hooks"][0]["command"].startswith(" ".join(PLUGIN_HOOK) + " ")


async def test_events_that_wait_and_that_failed_are_counted(memory: Memory, here: Machine) -> None:
    queue = memory.disk.local / "queue" / "hooks"
    queue.mkdir(parents=True)
    for number in range(201):
        (queue / f"{number}.json").write_text("{}")
    found = await checks(memory, here)
    assert found["hook queue"].detail == "201 waiting"
    assert not found["hook queue"].ok
    rejected = memory.disk.local / "queue" / "rejected"
    rejected.mkdir()
    (rejected / "x.json").write_text("{}")
    assert "1 events could not be handled" in (await checks(memory, here))["hook queue"].detail


async def test_a_running_server_is_asked_at_its_door(memory: Memory, here: Machine, workspace: Path) -> None:
    async with open_memory(workspace, KEYWORDS_ONLY) as serving, maintain(serving):
        with anyio.fail_after(60):
            while "running server answers" not in (await checks(memory, here))["hook socket"].detail:
                await anyio.lowlevel.checkpoint()
    held = memory.locks.try_maintainer()
    assert held is not None
    address = memory.disk.local / protocol.ADDRESS
    async with open_memory(workspace, KEYWORDS_ONLY) as other:
        address.write_bytes(protocol.address("t", os.getpid(), f"unix {address.with_name('gone.sock')}"))
        hanging = (await checks(other, here))["hook socket"]
        address.unlink()
        working = (await checks(other, here))["hook socket"]
    held.release()
    assert not hanging.ok
    assert "does not answer hooks" in hanging.detail
    assert working.ok
    assert "a command is using" in working.detail


async def test_a_server_that_stalls_is_told_of(memory: Memory, here: Machine) -> None:
    held = memory.locks.try_maintainer()
    assert held is not None
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as silent:  # takes calls and says nothing
        address = memory.disk.local / protocol.ADDRESS
        address.parent.mkdir(exist_ok=True)
        address.write_bytes(protocol.address("t", 1, f"port {silent.extra(SocketAttribute.local_port)}"))
        found = (await checks(memory, here))["hook socket"]
    held.release()
    assert not found.ok
    assert "does not answer hooks" in found.detail


@pytest.mark.skipif(sys.platform == "win32", reason="there is no socket there")
async def test_a_folder_in_which_no_server_can_listen_is_told_of(memory: Memory, here: Machine) -> None:
    (memory.disk.local / "run").write_text("a file")
    found = (await checks(memory, here))["hook socket"]
    assert not found.ok
    assert "hooks cannot reach a server" in found.detail
    assert str(memory.disk.local / "run") in found.detail
    (memory.disk.local / "run").unlink()
    assert (await checks(memory, here))["hook socket"].ok
    assert list((memory.disk.local / "run").iterdir()) == []


# ---------------------------------------------------------------- the handshake alone


async def test_our_server_answers_with_its_version_and_tools(workspace: Path) -> None:
    words = preloaded.python("-m", "mcp_server", "--workspace", str(workspace))
    found = await handshake(words, os.environ, PLAIN)
    assert found.problem == ""
    assert found.version == __version__
    assert {"search", "remember", "observe"} <= set(found.tools)


REFUSAL = '{"jsonrpc": "2.0", "id": 1, "error": {"code": -1, "message": "too old"}}'


@pytest.mark.parametrize(
    ("program", "problem"),
    [
        ("print('one', file=sys.stderr); sys.exit('no disk')", "it ended at once; it said: no disk"),
        ("print('Welcome!'); input()", "its stdout is not MCP: 'Welcome!'"),
        (f"input(); print({REFUSAL!r}, flush=True); sys.stdin.read()", "it refused: too old"),
    ],
)
async def test_a_program_that_does_not_answer_as_a_server_is_explained(program: str, problem: str) -> None:
    assert (await handshake([sys.executable, "-c", f"import sys; {program}"], os.environ)).problem == problem


async def test_one_that_does_not_end_is_ended() -> None:
    found = await handshake([sys.executable, "-c", "import time; time.sleep(1000)"], os.environ, patience=0.2)
    assert found.problem.startswith("no answer within")


async def test_a_command_that_is_not_there_is_named(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("no program")
    plain.chmod(0o644)
    broken = tmp_path / "broken"
    broken.write_bytes(b"\x00\x01")
    broken.chmod(0o755)
    assert (await handshake(["/no/such/server"], os.environ)).problem == "there is no /no/such/server"
    assert (await handshake(["no-such-server"], os.environ)).problem == "no-such-server is not on PATH"
    assert (await handshake([], os.environ)).problem == "no command is named"
    assert "cannot be started" in (await handshake([str(broken)], os.environ)).problem
    if os.name == "posix":
        assert "is not executable" in (await handshake([str(plain)], os.environ)).problem
