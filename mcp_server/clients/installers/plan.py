"""Plans an installation: how a client starts this server, and what changes in its files. Writes nothing."""

from __future__ import annotations

import difflib
import json
import os
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from mcp_server.clients.adapters import opencode
from mcp_server.clients.adapters.adapter import CLAUDE_CODE, Adapter, as_mapping
from mcp_server.clients.installers import config_file, entries, jsonc, toml_edit
from mcp_server.clients.installers.config_file import ConfigFile
from mcp_server.clients.installers.known import Client, Machine
from mcp_server.errors import ContextManagerError, Refused, Unavailable

PACKAGE = "context-manager-mcp"
_FOR_ONE_RUN = re.compile(r"(?:archive|environments|builds)-v\d+")
"""Folders of uv's cache, whose programs may be deleted at any time."""


@dataclass(frozen=True, slots=True)
class Launch:
    """The commands of the server and of the command line. `workspace` is None for the default one."""

    server: tuple[str, ...]
    cli: tuple[str, ...]
    workspace: Path | None = None

    def serving(self, *more: str) -> tuple[str, list[str]]:
        command, *arguments = self.server
        return command, [*arguments, *more, *self._named()]

    def hook(self, event: str, client: str | None = None) -> tuple[str, list[str]]:
        """Returns the command and the arguments of a client's hook. Without `client` it is Claude Code's."""
        command, *arguments = self.cli
        return command, [*arguments, "hook", event, *(("--client", client) if client else ()), *self._named()]

    def _named(self) -> list[str]:
        return ["--workspace", str(self.workspace)] if self.workspace else []


def launching(machine: Machine, workspace: Path, python: Path | None = None, prefix: Path | None = None) -> Launch:
    """Returns the commands with which a client starts this installation: absolute paths, or `uvx` if that started us.

    A client does not have the shell's environment, so the commands name any workspace but `~/.context-manager`.
    `python` and `prefix` are this interpreter's by default. Raises Unavailable if the command is neither beside the
    interpreter nor where the package's metadata says.
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
    """Returns the folders of this package's commands: `pip install --user` does not put them beside the interpreter."""
    try:
        files = distribution(PACKAGE).files or ()
    except PackageNotFoundError:
        return ()
    commands = (file for file in files if file.name in (PACKAGE, f"{PACKAGE}.exe"))
    return tuple(Path(os.path.abspath(str(file.locate()))).parent for file in commands)  # noqa: PTH100 - as it is named


def _uvx(machine: Machine) -> str:
    uv = machine.environ.get("UV")  # uv sets it for the programs that it starts
    name = "uvx.exe" if machine.system == "win32" else "uvx"
    if uv and (Path(uv).parent / name).is_file():
        return str(Path(uv).parent / name)
    found = machine.which("uvx")
    if found is None:
        raise Unavailable("uvx started this, but is not on PATH; add its folder to PATH and try again")
    return found


def _source() -> str | None:
    """Returns the source given to `uvx --from`, from the installer's record (PEP 610); None for a package name."""
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
class FileChange:
    """The change of one file."""

    file: ConfigFile
    after: str
    snippet: str
    """Our part of the file, for users who edit it by hand."""

    @property
    def changes(self) -> bool:
        return self.file.data is None or self.file.encoded(self.after) != self.file.data

    def diff(self) -> str:
        before = self.file.text.splitlines() if self.file.data is not None else []
        name = str(self.file.path)
        old = name if self.file.data is not None else "nothing"
        return "\n".join(difflib.unified_diff(before, self.after.splitlines(), old, name, lineterm="", n=2))


@dataclass(frozen=True, slots=True)
class Plan:
    """A planned installation into a client, for one project folder or for all (None), with notes for the user."""

    client: Client
    project: Path | None
    name: str
    """The name of our entry."""
    changes: tuple[FileChange, ...]
    hooks: bool
    """Whether hooks are installed too."""
    notes: tuple[str, ...] = ()

    @property
    def needed(self) -> bool:
        return any(change.changes for change in self.changes)


def plan(client: Client, machine: Machine, launch: Launch, *, project: Path | None = None, hooks: bool = True) -> Plan:
    """Returns the changes that make `client` start this server as `launch` says.

    Raises Invalid with file and line for a broken file, Refused for a read-only one or if the client has no
    configuration for a project, Conflict if our names are taken.
    """
    notes = []
    if client.hooks is CLAUDE_CODE and (plugin := plugin_of(machine)):
        raise Refused(
            f"the plugin {plugin} is enabled in {client.title} and already adds the server and the hooks; "
            f"keep it, or disable it first: claude plugin disable {plugin}"
        )
    path, container = place(client, machine, project)
    if not client.here(machine):
        notes.append(
            f"{client.title} does not seem to be on this machine; it will find the entry when it is installed."
        )
    file = config_file.read(path)
    text = _readable(client, file)
    adapter = client.hooks if hooks else None
    place_of_hooks = hooks_place(adapter, machine, project)
    command, arguments = launch.serving(*(("--hooks",) if place_of_hooks else ()))
    started = {"command": [command, *arguments]} if client.joined else {"command": command, "args": arguments}
    fields = {**client.also, **started}
    after, name = entries.put(client, container, text, fields, str(path))
    if name != entries.NAMES[0] and name not in entries.servers(client, container, text, str(path)):
        notes.append(f"{path} has another server named {entries.NAMES[0]!r}, so ours is called {name!r}.")
    edit = toml_edit.put if client.form == "toml" else jsonc.put
    changes = [FileChange(file, after, edit("", (*container, name), fields, "").rstrip("\n"))]
    if adapter and place_of_hooks:
        one_file = changes.pop() if place_of_hooks == path else None
        changes.append(_hooks(client, adapter, machine, launch, place_of_hooks, one_file))
    for change in changes:
        if change.changes:
            config_file.refuse_read_only(change.file)
        if project is not None and change.file.path.is_relative_to(project):
            notes.append(f"{change.file.path} contains a path of this machine: do not commit or share it.")
    return Plan(client, project, name, tuple(changes), bool(place_of_hooks), tuple(notes))


def place(client: Client, machine: Machine, project: Path | None) -> tuple[Path, tuple[str, ...]]:
    """Returns the file and the path of keys of the client's servers, for all projects or for one.

    Raises Refused if the client has no configuration for a project.
    """
    if project is None:
        return client.file(machine), client.container
    if client.project is not None:
        return project / client.project, client.container
    if client.hooks is CLAUDE_CODE:  # it has private project settings in its own file
        return client.file(machine), ("projects", project.as_posix(), *client.container)
    raise Refused(f"{client.title} has no configuration for a single project; leave out --project")


def hooks_place(adapter: Adapter | None, machine: Machine, project: Path | None) -> Path | None:
    """Returns the file with a client's hooks, for all projects or for one; None if there is no such file."""
    return adapter.hooks_file(machine.environ, machine.home, project) if adapter else None


def plugin_of(machine: Machine) -> str | None:
    """Returns the name of our plugin if Claude Code has it enabled, else None."""
    try:
        settings = config_file.read(CLAUDE_CODE.folder.of(machine.environ, machine.home) / CLAUDE_CODE.hooks)
        enabled = as_mapping(jsonc.read(settings.text, str(settings.path))).get("enabledPlugins")
    except ContextManagerError:  # reported when the file is read to be changed
        return None
    ours = ("memory@context-manager", "context-manager@")  # the second is the plugin's earlier name
    return next((name for name, on in as_mapping(enabled).items() if on and name.startswith(ours)), None)


def project_folder(folder: Path) -> Path:
    """Returns the project folder as clients define it: the root of the repository around `folder`, else `folder`."""
    folder = folder.resolve()
    return next((place for place in (folder, *folder.parents) if (place / ".git").exists()), folder)


def _hooks(
    client: Client, adapter: Adapter, machine: Machine, launch: Launch, path: Path, server: FileChange | None
) -> FileChange:
    """Returns the change that adds our hooks. `server` is the change of the same file that adds the server, if any."""
    file = server.file if server else config_file.read(path)
    if adapter.plugin:
        if file.text and not opencode.command_in(file.text):
            raise Refused(f"{path} is not ours; move it away and try again")
        text = adapter.plugin(*launch.hook("EVENT", client=adapter.client))
        return FileChange(file, text, text.rstrip("\n"))
    text = server.after if server else _readable(client, file)
    claude = adapter is CLAUDE_CODE
    hook = launch.hook if claude else partial(launch.hook, client=adapter.client)
    handlers = entries.wanted(adapter, hook, shell=not claude or machine.system != "win32")
    after = entries.put_hooks(text, handlers, str(path), adapter.hooks_begin)
    snippet = entries.put_hooks(server.snippet if server else "", handlers, "", adapter.hooks_begin)
    return FileChange(file, after, snippet.rstrip("\n"))


def _readable(client: Client, file: ConfigFile) -> str:
    entries.refuse_comments(client, file.text, str(file.path))
    return file.text
