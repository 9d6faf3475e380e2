"""Where each client's configuration lies, on each system."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcp_server.clients.adapters.adapter import CLAUDE_CODE
from mcp_server.clients.installers.known import CLIENTS, client_named
from mcp_server.clients.installers.plan import project_folder
from mcp_server.errors import NotFound
from tests.clients.installers.homes import machine

LINUX = {
    "claude-code": ".claude.json",
    "claude-desktop": ".config/Claude/claude_desktop_config.json",
    "cursor": ".cursor/mcp.json",
    "vscode": ".config/Code/User/mcp.json",
    "windsurf": ".codeium/windsurf/mcp_config.json",
    "zed": ".config/zed/settings.json",
    "gemini": ".gemini/settings.json",
    "qwen": ".qwen/settings.json",
    "copilot": ".copilot/mcp-config.json",
    "opencode": ".config/opencode/opencode.json",
    "codex": ".codex/config.toml",
}
SUPPORT = "Library/Application Support"
MAC = LINUX | {
    "claude-desktop": f"{SUPPORT}/Claude/claude_desktop_config.json",
    "vscode": f"{SUPPORT}/Code/User/mcp.json",
}
WINDOWS = LINUX | {
    "claude-desktop": "AppData/Roaming/Claude/claude_desktop_config.json",
    "vscode": "AppData/Roaming/Code/User/mcp.json",
    "zed": "AppData/Roaming/Zed/settings.json",
}


@pytest.mark.parametrize(("system", "places"), [("linux", LINUX), ("darwin", MAC), ("win32", WINDOWS)])
def test_every_client_has_its_place(tmp_path: Path, system: str, places: dict[str, str]) -> None:
    found = {client.name: client.file(machine(tmp_path, system)).relative_to(tmp_path) for client in CLIENTS}
    assert {name: path.as_posix() for name, path in found.items()} == places


def test_variables_move_them(tmp_path: Path) -> None:
    moved = machine(
        tmp_path,
        CLAUDE_CONFIG_DIR=str(tmp_path / "cc"),
        XDG_CONFIG_HOME=str(tmp_path / "xdg"),
        CODEX_HOME=str(tmp_path / "cx"),
        GEMINI_CLI_HOME=str(tmp_path / "gm"),
        QWEN_HOME=str(tmp_path / "qw"),
        COPILOT_HOME=str(tmp_path / "co"),
    )
    assert client_named("claude-code").file(moved) == tmp_path / "cc/.claude.json"
    assert CLAUDE_CODE.hooks_file(moved.environ, moved.home, None) == tmp_path / "cc/settings.json"
    assert client_named("zed").file(moved) == tmp_path / "xdg/zed/settings.json"
    assert client_named("vscode").file(moved) == tmp_path / "xdg/Code/User/mcp.json"
    assert client_named("codex").file(moved) == tmp_path / "cx/config.toml"
    assert client_named("gemini").file(moved) == tmp_path / "gm/.gemini/settings.json"
    assert client_named("qwen").file(moved) == tmp_path / "qw/settings.json"
    assert client_named("copilot").file(moved) == tmp_path / "co/mcp-config.json"


def test_the_store_app_on_windows_has_a_folder_of_its_own(tmp_path: Path) -> None:
    windows = machine(tmp_path, "win32")
    packaged = tmp_path / "AppData/Local/Packages/Claude_pzs8sxrjxfjjc/LocalCache/Roaming/Claude"
    packaged.parent.mkdir(parents=True)  # it was not started yet
    assert client_named("claude-desktop").file(windows).parent == packaged
    newer = tmp_path / "AppData/Local/Claude-Data/claude_x"
    newer.mkdir(parents=True)
    assert client_named("claude-desktop").file(windows).parent == newer


@pytest.mark.parametrize(
    ("system", "folder"), [("linux", ".config/devin"), ("darwin", ".config/devin"), ("win32", "AppData/Roaming/devin")]
)
def test_windsurf_under_its_new_name_has_a_new_file(tmp_path: Path, system: str, folder: str) -> None:
    (tmp_path / ".codeium/windsurf").mkdir(parents=True)  # an earlier version has left it
    client = client_named("Devin Desktop")
    assert client.file(machine(tmp_path, system)) == tmp_path / ".codeium/windsurf/mcp_config.json"
    (tmp_path / folder).mkdir(parents=True)
    assert client.file(machine(tmp_path, system)) == tmp_path / folder / "mcp_config.json"


def test_another_kind_of_vscode_is_found_where_it_is_the_only_one(tmp_path: Path) -> None:
    (tmp_path / ".config/VSCodium/User").mkdir(parents=True)
    assert client_named("vscode").file(machine(tmp_path)) == tmp_path / ".config/VSCodium/User/mcp.json"


def test_a_client_is_here_by_its_folder_its_file_or_its_command(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    assert not any(client.here(machine(home)) for client in CLIENTS)
    (home / ".cursor").mkdir()
    (home / ".claude").mkdir()
    assert {client.name for client in CLIENTS if client.here(machine(home))} == {"cursor", "claude-code"}
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "codex").write_text("#!/bin/sh\n")
    (programs / "codex").chmod(0o755)
    assert client_named("codex").here(machine(home, PATH=str(programs)))


def test_a_wrong_name_gets_the_nearest() -> None:
    assert client_named("VS Code").name == "vscode"
    assert client_named("Claude_Desktop").name == "claude-desktop"
    with pytest.raises(NotFound, match="did you mean 'windsurf'"):
        client_named("windserf")
    with pytest.raises(NotFound, match="the clients are claude-code, claude-desktop"):
        client_named("x")


def test_a_project_is_the_top_of_its_repository(tmp_path: Path) -> None:
    inside = tmp_path / "repository/src/deep"
    inside.mkdir(parents=True)
    (tmp_path / "repository/.git").mkdir()
    assert project_folder(inside) == tmp_path / "repository"
    assert project_folder(tmp_path) == tmp_path
