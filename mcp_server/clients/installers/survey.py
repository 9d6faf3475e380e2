"""Which clients are on this machine, and how our entry in each of them is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from mcp_server.clients.installers import claude_code_hooks, config_file, entries
from mcp_server.clients.installers.known import CLIENTS, Client
from mcp_server.clients.installers.machine import Machine
from mcp_server.clients.installers.plan import hooks_place, place, plugin_of
from mcp_server.errors import ContextManagerError
from mcp_server.home import HOME_VARIABLE

PLUGIN_SERVER = ("context-manager-mcp", "--hooks")
PLUGIN_HOOK = ("context-manager", "hook")
"""What the plugin starts, by name: a test holds that it does."""

State = Literal["installed", "plugin", "not installed", "broken", "not here"]


@dataclass(frozen=True, slots=True)
class Found:
    """A client, its configuration, and our part of it. `words` is the command of our entry with its arguments."""

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
        """The workspace that the entry names; None where it names none."""
        for index, word in enumerate(self.words):
            if word == "--workspace" and index + 1 < len(self.words):
                return Path(self.words[index + 1])
            if word.startswith("--workspace="):
                return Path(word.partition("=")[2])
        return Path(self.env[HOME_VARIABLE]) if HOME_VARIABLE in self.env else None

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
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


def survey(machine: Machine, projects: Sequence[tuple[Client, Path]] = ()) -> list[Found]:
    """Every known client, and the single projects that were installed into."""
    return [look(client, machine) for client in CLIENTS] + [
        look(client, machine, project) for client, project in projects
    ]


def look(client: Client, machine: Machine, project: Path | None = None) -> Found:
    """One client. A file that cannot be read is a problem here, not an error."""
    path, container = place(client, machine, project)
    try:
        file = config_file.read(path)
        entries.refuse_comments(client, file.text, str(path))
        servers = entries.servers(client, container, file.text, str(path))
        hooks = _hooks(client, machine, project)
    except ContextManagerError as error:
        return Found(client, project, path, "broken", str(error))
    names = entries.ours(servers)
    plugin = plugin_of(machine) if client.hooks else None
    if not names:
        plugin = plugin if project is None else None
        state: State = "plugin" if plugin else "not installed" if client.here(machine) else "not here"
        if plugin is None:
            return Found(client, project, path, state, hooks=hooks)
        home = machine.environ.get(HOME_VARIABLE)
        env = {HOME_VARIABLE: home} if home else {}  # Claude Code hands on what it has itself
        return Found(client, project, path, state, name=plugin, words=PLUGIN_SERVER, env=env, hooks=hooks)
    entry = servers[names[0]]
    env = entry.get("env") if isinstance(entry.get("env"), dict) else {}
    words = tuple(entries.words_of(entry))
    undo = f"context-manager uninstall {client.name}{' --project' if project else ''}"
    twice = f"the plugin is enabled too and does it again; keep one: claude plugin disable {plugin}, or {undo}"
    variables = {key: str(env[key]) for key in env}
    return Found(client, project, path, "installed", twice if plugin else "", names[0], words, variables, hooks)


def _hooks(client: Client, machine: Machine, project: Path | None) -> dict[str, dict[str, Any]]:
    if not client.hooks:
        return {}
    path = hooks_place(machine, project)
    text = config_file.read(path).text
    entries.refuse_comments(client, text, str(path))
    return claude_code_hooks.present(text, str(path))
