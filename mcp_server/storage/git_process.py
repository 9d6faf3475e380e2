"""Runs git as a process, in any folder of this machine."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from mcp_server.errors import Unavailable

NEEDS_GIT = "this needs git, which was not found on PATH; install it (https://git-scm.com) and start again"
_FIRST, _LAST = -62_000_000_000, 253_000_000_000
"""The accepted range of times, in seconds since 1970 (years 5 to 9987): valid dates in every time zone."""

if sys.platform == "win32":  # otherwise Windows would run a git.exe in the working folder, which is a user's project
    os.environ.setdefault("NoDefaultCurrentDirectoryInExePath", "1")


class GitFailed(Unavailable):
    """A git command failed. `said` is its stderr, `output` its stdout, `status` its exit code."""

    def __init__(self, command: str, said: str, status: int = 128, output: str = "") -> None:
        super().__init__(f"git {command} failed: {said}; `git fsck` in the repository shows whether it is damaged")
        self.said, self.status, self.output = said, status, output


def run_git(folder: Path, *arguments: str, environment: Mapping[str, str], seconds: float | None = None) -> bytes:
    """Runs a git command in a folder and returns its output. `environment` is the whole environment of the process,
    `seconds` a time limit.

    Raises GitFailed if git refuses or exceeds the time limit, Unavailable if git is missing.
    """
    try:
        done = subprocess.run(
            ["git", *arguments],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=seconds,
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
        )
    except FileNotFoundError as error:
        raise Unavailable(NEEDS_GIT) from error
    except subprocess.TimeoutExpired as error:
        raise GitFailed(command_of(arguments), f"it did not end within {seconds:.0f} seconds") from error
    if done.returncode:
        said, output = (stream.decode("utf-8", "replace") for stream in (done.stderr, done.stdout))
        raise GitFailed(
            command_of(arguments), said.strip() or f"it ended with {done.returncode}", done.returncode, output
        )
    return done.stdout


@contextlib.contextmanager
def running_git(
    folder: Path, *arguments: str, environment: Mapping[str, str], stdout: IO[bytes] | int = subprocess.PIPE
) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Yields stdin and stdout of a git process. Raises as `run_git` does, at the end of the block."""
    with tempfile.TemporaryFile() as said:
        try:
            process = subprocess.Popen(
                ["git", *arguments],
                cwd=folder,
                stdin=subprocess.PIPE,
                stdout=stdout,
                stderr=said,
                env=environment,
            )
        except FileNotFoundError as error:
            raise Unavailable(NEEDS_GIT) from error
        assert process.stdin is not None
        ended = False
        try:
            with contextlib.suppress(BrokenPipeError):  # git has ended: its exit code is checked below
                yield process.stdin, process.stdout or process.stdin
                ended = True
        finally:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
            if process.stdout is not None:
                process.stdout.close()
            if not ended:
                process.kill()
            status = process.wait()
        if status:
            said.seek(0)
            raise GitFailed(command_of(arguments), said.read().decode("utf-8", "replace").strip())


def command_of(arguments: Sequence[str]) -> str:
    """Returns the name of the git command in `arguments`, such as `commit-tree`."""
    return next((part for part in arguments if part[0] != "-" and "=" not in part), arguments[0])


def ask_git(folder: Path, *arguments: str) -> str | None:
    """Returns the output of a git command in any folder of this machine; None if it is empty, or if git fails or is
    missing."""
    try:
        said = run_git(folder, *arguments, environment=plain_environment(), seconds=10)
    except (Unavailable, OSError, ValueError):
        return None
    return said.decode("utf-8", "replace").strip() or None


@functools.cache
def version() -> str | None:
    """Returns git's version, such as `2.39.5`; None if it was not found."""
    found = re.search(r"\bgit version (\d+(?:\.\d+)+)", ask_git(Path(__file__).parent, "--version") or "")
    return found[1] if found else None


def plain_environment() -> dict[str, str]:
    """Returns this process's environment without git's variables, which a git hook sets for another repository."""
    return {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}


def moment_of(seconds: str) -> datetime:
    """Returns a git timestamp as a datetime in UTC. A commit may have any date; one out of range is clamped to the
    range."""
    return datetime.fromtimestamp(min(max(int(seconds), _FIRST), _LAST), UTC)
