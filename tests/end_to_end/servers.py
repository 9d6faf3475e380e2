"""Real server processes that can be killed, kept without git, or put on a disk of their own, and real CLI commands."""

from __future__ import annotations

import inspect
import json
import os
import re
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.types import CallToolResult, Implementation

from tests import preloaded
from tests.running import run
from tests.serving import environment, text

CALLS = int(os.environ.get("CM_CHAOS", "20"))
"""How many calls of each kind a server gets at once; 200 is the whole of it."""

PATIENCE = 120.0
"""Seconds after which something that was expected is taken not to come. Nothing waits longer than it must."""

DATABASE_TROUBLE = re.compile(
    r"locked|malformed|is busy|damaged|not a database|disk I/O|Traceback|a bug in context-manager", re.IGNORECASE
)

READ_ONLY = 'mount --bind "$1" "$1"; mount -o remount,ro,bind "$1"'
SMALL = 'mount -t tmpfs -o size=6m none "$1"'
"""Scripts for `mounting`: a workspace that cannot be written, and one on a disk of 6 MB."""

_NAMING_ITSELF = 'echo $$ > "$0"; exec "$@"'


@dataclass(frozen=True, slots=True)
class Served:
    """A server process, its client, and the file that holds its stderr."""

    client: Client
    pid: int
    log: Path

    def kill(self) -> None:
        """`kill -9`: no goodbye."""
        os.kill(self.pid, signal.SIGKILL)

    def stderr(self) -> str:
        """What it said to people until now."""
        return self.log.read_text(errors="replace")

    def inside(self, path: Path) -> Path:
        """`path` as the process sees it, which may have mounts of its own."""
        return Path(f"/proc/{self.pid}/root{path}")

    def peak_megabytes(self) -> float:
        """The most memory that it ever had resident."""
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{self.pid}/status").read_text())
        assert found
        return int(found[1]) / 1024

    async def call(self, tool: str, **arguments: Any) -> str:
        """The text of an answer that is no error."""
        result = await self.client.call_tool(tool, arguments)
        assert not result.is_error, text(result)
        return text(result)

    async def refused(self, tool: str, **arguments: Any) -> str:
        """The text of an error: a message for people, not a fault of ours."""
        result = await self.client.call_tool(tool, arguments)
        assert result.is_error, text(result)
        assert_clear(text(result))
        return text(result)

    async def hits(self, query: str, **arguments: Any) -> list[dict[str, Any]]:
        """What a search finds."""
        return list((await self.search(query, **arguments))["hits"])

    async def search(self, query: str, **arguments: Any) -> dict[str, Any]:
        """The structured answer of a search over everything."""
        result: CallToolResult = await self.client.call_tool("search", {"query": query, "scope": "all", **arguments})
        assert not result.is_error, text(result)
        assert result.structured_content is not None
        found: dict[str, Any] = result.structured_content
        return found

    async def finds(self, query: str) -> bool:
        """Whether the index answers, and with something. Where it cannot, a note says that the files were read."""
        answer = await self.search(query)
        return bool(answer["hits"]) and not any("index" in note for note in answer["notes"])

    async def problems(self) -> str:
        """What `status` says is wrong."""
        result = await self.client.call_tool("status", {"max_tokens": 100_000})
        assert not result.is_error, text(result)
        assert result.structured_content is not None
        return "\n".join([*result.structured_content["problems"], *result.structured_content["index"]["problems"]])


@asynccontextmanager
async def served(
    root: Path,
    *,
    client: str = "test-agent",
    env: dict[str, str] | None = None,
    prefix: Sequence[str] = (),
    cwd: Path | None = None,
    beside: Path | None = None,
) -> AsyncIterator[Served]:
    """A server on the workspace at `root`, in a folder that has no project. `prefix` is what `mounting` returned.

    Its process id and its stderr are kept `beside` the workspace.
    """
    beside = beside or root.parent / f"{root.name}-processes"
    beside.mkdir(exist_ok=True)
    named = beside / f"{len(list(beside.iterdir()))}.pid"
    log = named.with_suffix(".log")
    start = preloaded.python("-m", "mcp_server", pid_file=named, mounts=prefix)
    if not preloaded.FORKS:
        shell = shutil.which("sh") or "sh"  # found here: the server itself may be without any PATH
        start = [shell, "-c", _NAMING_ITSELF, str(named), *start]
    parameters = StdioServerParameters(
        command=start[0],
        args=start[1:],
        env={**environment(root), **(env or {})},
        cwd=str(cwd or root.parent),
    )
    with log.open("w") as stderr:
        try:
            async with Client(
                stdio_client(parameters, stderr), client_info=Implementation(name=client, version="1")
            ) as connection:
                yield Served(connection, int(named.read_text()), log)
        except BaseExceptionGroup as group:
            raise _leaf(group) from None


def _leaf(error: BaseException) -> BaseException:
    """What happened, out of the groups that task groups wrap around it."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


async def command(
    root: Path,
    *arguments: str,
    said: str = "",
    env: dict[str, str] | None = None,
    prefix: Sequence[str] = (),
    cwd: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """A CLI command on the workspace at `root`, done; `said` comes on its stdin."""
    done = await anyio.run_process(
        preloaded.context_manager(*arguments, mounts=prefix),
        input=said.encode(),
        env={**environment(root), **(env or {})},
        cwd=str(cwd or root.parent),
        check=False,
    )
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


async def done(root: Path, *arguments: str, **options: Any) -> str:
    """The stdout of a CLI command that succeeded."""
    ended = await command(root, *arguments, **options)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


async def failed(root: Path, *arguments: str, **options: Any) -> str:
    """The one line on stderr of a CLI command that failed."""
    ended = await command(root, *arguments, **options)
    assert ended.returncode in (1, 2), ended.stdout + ended.stderr
    assert_clear(ended.stderr)
    assert len(ended.stderr.strip().splitlines()) == 1, ended.stderr
    return ended.stderr


async def eventually(holds: Callable[[], Awaitable[object] | object]) -> None:
    """Asks again and again until it holds."""
    with anyio.fail_after(PATIENCE):
        while True:
            found = holds()
            if await found if inspect.isawaitable(found) else found:
                return
            await anyio.sleep(0.02)


def assert_clear(message: str) -> None:
    """A message of ours: neither a stack trace nor the name of an exception that nobody expected."""
    assert message.strip()
    assert not re.search(
        r"Traceback|a bug in context-manager|Internal|unexpected|\b[A-Z]\w+(?:Error|Exception)\b", message
    ), message


def transcripts(root: Path) -> dict[str, str]:
    """Every transcript by its path in the workspace."""
    found = sorted((root / "raw").rglob("*.md"))
    return {path.relative_to(root).as_posix(): path.read_bytes().decode() for path in found}


def turns(root: Path) -> dict[str, list[tuple[int, str]]]:
    """Number and first line of every turn by session, as they stand in the transcripts; no code of ours reads them."""
    spoken: dict[str, list[tuple[int, str]]] = {}
    for written in transcripts(root).values():
        head = re.match(r'---\nsession_id: "?([^\s"]+)"?\n', written)
        assert head, written[:200]
        for line in re.finditer(r'^<!-- (\{"turn":.*\}) -->\n(.*)$', written, re.MULTILINE):
            spoken.setdefault(head[1], []).append((json.loads(line[1])["turn"], line[2]))
    return {session: sorted(said) for session, said in spoken.items()}


def facts(root: Path) -> Counter[str]:
    """How often each entry stands in MEMORY.md and its archive together, without its date."""
    kept = [root / "knowledge" / "memory" / "MEMORY.md", root / "archive" / "memory" / "MEMORY.md"]
    lines = [line for path in kept if path.exists() for line in path.read_text().splitlines()]
    return Counter(match[1] for line in lines if (match := re.match(r"- \d{4}-\d\d-\d\d: (.*)", line)))


def files_below(folder: Path) -> dict[str, bytes]:
    """Every file of a folder with its content."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def mounting(script: str, *arguments: Path) -> list[str]:
    """A prefix that runs `script` (with `arguments` as $1…) in a mount namespace of its own, before the command.

    Skips the test by name where the machine allows no such thing.
    """
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("needs the command unshare (Linux) to mount a disk of its own")
    namespace = [unshare, "--mount"] if os.geteuid() == 0 else [unshare, "--map-root-user", "--mount"]
    tried = run([*namespace, "sh", "-c", "mount -t tmpfs -o size=64k none /tmp"])
    if tried.returncode != 0:
        pytest.skip(f"this machine allows no mounts in a namespace: {tried.stderr.strip()}")
    taken = f'{script}\nshift {len(arguments)}; exec "$@"'
    return [*namespace, "sh", "-ec", taken, "mounting", *map(str, arguments)]
