"""A client starts the very installation that was asked to install, by absolute paths."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from mcp_server.clients.installers.plan import launching
from mcp_server.errors import Unavailable
from tests.clients.installers.homes import machine
from tests.running import printed


def executable(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_the_commands_beside_the_interpreter_are_started(tmp_path: Path) -> None:
    here = Path(sys.executable).parent
    found = launching(machine(tmp_path), tmp_path / ".context-manager")
    assert found.serving() == (str(here / "context-manager-mcp"), [])
    assert found.serving("--hooks") == (str(here / "context-manager-mcp"), ["--hooks"])
    assert found.hook("Stop") == (str(here / "context-manager"), ["hook", "Stop"])


def test_a_workspace_is_named_where_it_is_not_the_default(tmp_path: Path) -> None:
    found = launching(machine(tmp_path), tmp_path / "other")
    assert found.serving("--hooks")[1] == ["--hooks", "--workspace", str(tmp_path / "other")]
    assert found.hook("Stop")[1] == ["hook", "Stop", "--workspace", str(tmp_path / "other")]


def test_windows_has_them_as_programs_in_scripts(tmp_path: Path) -> None:
    for name in ("context-manager-mcp.exe", "context-manager.exe"):
        executable(tmp_path / "py" / "Scripts" / name)
    found = launching(machine(tmp_path, "win32"), tmp_path, tmp_path / "py" / "python.exe", tmp_path / "py")
    assert found.serving()[0].endswith("context-manager-mcp.exe")


def test_a_command_that_lies_elsewhere_is_found_by_the_packages_own_record(tmp_path: Path) -> None:
    """As after `pip install --user`: an interpreter that has no command of ours beside it."""
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python"
    python.symlink_to(Path(sys.executable).resolve())
    ask = (
        "from pathlib import Path; from mcp_server.clients.installers.plan import launching; "
        "from mcp_server.clients.installers.known import Machine; "
        "print(launching(Machine(Path('/h'), {}), Path('/h')).serving()[0])"
    )
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    assert printed([python, "-c", ask], env=environ).strip() == str(Path(sys.executable).parent / "context-manager-mcp")


def test_without_the_command_it_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="pip install context-manager-mcp"):
        launching(machine(tmp_path), tmp_path, tmp_path / "bin" / "python", tmp_path)


def test_what_runs_for_once_is_started_by_uvx(tmp_path: Path) -> None:
    uvx = executable(tmp_path / "tools" / "uvx")
    once = tmp_path / "cache" / "uv" / "archive-v0" / "AbC"
    for given in (machine(tmp_path, PATH=str(uvx.parent)), machine(tmp_path, UV=str(uvx.parent / "uv"))):
        found = launching(given, tmp_path, once / "bin" / "python", once)
        assert found.server[0] == found.cli[0] == str(uvx)
        assert found.server[-1] == "context-manager-mcp"
        assert found.cli[1] == "--from"
        assert found.hook("Stop")[1][-4:-2] == ["hook", "Stop"]
    with pytest.raises(Unavailable, match="uvx"):
        launching(machine(tmp_path), tmp_path, once / "bin" / "python", once)
