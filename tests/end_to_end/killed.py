"""Processes that `kill -9` themselves at one of their writes: each file that is opened for writing, renamed, linked or
deleted, and each program that is started, is one, from the moment on that a file says so.

Python's own audit events tell of them, so that nothing of ours is replaced.
"""

from __future__ import annotations

from pathlib import Path

_SITE = """
import os, signal, sys

_at, _armed = int(os.environ["CM_KILL_AT"]), os.environ["CM_KILL_ARMED"]
_seen = 0
_EVENTS = ("os.rename", "os.remove", "os.link", "os.truncate", "os.mkdir", "subprocess.Popen")


def _writes(event, args):
    return event in _EVENTS or (event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR))


def _count(event, args):
    global _seen
    if _writes(event, args) and os.path.exists(_armed):
        _seen += 1
        if _seen >= _at:
            os.kill(os.getpid(), signal.SIGKILL)


sys.addaudithook(_count)
"""


class Killed:
    """What a process needs to kill itself: `env(at)` for its environment, `arm()` when counting shall begin."""

    def __init__(self, folder: Path) -> None:
        self._site = folder / "site"
        self._armed = folder / "armed"
        self._site.mkdir(parents=True)
        (self._site / "sitecustomize.py").write_text(_SITE)

    def env(self, at: int) -> dict[str, str]:
        """The environment of a process that dies at its write number `at` (from 1) after `arm`."""
        return {"PYTHONPATH": str(self._site), "CM_KILL_AT": str(at), "CM_KILL_ARMED": str(self._armed)}

    def arm(self) -> None:
        """From now on writes are counted."""
        self._armed.touch()

    def disarm(self) -> None:
        """Writes are not counted any more."""
        self._armed.unlink(missing_ok=True)
