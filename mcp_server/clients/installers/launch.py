"""How a client starts this very installation: the absolute path of the command, or `uvx` where we were started so."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from mcp_server.clients.installers.machine import Machine
from mcp_server.errors import Unavailable

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
