"""Finds the clients on this machine, and checks each step from a client's configuration to the workspace (`doctor`).

`handshake` checks that a command speaks MCP: it starts the command, asks for its tools, and ends it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import anyio
from anyio.to_thread import run_sync
from pydantic import ValidationError

from mcp_server import __version__
from mcp_server.clients.adapters import opencode
from mcp_server.clients.adapters.adapter import CLAUDE_CODE, SECONDS
from mcp_server.clients.hooks import command, listener, protocol
from mcp_server.clients.installers import config_file, entries
from mcp_server.clients.installers.install import record_of
from mcp_server.clients.installers.known import CLIENTS, Client, Machine
from mcp_server.clients.installers.plan import hooks_place, place, plugin_of
from mcp_server.errors import ContextManagerError
from mcp_server.home import HOME_VARIABLE
from mcp_server.memory import Memory
from mcp_server.status.doctor import Check

PLUGIN_SERVER = ("context-manager-mcp", "--hooks")
PLUGIN_HOOK = ("context-manager", "hook")
"""The commands that the plugin starts, by name; a test compares them with the plugin."""

State = Literal["installed", "plugin", "not installed", "broken", "not here"]


@dataclass(frozen=True, slots=True)
class ClientStatus:
    """A client, its configuration file, and our entry in it. `words` is the entry's command with its arguments."""

    client: Client
    project: Path | None
    file: Path
    state: State
    problem: str = ""
    name: str = ""
    words: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    hooks: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def workspace(self) -> Path | None:
        for index, word in enumerate(self.words):
            if word == "--workspace" and index + 1 < len(self.words):
                return Path(self.words[index + 1])
            if word.startswith("--workspace="):
                return Path(word.partition("=")[2])
        return Path(self.env[HOME_VARIABLE]) if HOME_VARIABLE in self.env else None

    @property
    def title(self) -> str:
        return self.client.title + (f" ({self.project})" if self.project else "")

    def command(self, verb: str) -> str:
        """Returns our command `install` or `uninstall` for this client."""
        return f"context-manager {verb} {self.client.name}{' --project' if self.project else ''}"

    def as_dict(self) -> dict[str, Any]:
        return {
            "client": self.client.name,
            "title": self.client.title,
            "project": str(self.project) if self.project else None,
            "file": str(self.file),
            "state": self.state,
            "problem": self.problem,
            "command": list(self.words),
            "hooks": sorted(self.hooks),
        }


def survey(machine: Machine, projects: Sequence[tuple[Client, Path]] = ()) -> list[ClientStatus]:
    """Returns the status of every known client, for all projects and for the given single projects."""
    return [look(client, machine, project) for client, project in (*((client, None) for client in CLIENTS), *projects)]


def look(client: Client, machine: Machine, project: Path | None = None) -> ClientStatus:
    """Returns the status of one client. An unreadable file becomes the status `broken`."""
    path, container = place(client, machine, project)
    try:
        file = config_file.read(path)
        entries.refuse_comments(client, file.text, str(path))
        servers = entries.servers(client, container, file.text, str(path))
        hooks = _hooks_found(client, machine, project)
    except ContextManagerError as error:
        return ClientStatus(client, project, path, "broken", str(error))
    names = entries.ours(servers)
    plugin = plugin_of(machine) if client.hooks is CLAUDE_CODE else None
    if not names and plugin and project is None:
        home = machine.environ.get(HOME_VARIABLE)
        env = {HOME_VARIABLE: home} if home else {}  # Claude Code passes on its own environment
        return ClientStatus(client, None, path, "plugin", name=plugin, words=PLUGIN_SERVER, env=env, hooks=hooks)
    if not names:
        return ClientStatus(client, project, path, "not installed" if client.here(machine) else "not here", hooks=hooks)
    entry = servers[names[0]]
    env = entry.get("env") if isinstance(entry.get("env"), dict) else {}
    words, variables = tuple(entries.words_of(entry)), {key: str(env[key]) for key in env}
    found = ClientStatus(client, project, path, "installed", "", names[0], words, variables, hooks)
    keep = f"claude plugin disable {plugin}, or {found.command('uninstall')}"
    twice = f"the plugin is enabled too and does the same; keep only one: {keep}"
    return replace(found, problem=twice) if plugin else found


def _hooks_found(client: Client, machine: Machine, project: Path | None) -> dict[str, dict[str, Any]]:
    path = hooks_place(client.hooks, machine, project)
    if path is None:
        return {}
    text = config_file.read(path).text
    if client.hooks and client.hooks.plugin:
        command = opencode.command_in(text)
        return {"plugin": {"command": command[0], "args": command[1:]}} if command else {}
    entries.refuse_comments(client, text, str(path))
    return entries.present(text, str(path))


Start = tuple[bool, tuple[str, ...], tuple[tuple[str, str], ...]]
"""Whether the process gets the whole environment, the command with its arguments, and the entry's variables."""

HOOK_PATIENCE = 10.0
ANSWER_PATIENCE = 1.0
MANY = 200
"""More waiting events than this mean that nothing handles them."""


async def examine_chain(memory: Memory, machine: Machine) -> tuple[Check, ...]:
    """Returns the checks of every installed client (file, command, a real handshake, hooks) and of socket and queue."""
    found = await run_sync(survey, machine, await run_sync(projects, memory))
    installed = [each for each in found if each.state in ("installed", "plugin")]
    checks = [await run_sync(_hook_socket, memory), await run_sync(_queue, memory)]  # before it starts servers
    answers: dict[Start, Answered] = {}

    async def shake_hands(each: ClientStatus) -> None:
        whole = each.client.whole_environment
        answers[_start(each)] = await handshake(each.words, machine.environ, each.env, whole=whole)

    async with anyio.create_task_group() as tasks:
        for each in {_start(each): each for each in installed}.values():  # each command once
            tasks.start_soon(shake_hands, each)
    for each in found:
        if each.state == "broken":
            checks.append(Check(each.title, False, each.problem, "fix that file, or replace it with a backup"))
        elif each.state == "plugin":
            checks.append(await run_sync(_plugin, each, answers[_start(each)], memory, machine))
        elif each.state == "installed":
            checks.append(_server(each, answers[_start(each)], memory, machine))
            if each.client.hooks:
                checks.append(await run_sync(_hooks, each, machine))
    if not any(each.state in ("installed", "plugin", "broken") for each in found):
        here = [each.client.name for each in found if each.state != "not here"]
        advice = f"context-manager install {here[0]}" if here else "context-manager install --help"
        checks.append(Check("clients", False, "no client is connected to this memory", advice, matters=False))
    return tuple(checks)


def projects(memory: Memory) -> list[tuple[Client, Path]]:
    """Returns the single projects with an installation, from the records."""
    return [
        (client, Path(found.project))
        for client in CLIENTS
        for found in record_of(memory, client).installations
        if found.project is not None
    ]


def _start(found: ClientStatus) -> Start:
    return found.client.whole_environment, found.words, tuple(sorted(found.env.items()))


def _server(found: ClientStatus, answered: Answered, memory: Memory, machine: Machine) -> Check:
    again = found.command("install")
    if answered.problem:
        return Check(found.title, False, f"{found.file}: {' '.join(found.words)}: {answered.problem}", again)
    said = f"connected in {answered.seconds:.1f} s, {len(answered.tools)} tools"
    other = found.workspace or machine.home / ".context-manager"
    if os.path.realpath(other.expanduser()) != str(memory.disk.root):
        return Check(found.title, False, f"{said}, but to another memory: {other}", again, matters=False)
    if answered.version != __version__:
        return Check(found.title, False, f"{said}, but version {answered.version}", again, matters=False)
    if found.state == "installed" and found.client.hooks and ("--hooks" in found.words) != bool(found.hooks):
        odd = "with --hooks, but without hooks" if "--hooks" in found.words else "with hooks, but without --hooks"
        return Check(found.title, False, f"{said}, {odd}", again)
    if found.problem:
        return Check(found.title, False, f"{said}, but {found.problem}", matters=False)
    return Check(found.title, True, said)


def _plugin(found: ClientStatus, answered: Answered, memory: Memory, machine: Machine) -> Check:
    """Returns the check of the plugin, which starts our commands by name and reports nothing if they are missing."""
    problem = answered.problem or _run_hook(PLUGIN_HOOK, machine)[0]
    if problem:
        detail = f"the plugin {found.name} is enabled, but {problem}"
        return Check(found.title, False, detail, "put the folder of both commands on PATH (`uv tool install` does)")
    checked = _server(found, answered, memory, machine)
    advice = "" if checked.ok else "the plugin starts the first context-manager-mcp on PATH: fix that one"
    return replace(checked, detail=f"the plugin {found.name} is enabled; {checked.detail}", advice=advice)


def _hooks(found: ClientStatus, machine: Machine) -> Check:
    name, again = f"{found.title} hooks", found.command("install")
    if not found.hooks:
        return Check(name, False, "none: nothing is recorded or added automatically", again, matters=False)
    lacking = [event for event in found.client.hooks.events if event not in found.hooks] if found.client.hooks else []
    if lacking:
        return Check(name, False, f"missing: {', '.join(lacking)}", again)
    took, commands = 0.0, dict[tuple[str, ...], None]()
    for hook in found.hooks.values():  # without the event the command does nothing and exits with 0
        commands[tuple(word for word in entries.words_of_hook(hook) if word not in (*SECONDS, "EVENT"))] = None
    for words in commands:
        problem, took = _run_hook(words, machine)
        if problem:
            return Check(name, False, problem, again)
    return Check(name, True, f"all {len(found.hooks)} there, the command answers in {took * 1000:.0f} ms")


def _run_hook(words: Sequence[str], machine: Machine) -> tuple[str, float]:
    """Returns why the hook command does not work ("" if it does), and the seconds that it took."""
    if problem := missing(words, machine.environ):
        return problem, 0.0
    began = time.monotonic()
    try:
        done = subprocess.run(
            list(words), input=b"{}", capture_output=True, timeout=HOOK_PATIENCE, env=dict(machine.environ), check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{words[0]}: {error}", 0.0
    took = time.monotonic() - began
    if done.returncode:
        last = (done.stderr.decode("utf-8", "replace").strip().splitlines() or ["nothing"])[-1]
        return f"{' '.join(words)} ended with exit code {done.returncode}; it said: {last}", took
    return "", took


def _hook_socket(memory: Memory) -> Check:
    """Returns the check whether hooks reach the maintaining process. It sends no event, so nothing changes."""
    local = memory.disk.local
    held = memory.locks.try_maintainer()
    stalls = False
    if held is not None:
        held.release()
    else:
        answer, stalls = command.ask(str(local), "", time.monotonic() + ANSWER_PATIENCE)
        if answer is not None:
            return Check("hook socket", True, "the running server answers hooks")
    if why := listener.obstacle(local):
        advice = "fix that folder, or set workspace.local_dir to another one; until then nothing is added to prompts"
        return Check("hook socket", False, f"hooks cannot reach a server: {why}", advice)
    if held is not None:
        return Check("hook socket", True, "no server is running now; events of hooks are queued until one is")
    if not stalls and (protocol.is_starting(str(local)) or not _is_alive(local / protocol.ADDRESS)):
        said = "a command is using the memory; events of hooks are queued until it is done"
        return Check("hook socket", True, said)
    advice = f"start the clients again; if that does not help, delete {local / protocol.ADDRESS}"
    return Check("hook socket", False, "a server is running and does not answer hooks", advice)


def _is_alive(address: Path) -> bool:
    """Returns True if the process that wrote the address is alive."""
    try:
        _, pid, _, _ = protocol.read_address(address.read_bytes())
        if os.name == "posix":  # on Windows signal 0 would end the process
            os.kill(pid, 0)
    except PermissionError:  # another user's process
        return True
    except (OSError, ValueError):
        return False
    return True


def _queue(memory: Memory) -> Check:
    waiting = len(listener.queued(memory.disk.local))
    folder = memory.disk.local / listener.REJECTED
    rejected = len(list(folder.iterdir())) if folder.is_dir() else 0
    if rejected:
        advice = f"look at the files in {folder}, then delete them"
        return Check("hook queue", False, f"{rejected} events could not be handled", advice, matters=False)
    advice = "run context-manager status, which handles them" if waiting > MANY else ""
    return Check("hook queue", waiting <= MANY, f"{waiting} waiting" if waiting else "empty", advice, matters=False)


PATIENCE = 30.0
"""Time limit in seconds, the same as Claude Code's. A first start on a busy machine takes over 10 s."""


@dataclass(frozen=True, slots=True)
class Answered:
    """The result of a handshake. `problem` is "" if it succeeded."""

    seconds: float
    version: str = ""
    tools: tuple[str, ...] = ()
    problem: str = ""


async def handshake(
    words: Sequence[str],
    environ: Mapping[str, str],
    more: Mapping[str, str] | None = None,
    *,
    whole: bool = False,
    patience: float = PATIENCE,
) -> Answered:
    """Starts `words` as a client does, with `more` in its environment, and asks for its tools.

    The process gets the variables that most clients pass on, or with `whole` all of `environ`.
    """
    from mcp.client.session import ClientSession  # importing it takes 0.3 s
    from mcp.client.stdio import StdioServerParameters, stdio_client
    from mcp.shared.exceptions import MCPError
    from mcp.types import CONNECTION_CLOSED, Implementation

    if problem := missing(words, environ):
        return Answered(0.0, problem=problem)
    env = {**(environ if whole else {}), **(more or {})}
    command = StdioServerParameters(command=words[0], args=list(words[1:]), env=env)
    began = time.monotonic()
    version, problem = "", f"no answer within {patience:.0f} s"
    tools: tuple[str, ...] = ()
    scope = anyio.move_on_after(patience)

    async def look(message: object) -> None:
        nonlocal problem
        if isinstance(message, ValidationError):
            problem = f"its stdout is not MCP: {str(message.errors()[0]['input'])[:80]!r}"
            scope.cancel()

    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        try:
            async with (
                stdio_client(command, log) as streams,
                ClientSession(
                    *streams,
                    message_handler=look,
                    client_info=Implementation(name="context-manager-doctor", version=__version__),
                ) as session,
            ):
                with scope:
                    try:
                        version = (await session.initialize()).server_info.version
                        tools = tuple(tool.name for tool in (await session.list_tools()).tools)
                        problem = ""
                    except MCPError as error:
                        ended = error.error.code == CONNECTION_CLOSED
                        problem = "it ended at once" if ended else f"it refused: {error.error.message}"
                took = time.monotonic() - began  # without the time to end
        except OSError as error:
            return Answered(0.0, problem=f"it cannot be started: {error.strerror or error}")
        log.seek(0)
        said = [line.strip()[:300] for line in log if line.strip()]
    last = f"; it said: {said[-1]}" if said and problem else ""
    return Answered(took, version, tools, problem + last)


def missing(words: Sequence[str], environ: Mapping[str, str]) -> str:
    if not words or not words[0]:
        return "no command is named"
    command = words[0]
    if Path(command).is_absolute():
        if not Path(command).exists():
            return f"there is no {command}"
        return "" if os.access(command, os.X_OK) else f"{command} is not executable"
    return "" if shutil.which(command, path=environ.get("PATH")) else f"{command} is not on PATH"
