"""The protocol between the hook command and the server: files, request and answer.

The command parses neither its input nor the answer, and passes both on unchanged: importing `json` and `re` would add
nearly half of Python's own start time.

Below the local folder (`.local/`):

    run/hooks                the server's address and the token that it requires
    run/hooks.sock           the socket, if its path is short enough
    run/starting-PID         a server is about to listen
    queue/hooks/*.json       events that no server has handled yet
    queue/rejected/          events that failed repeatedly
    brief/index.json         folder → brief and project names in the index, for a command without a server
"""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

ADDRESS = "run/hooks"
SOCKET = "run/hooks.sock"
STARTING = "starting-"
QUEUE = "queue/hooks"
BRIEFS = "brief"

PAUSE_VARIABLE = "CONTEXT_MANAGER_PAUSE"
WINDOW_VARIABLE = "CLAUDE_CODE_MESSAGING_SOCKET"
"""Claude Code sets it for the hooks and the servers of one window, so that a server recognizes its own window."""

INJECTING = ("SessionStart", "UserPromptSubmit", "PostToolUse")
LATER = ("Stop", "SessionEnd", "PreCompact", "PostCompact")
"""Events that the next server handles if no server runs."""

CLIENT_FOLDERS = {
    "claude-code": "CLAUDE_CONFIG_DIR",
    "codex": "CODEX_HOME",
    "copilot": "COPILOT_HOME",
    "gemini": "GEMINI_CLI_HOME",
    "opencode": "XDG_DATA_HOME",
    "qwen": "QWEN_HOME",
}
"""Client → the variable that names its transcripts' folder. Hooks send it: a server of another client may lack it."""

FROM_ENVIRONMENT = ("project_dir", "window", "paused", "client", "client_folder")
"""Values of a request that the command takes from its environment, and the client that `--client` names."""

LONGEST_SAID = 200_000
"""Bytes of an input that is sent unchanged. Of a longer one (with a tool's response) only the used fields are sent."""

LONGEST_REQUEST = 4_000_000
"""Maximum size in bytes: enough for two fields of maximum length, even if every character is escaped."""

STARTING_SECONDS = 15.0
"""Time after its start in which a living server is expected to listen."""


def address(token: str, pid: int, place: str) -> bytes:
    """Returns the text of `run/hooks`: three lines. `place` is `unix PATH` or `port NUMBER`."""
    return f"{token}\n{pid}\n{place}".encode("utf-8", "surrogateescape")


def read_address(text: bytes) -> tuple[bytes, int, str, bytes]:
    """Returns token, process, `unix` or `port`, and the path or number. Raises ValueError for any other text."""
    token, pid, place = text.split(b"\n", 2)
    kind, where = place.split(b" ", 1)
    return token, int(pid), kind.decode(), where


def request(token: bytes, event: str, extra: Mapping[str, str], payload: bytes) -> bytes:
    """Returns the bytes of a request. The command then closes its side; the answer is one line of JSON in ASCII."""
    words = (event.replace("\0", ""), *(extra.get(name, "") for name in FROM_ENVIRONMENT))
    return b"\0".join([token, *(word.encode("utf-8", "surrogatepass") for word in words), payload])


def read_request(sent: bytes) -> tuple[bytes, str, dict[str, str], bytes]:
    """Returns token, event, values of the environment, and the hook's input. Raises ValueError if it is invalid."""
    token, *words, payload = sent.split(b"\0", 2 + len(FROM_ENVIRONMENT))
    event, *seen = (word.decode("utf-8", "surrogatepass") for word in words)
    return token, event, {name: value for name, value in zip(FROM_ENVIRONMENT, seen, strict=True) if value}, payload


def mark_starting(local: str) -> None:
    """Marks this process as a server that is about to listen, so that a prompt waits for it a little.

    `claude -p "…"` starts the server and sends its only prompt at once; without the mark that prompt would get nothing.
    Does nothing if the folder does not exist yet.
    """
    try:
        if os.path.isdir(local):
            os.makedirs(os.path.join(local, "run"), mode=0o700, exist_ok=True)
            with open(_own_mark(local), "ab", opener=lambda path, flags: os.open(path, flags, 0o600)):
                os.utime(_own_mark(local))
    except OSError:
        return


def unmark_starting(local: str) -> None:
    """Deletes this process's mark, and the old marks of servers that died before they listened."""
    try:
        for mark in _starting_marks(local):
            if mark == _own_mark(local) or time.time() - os.stat(mark).st_mtime > STARTING_SECONDS:
                os.unlink(mark)
    except OSError:
        return


def is_starting(local: str) -> bool:
    try:
        return any(_is_alive(mark) for mark in _starting_marks(local))
    except OSError:
        return False


def _starting_marks(local: str) -> list[str]:
    run = os.path.join(local, "run")
    return [os.path.join(run, name) for name in os.listdir(run) if name.startswith(STARTING)]


def _own_mark(local: str) -> str:
    return os.path.join(local, "run", f"{STARTING}{os.getpid()}")


def _is_alive(mark: str) -> bool:
    """Returns True if a mark is recent and its process exists."""
    if time.time() - os.stat(mark).st_mtime > STARTING_SECONDS:
        return False
    if os.name != "posix":  # on Windows signal 0 would end the process
        return True
    try:
        os.kill(int(mark.rpartition("-")[2]), 0)
    except (ProcessLookupError, ValueError):
        return False
    except PermissionError:
        pass
    return True
