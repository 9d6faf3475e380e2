"""Node and the packages that drive our server from outside, for the tests that need them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import portalocker
import pytest

from tests.running import printed, run

LEAST = (22, 19)
WANTED = (Path(__file__).parent / "clients" / "package.json").read_text("utf-8")
PACKAGES: dict[str, str] = json.loads(WANTED)["dependencies"]
BIN_VARIABLE = "CONTEXT_MANAGER_NODE_BIN"
CACHE_VARIABLE = "CONTEXT_MANAGER_NODE_CACHE"


@dataclass(frozen=True, slots=True)
class Node:
    """A usable Node: its binary, and the folder whose `node_modules` holds `PACKAGES`."""

    binary: Path
    folder: Path

    def run(
        self, script: str | Path, *arguments: str, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Runs a script of an installed package, or a file."""
        file = script if isinstance(script, Path) else self.folder / "node_modules" / script
        path = os.pathsep.join([str(self.binary.parent), (env or os.environ).get("PATH", "")])
        return run([self.binary, file, *arguments], cwd=self.folder, env={**(env or os.environ), "PATH": path})


def usable_node() -> Node:
    """Node 22.19 or newer with the packages installed; skips the test by name, with the reason, where there is none."""
    binary = _binary()
    version = printed([binary, "--version"]).strip()
    if tuple(int(part) for part in re.findall(r"\d+", version)[:2]) < LEAST:
        pytest.skip(f"needs Node >= 22.19, {binary} is {version}; name a newer one in {BIN_VARIABLE}")
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("needs npm on PATH, to install the clients")
    default = Path.home() / ".cache" / "context-manager-mcp" / "node"
    folder = Path(os.environ.get(CACHE_VARIABLE, default))
    folder.mkdir(parents=True, exist_ok=True)
    with portalocker.Lock(folder / "lock", timeout=300):
        _install(npm, binary, folder)
    return Node(binary, folder)


def _binary() -> Path:
    named = os.environ.get(BIN_VARIABLE)
    if named:
        path = Path(named) / "node" if Path(named).is_dir() else Path(named)
        if not path.exists():
            pytest.skip(f"{BIN_VARIABLE} names {named}, and there is no Node")
        return path
    found = shutil.which("node")
    if found is None:
        pytest.skip(f"needs Node >= 22.19 on PATH, or named in {BIN_VARIABLE}")
    return Path(found)


def _install(npm: str, binary: Path, folder: Path) -> None:
    installed = folder / "installed.json"
    if installed.exists() and installed.read_text() == WANTED:
        return
    (folder / "package.json").write_text(WANTED)
    env = {**os.environ, "PATH": os.pathsep.join([str(binary.parent), os.environ["PATH"]])}
    done = run([npm, "install", "--no-audit", "--no-fund", "--ignore-scripts"], cwd=folder, env=env, timeout=None)
    if done.returncode != 0:
        pytest.skip(f"npm could not install the clients (no network?): {done.stderr.strip().splitlines()[-1:]}")
    installed.write_text(WANTED)
