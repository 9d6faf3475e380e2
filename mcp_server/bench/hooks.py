"""How long a hook of a client takes with a running server: as a command (a whole process), and as a tool over stdio."""

from __future__ import annotations

import compileall
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import mcp_server
from mcp_server.bench import made_up
from mcp_server.bench.server_process import ServerProcess, ours, running
from mcp_server.clients.hooks import command
from mcp_server.errors import Unavailable

WARM = 3
PATIENCE = 60.0
EVENT = "UserPromptSubmit"


def round_trips(workspace: Path, count: int) -> tuple[list[float], list[float], list[float]]:
    """Milliseconds of `count` prompts by command and by tool, and of as many starts of a Python that does nothing.

    Raises:
        Unavailable: the server does not listen for hooks.
    """
    environ = {**os.environ, "CONTEXT_MANAGER_HOME": str(workspace)}
    talk = made_up.Talk(6)
    # pip compiles what it installs; a clone that nobody has started yet would be compiled at every call, and where
    # Python is told to write no bytecode, for ever.
    compileall.compile_dir(Path(mcp_server.__file__).parent, quiet=2)
    with running([*ours(workspace), "--hooks"], environ) as server:
        server.call("status")
        _wait_until_it_listens(workspace, environ)
        times: tuple[list[float], ...] = ([], [], [])
        for number in range(WARM + count):  # in turn, so that all meet the same machine
            given = {"session_id": "bench-hooks", "prompt": talk.question(), "cwd": str(workspace)}
            calls = (
                partial(_run, [*_command(), EVENT], environ, given),
                partial(_call, server, given),
                partial(_run, [sys.executable, "-c", "pass"], environ, {}),
            )
            for kept, call in zip(times, calls, strict=True):
                taken = _timed(call)
                if number >= WARM:
                    kept.append(taken)
    by_command, by_tool, idle = times
    return by_command, by_tool, idle


def _command() -> list[str]:
    """The hook command as clients start it; the same without its script where that is not beside this Python."""
    script = Path(sys.executable).with_name("context-manager")
    if script.exists():
        return [str(script), "hook"]
    return [sys.executable, "-c", "import sys; from mcp_server.cli.start import main; sys.exit(main())", "hook"]


def _timed(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return (time.perf_counter() - began) * 1000


def _run(words: list[str], environ: Mapping[str, str], given: Mapping[str, str]) -> None:
    subprocess.run(words, input=json.dumps(given).encode(), env=dict(environ), capture_output=True, check=True)


def _call(server: ServerProcess, given: Mapping[str, str]) -> None:
    server.call("hook", event=EVENT, **given)


def _wait_until_it_listens(workspace: Path, environ: Mapping[str, str]) -> None:
    local = command.local_folder(str(workspace), environ)
    end = time.monotonic() + PATIENCE
    while command.ask(local, "Nothing", end) is None:
        if time.monotonic() > end:
            raise Unavailable("the server does not listen for hooks; context-manager doctor says why")
        time.sleep(0.05)  # another process gives no event to wait on
