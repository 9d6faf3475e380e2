"""The supported clients: where each keeps its configuration, and under which key.

The facts are from the clients' documentation (2026-11). A comment marks facts that were tested with the real program.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from mcp_server.clients.adapters import codex, copilot, gemini, opencode
from mcp_server.clients.adapters.adapter import CLAUDE_CODE, Adapter
from mcp_server.errors import NotFound
from mcp_server.text.prose import did_you_mean


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine: home folder, environment and system (`sys.platform`), as a value, so that tests can use others."""

    home: Path
    environ: Mapping[str, str]
    system: str = sys.platform

    def settings_folder(self) -> Path:
        if self.system == "darwin":
            return self.home / "Library" / "Application Support"
        if self.system == "win32":
            return self.place("APPDATA", self.home / "AppData" / "Roaming")
        return self.config_folder()

    def config_folder(self) -> Path:
        return self.place("XDG_CONFIG_HOME", self.home / ".config")

    def place(self, variable: str, default: Path) -> Path:
        """Returns the folder in an environment variable, else `default`."""
        named = self.environ.get(variable, "").strip()
        return Path(named).expanduser() if named else default

    def which(self, command: str) -> str | None:
        return shutil.which(command, path=self.environ.get("PATH"))


_AGAIN = "Start {title} again, or reload its MCP servers."
_CLAUDE_EXPORT = (
    "To import earlier chats: in Claude, Settings → Privacy → Export data. You get an e-mail with a ZIP file, or with "
    "a list of several to download into one folder. Then run `context-manager import` with the file or the folder."
)


@dataclass(frozen=True, slots=True)
class Client:
    """One client. `file` is its own configuration, `project` the file of one project (relative to its folder)."""

    name: str
    title: str
    file: Callable[[Machine], Path]
    container: tuple[str, ...] = ("mcpServers",)
    """The path of keys to its servers."""
    project: str | None = None
    form: Literal["json", "toml"] = "json"
    plain: bool = False
    """True if it reads strict JSON only: a comment makes it ignore the whole file."""
    joined: bool = False
    """True if its entries have command and arguments in one list, `command`."""
    also: Mapping[str, Any] = field(default_factory=dict)
    """Fields of its entries besides `command` and `args`."""
    programs: tuple[str, ...] = ()
    """Commands on PATH that show that it is installed, even if its folder does not exist yet."""
    hooks: Adapter | None = None
    whole_environment: bool = False
    """True if servers get its whole environment (tested), not only some variables."""
    afterwards: str = _AGAIN
    """An instruction for the user after the installation, such as restarting the client."""
    history: str = ""
    """How to import earlier conversations, if that needs an export."""

    def here(self, machine: Machine) -> bool:
        file = self.file(machine)
        folder = self.hooks.folder.of(machine.environ, machine.home) if self.hooks else file.parent
        return file.exists() or folder.is_dir() or any(machine.which(program) for program in self.programs)


def _claude_desktop(machine: Machine) -> Path:
    """Returns the file of Claude Desktop.

    On Windows the app is a package since February 2026: its first start makes a folder of its own, and it does not see
    the usual one.
    """
    name = "claude_desktop_config.json"
    if machine.system == "win32":
        local = machine.place("LOCALAPPDATA", machine.home / "AppData" / "Local")
        for pattern, below in (("Claude-Data/[Cc]laude*", "."), ("Packages/Claude_*/LocalCache/Roaming", "Claude")):
            for folder in sorted(local.glob(pattern)):
                if folder.is_dir():
                    return folder / below / name
    return machine.settings_folder() / "Claude" / name


def _opencode(machine: Machine) -> Path:
    """Returns the file of OpenCode, which reads both names and merges them."""
    folder = machine.config_folder() / "opencode"
    with_comments = folder / "opencode.jsonc"
    return with_comments if with_comments.is_file() else folder / "opencode.json"


def _vscode(machine: Machine) -> Path:
    """Returns the file of the first installed edition, for its default profile. Other profiles have other files."""
    folders = [machine.settings_folder() / name / "User" for name in ("Code", "Code - Insiders", "VSCodium")]
    return next((folder for folder in folders if folder.is_dir()), folders[0]) / "mcp.json"


def _windsurf(machine: Machine) -> Path:
    """Returns the file of Windsurf, or Devin's if that folder exists: it is Devin Desktop since June 2026."""
    windows = machine.system == "win32"
    devin = (machine.settings_folder() if windows else machine.home / ".config") / "devin"
    folder = devin if devin.is_dir() else machine.home / ".codeium" / "windsurf"
    return folder / "mcp_config.json"


def _zed(machine: Machine) -> Path:
    if machine.system == "win32":
        return machine.settings_folder() / "Zed" / "settings.json"
    if machine.system == "darwin":
        return machine.home / ".config" / "zed" / "settings.json"
    return machine.config_folder() / "zed" / "settings.json"


CLIENTS: tuple[Client, ...] = (
    Client(
        "claude-code",
        "Claude Code",
        lambda machine: machine.place("CLAUDE_CONFIG_DIR", machine.home) / ".claude.json",  # tried with 2.1.329
        plain=True,
        also={"type": "stdio"},
        programs=("claude",),
        hooks=CLAUDE_CODE,
        whole_environment=True,
        afterwards="Sessions that you start from now on have it; /mcp and /hooks in Claude Code show it.",
    ),
    Client(
        "claude-desktop",
        "Claude Desktop",
        _claude_desktop,
        plain=True,
        afterwards="Quit Claude Desktop (closing its window is not enough) and start it again.",
        history=_CLAUDE_EXPORT,
    ),
    Client(
        "cursor",
        "Cursor",
        lambda machine: machine.home / ".cursor" / "mcp.json",
        project=".cursor/mcp.json",
        also={"type": "stdio"},
        programs=("cursor", "cursor-agent"),
    ),
    Client(
        "vscode",
        "VS Code",
        _vscode,
        container=("servers",),
        project=".vscode/mcp.json",
        also={"type": "stdio"},
        programs=("code", "code-insiders", "codium"),
        afterwards="VS Code asks whether you trust the server when a chat first needs it.",
    ),
    Client(
        "windsurf",
        "Windsurf (Devin Desktop)",
        _windsurf,
        project=".devin/mcp_config.json",
        programs=("windsurf", "devin-desktop"),
    ),
    Client(
        "zed",
        "Zed",
        _zed,
        container=("context_servers",),
        project=".zed/settings.json",
        also={"source": "custom"},  # versions before 2026 require it, later ones ignore it
        programs=("zed", "zeditor"),
        afterwards="Zed starts it at once; the settings of its agent panel show a green dot.",
    ),
    Client(
        "gemini",
        "Gemini CLI",
        lambda machine: machine.place("GEMINI_CLI_HOME", machine.home) / ".gemini" / "settings.json",
        project=".gemini/settings.json",
        programs=("gemini",),
        hooks=gemini.ADAPTER,
    ),
    Client(
        "qwen",
        "Qwen Code",
        lambda machine: machine.place("QWEN_HOME", machine.home / ".qwen") / "settings.json",
        project=".qwen/settings.json",
        programs=("qwen",),
        hooks=gemini.QWEN,
    ),
    Client(
        "copilot",
        "Copilot CLI",
        lambda machine: machine.place("COPILOT_HOME", machine.home / ".copilot") / "mcp-config.json",
        also={"type": "local", "tools": ["*"]},
        programs=("copilot",),
        hooks=copilot.ADAPTER,
    ),
    Client(
        "opencode",
        "OpenCode",
        _opencode,
        container=("mcp",),
        project="opencode.json",
        also={"type": "local", "enabled": True},
        joined=True,
        programs=("opencode",),
        hooks=opencode.ADAPTER,
    ),
    Client(
        "codex",
        "Codex",
        lambda machine: machine.place("CODEX_HOME", machine.home / ".codex") / "config.toml",
        container=("mcp_servers",),
        project=".codex/config.toml",
        form="toml",
        programs=("codex",),
        hooks=codex.ADAPTER,
        afterwards="Start `codex` and trust the hooks in /hooks: Codex skips them until you do. /mcp shows the server. "
        "A project's files count only if Codex trusts it.",
    ),
)

CHATGPT_EXPORT = (
    "To import ChatGPT's chats: Settings → Data controls → Export data. You get an e-mail with a ZIP file. Then run "
    "`context-manager import FILE.zip`."
)


_ALIASES = {
    "claude": "claude-code",
    "code": "vscode",
    "vs-code": "vscode",
    "devin": "windsurf",
    "devin-desktop": "windsurf",
    "gemini-cli": "gemini",
    "qwen-code": "qwen",
    "copilot-cli": "copilot",
    "github-copilot": "copilot",
}


def client_named(name: str) -> Client:
    """Returns the client of that name or alias. Raises NotFound with the nearest name."""
    known = {client.name: client for client in CLIENTS}
    wanted = name.strip().lower().replace(" ", "-").replace("_", "-")
    wanted = _ALIASES.get(wanted, wanted)
    if wanted in known:
        return known[wanted]
    hint = did_you_mean(wanted, known) or f"; the clients are {', '.join(known)}"
    raise NotFound(f"no client {name!r} is known here{hint}")
