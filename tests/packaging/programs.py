"""Programs of others that the packaging tests need where they are there: uv and Claude Code."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest
from mcp import StdioServerParameters

from tests.running import environ, run

UV_VARIABLE = "CONTEXT_MANAGER_UV"
CLAUDE_VARIABLE = "CONTEXT_MANAGER_CLAUDE"
ROOT = Path(__file__).parents[2]

_UNREACHABLE = re.compile(r"dns error|Failed to fetch|error sending request|Connection refused|timed out|offline", re.I)


def uv() -> str:
    """The executable `uv`; skips the test by name where there is none."""
    found = os.environ.get(UV_VARIABLE) or shutil.which("uv")
    if not found or not Path(found).exists():
        pytest.skip(f"needs uv on PATH, or named in {UV_VARIABLE}")
    return found


def claude() -> str:
    """The executable `claude`; skips the test by name where there is none."""
    found = os.environ.get(CLAUDE_VARIABLE) or shutil.which("claude")
    if not found or not Path(found).exists():
        pytest.skip(f"needs Claude Code on PATH, or named in {CLAUDE_VARIABLE}")
    return found


def environment(home: Path) -> dict[str, str]:
    """The environment of somebody whose HOME this is and who has set nothing of ours; uv keeps its own cache."""
    return {"UV_CACHE_DIR": str(Path.home() / ".cache" / "uv"), **environ(), "HOME": str(home)}


def installed_by_uv(*arguments: str, home: Path) -> None:
    """Runs uv once, so that what it has to download is there; skips the test by name where nothing can be reached."""
    done = run([uv(), *arguments], env=environment(home), timeout=None)
    if done.returncode != 0 and _UNREACHABLE.search(done.stderr):
        pytest.skip(f"uv could not download what the wheel needs: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr


def started_by_uv(*arguments: str, home: Path, cwd: Path) -> StdioServerParameters:
    """A server that a client starts with uv."""
    return StdioServerParameters(command=uv(), args=list(arguments), env=environment(home), cwd=str(cwd))
