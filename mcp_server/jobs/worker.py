"""A child: long work in a process of its own, which runs when nobody else wants to.

What computes for minutes (knowledge of a large import, condensing) keeps Python's one interpreter busy, and every
answer of the same process waits for it again and again, however often a thread rests. A child has its own; it knows the
workspace as any other process does, through files and locks. It ends with its work, or with whoever started it: then
the pipe that it listens to is closed. Killing it at any moment loses nothing that is acknowledged.

    parent                     child (`mcp_server/aside.py`)
    starts it, one JSON line → reads what to do, lowers its own priority, opens the workspace, works
    keeps the pipe open        ends at once when the pipe is closed
    waits                    ← exit code: 0 done
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import anyio

from mcp_server.errors import Unavailable

Work = Literal["knowledge", "jobs"]
"""Knowledge of conversations that were closed; jobs of the schedule that are due."""

PROGRAM = "import sys; sys.path.append(sys.argv[1]); from mcp_server.aside import main; main()"
"""Not by `-m`: that would look into the working folder first, which is somebody's project."""

PRIORITY = getattr(subprocess, "BELOW_NORMAL_PRIORITY_CLASS", 0)
"""For Windows; elsewhere the child lowers its own."""


@dataclass(frozen=True, slots=True)
class Order:
    """What a child does, where, and with which settings of the environment."""

    work: Work
    workspace: str
    environ: dict[str, str]

    def to_json(self) -> bytes:
        """One line."""
        return json.dumps(asdict(self)).encode("ascii") + b"\n"

    @classmethod
    def from_json(cls, line: bytes) -> Order:
        """What `to_json` wrote."""
        return cls(**json.loads(line))


async def run(work: Work, workspace: Path, environ: Mapping[str, str]) -> bool:
    """Does `work` in a child, which is killed if this is cancelled. False if no child can be started here.

    Raises:
        Unavailable: the child ended before its work was done.
    """
    if not sys.executable:  # a program that has Python inside
        return False
    command = [sys.executable, "-P", "-c", PROGRAM, str(Path(__file__).parents[2])]
    try:
        process = await anyio.open_process(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=None, creationflags=PRIORITY
        )
    except OSError:
        return False
    async with process:
        assert process.stdin is not None, "opened with a pipe"
        with suppress(anyio.BrokenResourceError):  # it is gone already: its exit code says more
            await process.stdin.send(Order(work, str(workspace), dict(environ)).to_json())
        code = await process.wait()
    if code:
        raise Unavailable(f"the child process for {work} ended with code {code}; stderr of the server says why")
    return True
