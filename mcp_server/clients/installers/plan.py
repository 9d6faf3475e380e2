"""What an installation would change: decided first, shown or carried out afterwards."""

from __future__ import annotations

import difflib
import json
import os
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from mcp_server.clients.installers import claude_code_hooks, config_file, entries, jsonc, toml_edit
from mcp_server.clients.installers import jsonc as jsonc_edit
from mcp_server.clients.installers.config_file import ConfigFile
from mcp_server.clients.installers.known import Client, Machine, claude_code_settings
from mcp_server.errors import ContextManagerError, Refused, Unavailable

PACKAGE = "context-manager-mcp"
_FOR_ONE_RUN = re.compile(r"(?:archive|environments|builds)-v\d+")
"""Folders of uv's cache: what runs from there may be gone tomorrow."""


@dataclass(frozen=True, slots=True)
class Launch:
    """The words that start the server and the command line; `workspace` is named only where it is not the default."""

    server: tuple[str, ...]
    cli: tuple[str, ...]
    workspace: Path | None = None

    def serving(self, *more: str) -> tuple[str, list[str]]:
        """Command and arguments of the server."""
        command, *arguments = self.server
        return command, [*arguments, *more, *self._named()]

    def hook(self, event: str) -> tuple[str, list[str]]:
        """Command and arguments for a client's hook."""
        command, *arguments = self.cli
        return command, [*arguments, "hook", event, *self._named()]

    def _named(self) -> list[str]:
        return ["--workspace", str(self.workspace)] if self.workspace else []


def launching(machine: Machine, workspace: Path, python: Path | None = None, prefix: Path | None = None) -> Launch:
    """How a client is to start us. `python` and `prefix` are this interpreter's by default.

    A client does not have the shell's environment, so the workspace is named wherever it is not `~/.context-manager`,
    also where `CONTEXT_MANAGER_HOME` set it. Raises Unavailable if there is no command beside the interpreter, nor
    where this package says that it was installed.
    """
    named = None if workspace == machine.home / ".context-manager" else workspace
    recorded = () if python else _recorded()
    python = python or Path(sys.executable)
    if any(_FOR_ONE_RUN.fullmatch(part) for part in (prefix or Path(sys.prefix)).parts):
        uvx = _uvx(machine)
        source = _source()
        return Launch(
            (uvx, *(("--from", source) if source else ()), PACKAGE),
            (uvx, "--from", source or PACKAGE, "context-manager"),
            named,
        )
    folders = (python.parent, python.parent / "Scripts", *recorded)
    return Launch((_command(folders, PACKAGE, python),), (_command(folders, "context-manager", python),), named)


def _command(folders: Iterable[Path], name: str, python: Path) -> str:
    for folder in folders:
        for file in (folder / name, folder / f"{name}.exe"):
            if file.is_file():
                return str(file.absolute())
    raise Unavailable(f"there is no command {name!r} beside {python}; install with: pip install {PACKAGE}")


def _recorded() -> tuple[Path, ...]:
    """Where the commands of this package were installed: `pip install --user` puts them beside no interpreter."""
    try:
        files = distribution(PACKAGE).files or ()
    except PackageNotFoundError:
        return ()
    commands = (file for file in files if file.name in (PACKAGE, f"{PACKAGE}.exe"))
    return tuple(Path(os.path.abspath(str(file.locate()))).parent for file in commands)  # noqa: PTH100 - as it is named


def _uvx(machine: Machine) -> str:
    uv = machine.environ.get("UV")  # uv tells what it starts where it is
    name = "uvx.exe" if machine.system == "win32" else "uvx"
    if uv and (Path(uv).parent / name).is_file():
        return str(Path(uv).parent / name)
    found = machine.which("uvx")
    if found is None:
        raise Unavailable("uvx started this, but is not on PATH; add its folder to PATH and try again")
    return found


def _source() -> str | None:
    """What `uvx --from` was given, where that was no name of a package: pip's and uv's record of it (PEP 610)."""
    try:
        recorded = distribution(PACKAGE).read_text("direct_url.json")
        found = json.loads(recorded) if recorded else {}
    except (PackageNotFoundError, ValueError):
        return None
    url = found.get("url")
    if not isinstance(url, str):
        return None
    version = found.get("vcs_info")
    if isinstance(version, dict):
        return f"{version.get('vcs', 'git')}+{url}@{version.get('commit_id', 'HEAD')}"
    return url


@dataclass(frozen=True, slots=True)
class Change:
    """One file: as it is, and as it would be. `made` are the objects and lists that are new, outermost first."""

    file: ConfigFile
    after: str
    made: tuple[tuple[str, ...], ...]
    snippet: str
    """Our part of it, for who wants to write it by hand."""

    @property
    def changes(self) -> bool:
        """True if the file would be another one."""
        return self.file.data is None or self.file.encoded(self.after) != self.file.data

    def diff(self) -> str:
        """The change as a person reads it."""
        before = self.file.text.splitlines() if self.file.data is not None else []
        name = str(self.file.path)
        old = name if self.file.data is not None else "nothing"
        return "\n".join(difflib.unified_diff(before, self.after.splitlines(), old, name, lineterm="", n=2))


@dataclass(frozen=True, slots=True)
class Plan:
    """An installation: which client, for which project folder (None: for all), which files, and what to know."""

    client: Client
    project: Path | None
    name: str
    """The name of our entry there."""
    changes: tuple[Change, ...]
    notes: tuple[str, ...] = ()

    @property
    def needed(self) -> bool:
        """False if everything is as it should be."""
        return any(change.changes for change in self.changes)


def plan(client: Client, machine: Machine, launch: Launch, *, project: Path | None = None, hooks: bool = True) -> Plan:
    """What has to be written so that `client` starts us as `launch` says; nothing is written yet.

    Raises Invalid with file and line for a broken file, Refused for a read-only one and for a project where the client
    knows no such thing, Conflict if our names are taken.
    """
    notes = []
    hooks = hooks and client.hooks
    if client.hooks and (plugin := plugin_of(machine)):
        raise Refused(
            f"the plugin {plugin} is enabled in {client.title} and brings the server and the hooks already; "
            f"keep it, or take it out first: claude plugin disable {plugin}"
        )
    path, container = place(client, machine, project)
    if not client.here(machine):
        notes.append(f"{client.title} does not seem to be on this machine; it finds the entry when it is.")
    file = config_file.read(path)
    text = _readable(client, file)
    command, arguments = launch.serving(*(("--hooks",) if hooks else ()))
    fields = {**client.also, "command": command, "args": arguments}
    after, name = entries.put(client, container, text, fields, str(path))
    if name != entries.NAMES[0] and name not in entries.servers(client, container, text, str(path)):
        notes.append(f"{path} has another server named {entries.NAMES[0]!r}, so ours is called {name!r}.")
    changes = [Change(file, after, _made(client, (*container, name), text), _snippet(client, container, name, fields))]
    if hooks:
        changes.append(_hooks(client, machine, launch, project))
    for change in changes:
        if change.changes:
            config_file.refuse_read_only(change.file)
        if project is not None and change.file.path.is_relative_to(project):
            notes.append(f"{change.file.path} names a path of this machine: keep it out of what you share.")
    return Plan(client, project, name, tuple(changes), tuple(notes))


def place(client: Client, machine: Machine, project: Path | None) -> tuple[Path, tuple[str, ...]]:
    """The file and the keys under which the client's servers stand, for all projects or for one.

    Raises Refused where the client knows nothing of the kind.
    """
    if project is None:
        return client.file(machine), client.container
    if client.project is not None:
        return project / client.project, client.container
    if client.hooks:  # Claude Code keeps what is for one project and this user alone in its own file
        return client.file(machine), ("projects", project.as_posix(), *client.container)
    raise Refused(f"{client.title} has no configuration for a single project; leave out --project")


def hooks_place(machine: Machine, project: Path | None) -> Path:
    """The file in which Claude Code's hooks stand."""
    return claude_code_settings(machine) if project is None else project / ".claude" / "settings.local.json"


def plugin_of(machine: Machine) -> str | None:
    """The name of our plugin, if Claude Code has it enabled."""
    try:
        settings = config_file.read(claude_code_settings(machine))
        root = jsonc.parse(settings.text, str(settings.path)).root
    except ContextManagerError:  # said where it is read to be changed
        return None
    enabled = root.value.get("enabledPlugins") if root is not None and isinstance(root.value, dict) else None
    if not isinstance(enabled, dict):
        return None
    return next((name for name, on in enabled.items() if on and name.startswith("context-manager@")), None)


def project_folder(folder: Path) -> Path:
    """The top of the repository that `folder` is in, else `folder`: what clients take for the project."""
    folder = folder.resolve()
    return next((place for place in (folder, *folder.parents) if (place / ".git").exists()), folder)


def _hooks(client: Client, machine: Machine, launch: Launch, project: Path | None) -> Change:
    path = hooks_place(machine, project)
    file = config_file.read(path)
    text = _readable(client, file)
    handlers = claude_code_hooks.wanted(launch.hook, shell=machine.system != "win32")
    after = claude_code_hooks.put(text, handlers, str(path))
    made = [way for event in handlers for way in _made(client, ("hooks", event, ""), text)]
    snippet = {"hooks": {event: [{"hooks": [handler]}] for event, handler in handlers.items()}}
    return Change(file, after, tuple(dict.fromkeys(made)), json.dumps(snippet, ensure_ascii=False, indent=2))


def _readable(client: Client, file: ConfigFile) -> str:
    """The file's text, if both we and the client can read it."""
    entries.refuse_comments(client, file.text, str(file.path))
    return file.text


def _made(client: Client, path: tuple[str, ...], text: str) -> tuple[tuple[str, ...], ...]:
    """Which objects on the way to `path` are not in `text`."""
    if client.form == "toml":
        return ()
    document = jsonc.parse(text, "")
    ways = (path[:depth] for depth in range(1, len(path)))
    return tuple(way for way in ways if jsonc_edit.get(document, way) is None)


def _snippet(client: Client, container: tuple[str, ...], name: str, fields: Mapping[str, Any]) -> str:
    if client.form == "toml":
        return toml_edit.put("", (*container, name), fields, "").rstrip("\n")
    return jsonc_edit.put("", (*container, name), dict(fields), "").rstrip("\n")
