"""Programs that run to their end."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def environ() -> dict[str, str]:
    """The variables of this process, without those that tell us or Claude Code something."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("CONTEXT_MANAGER_", "CLAUDE_"))}


def run(command: Sequence[str | Path], **options: Any) -> subprocess.CompletedProcess[str]:
    """A program that has ended, with what it printed; `options` are those of `subprocess.run`."""
    given = {"stdin": subprocess.DEVNULL, "timeout": 300, **options}
    return subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, encoding="utf-8", check=False, **given
    )


def printed(command: Sequence[str | Path], **options: Any) -> str:
    """Runs a program that must succeed, and returns its output."""
    done = run(command, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
