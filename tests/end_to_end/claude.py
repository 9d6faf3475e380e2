"""The real Claude Code driven without a model: one prompt a process (`claude -p`) or a window in a pseudo terminal."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pyte
import pytest

from tests.end_to_end.fake_anthropic import FakeAnthropic
from tests.end_to_end.node import BIN_VARIABLE
from tests.preloaded import context_manager, programs, python
from tests.running import printed, run

ROOT = Path(__file__).parent.parent.parent
PLUGIN = ROOT / "plugin"
CLAUDE_VARIABLE = "CONTEXT_MANAGER_CLAUDE"
KEY = "sk-fake"
PATIENCE = 60.0
ROWS, COLUMNS = 200, 160  # with 200 rows no text of a test scrolls off the screen


@cache
def usable_claude() -> Path:
    """The executable `claude`; skips the test, with the reason, where there is none that starts."""
    named = os.environ.get(CLAUDE_VARIABLE)
    found = named or shutil.which("claude")
    if found is None:
        pytest.skip(f"needs Claude Code: `claude` on PATH, or named in {CLAUDE_VARIABLE}")
    if not Path(found).exists():
        pytest.skip(f"{CLAUDE_VARIABLE} names {found}, and there is no Claude Code")
    version = run([found, "--version"], env=_outside())
    if version.returncode != 0:
        pytest.skip(f"{found} does not start: {version.stderr.strip()[:200]}")
    return Path(found)


@dataclass(frozen=True, slots=True)
class Answered:
    """What one `claude -p` gave: its session, the model's text, what it said to people."""

    session: str
    text: str
    stderr: str


@dataclass(slots=True)
class Desk:
    """A user with an empty home, a project, a memory, and our plugin in Claude Code; the model is `api`."""

    claude: Path
    api: FakeAnthropic
    home: Path
    project: Path
    workspace: Path
    settings: Mapping[str, str] = field(default_factory=dict)
    plugin: Path = PLUGIN
    path: str | None = None

    def __post_init__(self) -> None:
        for folder in (self.home, self.project):
            folder.mkdir(parents=True, exist_ok=True)

    @property
    def env(self) -> dict[str, str]:
        """The environment of the client, and so of its hooks and servers."""
        outside = _outside()
        return {
            **outside,
            "PATH": self.path or os.pathsep.join([str(programs()), str(Path(sys.executable).parent), outside["PATH"]]),
            "HOME": str(self.home),
            "CONTEXT_MANAGER_HOME": str(self.workspace),
            "ANTHROPIC_BASE_URL": self.api.url,
            "ANTHROPIC_API_KEY": KEY,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_TELEMETRY": "1",
            "DISABLE_AUTOUPDATER": "1",
            "CLAUDE_CODE_MCP_STARTUP_WAIT_MS": "30000",  # these machines are noisy: a slow start is not a failure
            "CONTEXT_MANAGER_HOOK_SECONDS": "20",
            **self.settings,
        }

    def ask(self, prompt: str, *options: str, folder: Path | None = None) -> Answered:
        """One prompt in a session of its own (with `--resume ID`, of an earlier one), which ends with the answer."""
        command = [*self._printing(), prompt, "--output-format", "json", *options]
        done = run(command, cwd=folder or self.project, env=self.env)
        assert done.returncode == 0, done.stdout + done.stderr
        said: dict[str, Any] = json.loads(done.stdout)
        return Answered(said["session_id"], said["result"], done.stderr)

    @contextmanager
    def talking(self) -> Iterator[Callable[[str], str]]:
        """Yields a function that sends a prompt to one session and returns the id of the session after the answer."""
        command = [*self._printing(), "--input-format=stream-json", "--output-format=stream-json", "--verbose"]
        pipe, log = subprocess.PIPE, subprocess.DEVNULL
        with subprocess.Popen(
            command, cwd=self.project, env=self.env, stdin=pipe, stdout=pipe, stderr=log, text=True
        ) as talk:
            stalled = threading.Timer(PATIENCE * 4, talk.kill)
            stalled.start()

            def ask(prompt: str) -> str:
                assert talk.stdin is not None
                assert talk.stdout is not None
                message = {"type": "user", "message": {"role": "user", "content": prompt}}
                talk.stdin.write(f"{json.dumps(message)}\n")
                talk.stdin.flush()
                said = next(one for one in map(json.loads, talk.stdout) if one["type"] == "result")
                return str(said["session_id"])

            try:
                yield ask
            finally:
                stalled.cancel()

    def _printing(self) -> list[str]:
        return [str(self.claude), "--plugin-dir", str(self.plugin), "-p"]

    def window(self, *options: str, folder: Path | None = None) -> Window:
        """An interactive window."""
        self._past_the_first_questions(folder or self.project)
        command = [str(self.claude), "--plugin-dir", str(self.plugin), *options]
        return Window(command, folder or self.project, {**self.env, "TERM": "xterm-256color"})

    def our(self, *arguments: str) -> str:
        """What a command of ours prints, run as this user."""
        return printed(context_manager(*arguments), cwd=self.project, env=self.env)

    @property
    def transcripts(self) -> list[Path]:
        """What Claude Code itself has written down, subagents left out."""
        return sorted((self.home / ".claude" / "projects").glob("*/*.jsonl"))

    def _past_the_first_questions(self, folder: Path) -> None:
        place = self.home / ".claude.json"
        known = json.loads(place.read_text()) if place.exists() else {}
        known |= {
            "hasCompletedOnboarding": True,
            "theme": "dark",
            "customApiKeyResponses": {"approved": [KEY], "rejected": []},
        }
        projects = known.setdefault("projects", {})
        projects[str(folder)] = {**projects.get(str(folder), {}), "hasTrustDialogAccepted": True}
        place.write_text(json.dumps(known))


class _Screen(pyte.Screen):
    """A terminal's screen, which also takes the private forms of "set colours" that Claude Code sends."""

    def select_graphic_rendition(self, *attributes: int, private: bool = False) -> None:
        if not private:
            super().select_graphic_rendition(*attributes)


class Window:
    """Claude Code in a pseudo-terminal, whose screen is drawn as a terminal would: it repaints single characters."""

    def __init__(self, command: Sequence[str], folder: Path, env: Mapping[str, str]) -> None:
        import fcntl
        import pty
        import struct
        import termios

        self.pid, self._terminal = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.execvpe(command[0], list(command), dict(env))
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self._screen = _Screen(COLUMNS, ROWS)
        self._stream = pyte.ByteStream(self._screen)
        self._typed = ""
        self._shown: str | None = None

    def __enter__(self) -> Window:
        return self

    def __exit__(self, *raised: object) -> None:
        try:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass
        os.close(self._terminal)

    @property
    def text(self) -> str:
        """The screen as it is now, without blank lines."""
        if self._shown is None:  # a wait asks for it many times a second
            self._shown = "\n".join(line.rstrip() for line in self._screen.display if line.strip())
        return self._shown

    def wait_for(self, holds: Any, what: str) -> None:
        """Reads what is shown until `holds()` is true; fails, with the screen, when it does not become so."""
        end = time.monotonic() + PATIENCE
        while not holds():
            assert time.monotonic() < end, f"waited for {what}; the window shows:\n{self.text}"
            if not self._read():
                assert holds(), f"waited for {what}; the window ended:\n{self.text}"

    def wait_for_text(self, words: str) -> None:
        """Waits until `words` stand below the line that was typed last; spaces do not count, as lines are wrapped."""
        self.wait_for(lambda: _bare(words) in self._answer(), repr(words))

    def type(self, line: str) -> None:
        """Types a line, and Enter once it stands in the input."""
        before = _bare(self.text).count(_bare(line))
        os.write(self._terminal, line.encode())
        self.wait_for(lambda: _bare(self.text).count(_bare(line)) > before, repr(line))
        self._typed = _bare(line)
        os.write(self._terminal, b"\r")

    def press(self, key: bytes, shown: str) -> None:
        """Sends one key until `shown` is drawn: a dialog loses keys that arrive while it draws.

        Enter is sent again after a second, because a second Enter does nothing."""
        pressed, again = 0.0, 1.0 if key == b"\r" else PATIENCE / 10

        def drawn() -> bool:
            nonlocal pressed
            if shown in self._answer():
                return True
            if time.monotonic() > pressed + again:
                os.write(self._terminal, key)
                pressed = time.monotonic()
            return False

        self.wait_for(drawn, f"{shown!r} after {key!r}")

    def leave(self) -> None:
        """`/exit`, and waits until it has ended."""
        self.type("/exit")
        end = time.monotonic() + PATIENCE
        while os.waitpid(self.pid, os.WNOHANG) == (0, 0):
            assert time.monotonic() < end, f"it does not end:\n{self.text}"
            self._read()

    def _answer(self) -> str:
        """Returns the text below the last typed line, without spaces."""
        shown = _bare(self.text)
        return shown.rpartition(self._typed)[2] if self._typed else shown

    def _read(self) -> bool:
        """Reads what the program has drawn; False once it has ended."""
        ready, _, _ = select.select([self._terminal], [], [], 0.05)
        if ready:
            try:
                self._stream.feed(os.read(self._terminal, 65536))
                self._shown = None
            except OSError:
                return False
        return True


def _bare(text: str) -> str:
    return "".join(text.split())


def _outside() -> dict[str, str]:
    """This process's environment without what belongs to a client, to us or to a model."""
    ours = ("CONTEXT_MANAGER_", "CLAUDE", "ANTHROPIC_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    node = os.environ.get(BIN_VARIABLE)
    return {**kept, "PATH": os.pathsep.join([node, kept["PATH"]])} if node else kept


def variant(tmp_path: Path, change: Callable[[dict[str, Any], dict[str, Any]], None]) -> Path:
    """A copy of the plugin, its servers and hooks changed."""
    copy = tmp_path / "plugin"
    shutil.copytree(PLUGIN, copy)
    files = (copy / ".mcp.json", copy / "hooks" / "hooks.json")
    servers, hooks = (json.loads(file.read_text()) for file in files)
    change(servers["mcpServers"], hooks["hooks"])
    for file, document in zip(files, (servers, hooks), strict=True):
        file.write_text(json.dumps(document))
    return copy


def unhurried(servers: dict[str, Any], hooks: dict[str, Any]) -> None:
    """A change for `variant`: hooks may take longer, as test machines are noisy."""
    for (group,) in hooks.values():
        group["hooks"][0]["timeout"] = 40


def patient(servers: dict[str, Any], hooks: dict[str, Any]) -> None:
    """A change for `variant`: as `unhurried`, and with a `quick` server."""
    unhurried(servers, hooks)
    quick(servers, hooks)


def quick(servers: dict[str, Any], hooks: dict[str, Any]) -> None:
    """A change for `variant`: the server has its imports done, which take over a second of CPU."""
    command, *arguments = python("-m", "mcp_server", *servers["memory"]["args"])
    servers["memory"] |= {"command": command, "args": arguments}
