"""Git for tests: commands on any folder, as a user gives them, on a machine that knows no settings but these."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

WHO = {
    "GIT_AUTHOR_NAME": "Ana",
    "GIT_AUTHOR_EMAIL": "ana@example.org",
    "GIT_COMMITTER_NAME": "Ana",
    "GIT_COMMITTER_EMAIL": "ana@example.org",
}


def git(folder: Path, *arguments: str, stdin: bytes | None = None, **environment: str) -> str:
    """What one git command says; it must not fail."""
    done = attempt(folder, *arguments, stdin=stdin, **environment)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().strip("\n")


def attempt(
    folder: Path, *arguments: str, stdin: bytes | None = None, **environment: str
) -> subprocess.CompletedProcess[bytes]:
    """One git command, which may fail."""
    return subprocess.run(
        ["git", "-C", str(folder), *arguments],
        input=stdin,
        capture_output=True,
        check=False,
        env={**os.environ, **WHO, **environment},
    )


def subjects(folder: Path, *arguments: str) -> list[str]:
    """The subjects of the newest commits, the newest first."""
    return git(folder, "log", "--format=%s", *arguments).split("\n")


def write(root: Path, path: str, text: str) -> None:
    """Writes a file as an editor does."""
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text, "utf-8")
