"""Python processes that start at once: one process has imported our packages and forks for each run.

A server or a command needs one to two seconds of CPU for its imports, and the tests start hundreds of them. Each run is
still a process of its own, with its own arguments, environment, folder and standard streams, and can be killed.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import pkgutil
import runpy
import selectors
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import types
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NoReturn, cast

import tools
from mcp_server.connection import Connection
from mcp_server.tokens import TokenCounter
from mcp_server.understanding import encoder
from mcp_server.understanding.model import recognizer

_ROOT = Path(__file__).parent.parent
_OURS = ("mcp_server", "tools", "resources", "prompts")
_THEIRS = (
    *("aiosqlite", "anyio._backends._asyncio", "cronsim", "git", "numpy", "portalocker", "pysqlite3", "regex"),
    *("rich.logging", "rich.table", "ruamel.yaml", "tiktoken", "tzlocal"),
)
"""Packages that our modules import only when they need them."""

_NEW_MOUNTS, _NEW_USER = 0x00020000, 0x10000000  # CLONE_NEWNS and CLONE_NEWUSER of Linux

COMMAND = "from mcp_server.cli.start import main; raise SystemExit(main())"
"""The code of our command `context-manager`."""

FORKS = sys.platform == "linux"
"""Elsewhere a process may not survive a fork after it has loaded system libraries."""


def python(*arguments: str, pid_file: Path | None = None, mounts: Sequence[str] = ()) -> list[str]:
    """Returns a command that does what `python *arguments` does: `-m MODULE …` or `-c CODE …`.

    Where processes fork, `pid_file` gets the id of the one that runs it; the command's own process only waits for it.
    That process has `mounts` of its own: a command of `unshare` that would mount them and then run another command.
    """
    if not FORKS:
        return [*mounts, sys.executable, *arguments]
    launcher = str(Path(__file__).with_name("launcher.py"))
    return [sys.executable, "-IS", launcher, _address(), str(pid_file or ""), json.dumps(mounts), *arguments]


def context_manager(*arguments: str, pid_file: Path | None = None, mounts: Sequence[str] = ()) -> list[str]:
    """Returns a command that does what `context-manager *arguments` does, in the same way as `python`."""
    return python("-c", COMMAND, *arguments, pid_file=pid_file, mounts=mounts)


def _write_programs(folder: Path, address: str) -> None:
    launch = shlex.join([sys.executable, "-IS", str(Path(__file__).with_name("launcher.py")), address, "", "[]"])
    for name, program in {
        "context-manager": f'exec {launch} -c {shlex.quote(COMMAND)} "$@"',
        "context-manager-mcp": f'exec {launch} -m mcp_server "$@"',
        "python": f'[ "$1" != -P ] || shift\ncase "$1" in\n-c|-m) exec {launch} "$@" ;;\nesac\n'
        f'exec {shlex.quote(sys.executable)} "$@"',
    }.items():
        (folder / name).write_text(f"#!/bin/sh\n{program}\n")
        (folder / name).chmod(0o755)


def programs() -> Path:
    """Returns a folder with our two commands, for clients to start, and a `python`: they have their imports done."""
    return Path(_address()).parent if FORKS else Path(sys.executable).parent


@cache
def _address() -> str:
    """Starts the process that forks, and returns its socket. The process ends when this one does: its stdin closes."""
    folder = tempfile.mkdtemp(prefix="cm")
    address = str(Path(folder) / "socket")
    _write_programs(Path(folder), address)
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.preloaded", address],
        cwd=_ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )

    def end() -> None:
        process.communicate()
        shutil.rmtree(folder)

    atexit.register(end)
    while not Path(address).exists():
        assert process.poll() is None
        time.sleep(0.01)
    return address


def _wait_for_request(address: str) -> list[str]:
    """Forks for each request, and returns it in the forked process. Exits when the tests have ended."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{address}.new")
    listener.listen(64)
    Path(f"{address}.new").rename(address)
    _preload(address)
    woken, wakes = socket.socketpair()
    wakes.setblocking(False)
    signal.set_wakeup_fd(wakes.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    running: dict[int, socket.socket] = {}
    with selectors.DefaultSelector() as selector:
        for readable in (listener, woken, sys.stdin.fileno()):
            selector.register(readable, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is listener:
                    connection, _ = listener.accept()
                    request, streams = _read(connection)
                    pid = os.fork()
                    if pid == 0:
                        for opened in (listener, woken, wakes, connection, *running.values()):
                            opened.close()
                        for number, stream in enumerate(streams):
                            os.dup2(stream, number)
                            os.close(stream)
                        return request
                    for stream in streams:
                        os.close(stream)
                    running[pid] = connection
                    selector.register(connection, selectors.EVENT_READ, pid)
                elif key.fileobj is woken:
                    woken.recv(4096)
                    for pid, status in _ended(running):
                        with running.pop(pid) as connection, contextlib.suppress(BrokenPipeError, KeyError):
                            selector.unregister(connection)
                            connection.send(str(os.waitstatus_to_exitcode(status)).encode())
                elif key.fileobj == sys.stdin.fileno():
                    os._exit(0)
                elif key.data in running:  # its launcher was killed
                    selector.unregister(key.fileobj)
                    os.kill(key.data, signal.SIGTERM)


def _preload(address: str) -> None:
    for package in _OURS:
        found = pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}.")
        for name in [module.name for module in found if not module.name.endswith(".__main__")]:
            importlib.import_module(name)
    for name in _THEIRS:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    TokenCounter().count("This loads the vocabulary of tokens.")
    for tool in {*tools.offered("full"), *tools.offered("full", hooks=True)}:
        tool(cast(Connection, None))  # a description is kept for all connections
    recognizer()
    encoder.network()
    encoder.tokenizer()
    sys.executable = str(Path(address).with_name("python"))  # what a forked process starts has its imports done too
    gc.freeze()  # no forked process looks through all this for garbage


def _read(connection: socket.socket) -> tuple[list[str], list[int]]:
    size, streams, _, _ = socket.recv_fds(connection, 8, 3)
    left, parts = int.from_bytes(size), b""
    while len(parts) < left:
        parts += connection.recv(left - len(parts))
    return os.fsdecode(parts).split("\0"), streams


def _ended(running: dict[int, socket.socket]) -> list[tuple[int, int]]:
    """The forked processes that have ended, and their statuses."""
    found = [os.waitpid(pid, os.WNOHANG) for pid in list(running)]
    return [(pid, status) for pid, status in found if pid]


def _run(request: list[str]) -> None:
    """Runs a request as the main program of this process."""
    folder, pid_file, mounts, count, *rest = request
    arguments, variables = rest[: int(count)], rest[int(count) :]
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(dict(variable.split("=", 1) for variable in variables))
    time.tzset()
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    if pid_file:
        Path(pid_file).write_text(str(os.getpid()))
    if mounts != "[]":
        _mount(json.loads(mounts))
    sys.path[0] = ""
    if "PYTHONPATH" in os.environ:
        sys.path[1:1] = os.environ["PYTHONPATH"].split(os.pathsep)
        sys.modules.pop("sitecustomize", None)
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module("sitecustomize")
    option, program, *sys.argv[1:] = arguments
    if option == "-m":
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    else:
        sys.argv[0] = option
        sys.modules["__main__"] = main = types.ModuleType("__main__")
        exec(compile(program, "<string>", "exec"), main.__dict__)


def _mount(command: list[str]) -> None:
    """Does in this process what a command of `unshare` does before it runs another command."""
    user, group = os.geteuid(), os.getegid()
    as_root = "--map-root-user" in command
    if ctypes.CDLL(None).unshare(_NEW_MOUNTS | (_NEW_USER if as_root else 0)) != 0:
        raise OSError("this process can have no mounts of its own")
    if as_root:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    for mounting in (["mount", "--make-rprivate", "/"], [*command[command.index("sh") :], "true"]):
        subprocess.run(mounting, check=True, stdin=subprocess.DEVNULL)


def _exit_code(request: list[str]) -> int:
    """Runs a request, and returns the code with which the interpreter would end."""
    try:
        _run(request)
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            return ended.code or 0
        print(ended.code, file=sys.stderr)
    except KeyboardInterrupt:
        traceback.print_exc()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        traceback.print_exc()
    else:
        return 0
    return 1


def _exit(code: int) -> NoReturn:
    """Ends this process as the interpreter does, except that it frees no object: that takes half a second of CPU."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        code = code or 120
    os._exit(code & 0xFF)


if __name__ == "__main__":
    _exit(_exit_code(_wait_for_request(sys.argv[1])))
