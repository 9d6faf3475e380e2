"""Where things lie on this machine: given as a value, so that a test, or `doctor`, can look at another one."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Machine:
    """A home folder, an environment and a system (`sys.platform`: linux, darwin, win32)."""

    home: Path
    environ: Mapping[str, str]
    system: str = sys.platform

    def settings_folder(self) -> Path:
        """Where programs with windows keep their settings."""
        if self.system == "darwin":
            return self.home / "Library" / "Application Support"
        if self.system == "win32":
            return self.place("APPDATA", self.home / "AppData" / "Roaming")
        return self.config_folder()

    def config_folder(self) -> Path:
        """`$XDG_CONFIG_HOME`, else `~/.config`."""
        return self.place("XDG_CONFIG_HOME", self.home / ".config")

    def place(self, variable: str, default: Path) -> Path:
        """The folder that an environment variable names, else `default`."""
        named = self.environ.get(variable, "").strip()
        return Path(named).expanduser() if named else default

    def which(self, command: str) -> str | None:
        """The path of a command that can be started from here."""
        return shutil.which(command, path=self.environ.get("PATH"))
