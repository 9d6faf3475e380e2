"""What the hook command and the server agree on: where they meet, and what they say.

The command reads none of what it is given and none of what it is answered: it passes both on as they stand. To import
Python's `json`, and the `re` that this needs, takes nearly half as long again as to start Python.

Below the local folder (`.local/`):

    run/hooks                where the server listens, and the token that it asks for
    run/hooks.sock           the socket, where its path is short enough
    run/starting-PID         a server is about to listen
    queue/hooks/*.json       events that nobody has seen to yet
    queue/rejected/          those that failed again and again
    brief/index.json         folder → brief and names in the index, for a command that no server answers
"""

from __future__ import annotations

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
"""Claude Code gives it to the hooks and to the servers of one window alike; that is how a server knows its own."""

INJECTING = ("SessionStart", "UserPromptSubmit", "PostToolUse")
LATER = ("Stop", "SessionEnd", "PreCompact", "PostCompact")
"""Events whose work must be done, if not now then by the next server."""

BESIDE = ("project_dir", "window", "paused")
"""What of a request only the command can see, in its environment."""

LONGEST_SAID = 200_000
"""Bytes; of what is longer (a tool's whole response) the command reads and sends only the fields that matter, each cut:
the server has others to serve."""

LONGEST_REQUEST = 4_000_000
"""Bytes; fits two fields of the greatest length, however they are escaped."""

STARTING_SECONDS = 15.0
"""So long after its start a server is expected to listen, if it lives."""


def address(token: str, pid: int, place: str) -> bytes:
    """The text of `run/hooks`: three lines. `place` is `unix PATH` or `port NUMBER`."""
    return f"{token}\n{pid}\n{place}".encode("utf-8", "surrogateescape")


def read_address(text: bytes) -> tuple[bytes, int, str, bytes]:
    """Token, process, `unix` or `port`, and the path or number. Raises ValueError for any other text."""
    token, pid, place = text.split(b"\n", 2)
    kind, where = place.split(b" ", 1)
    return token, int(pid), kind.decode(), where


def request(token: bytes, event: str, beside: Mapping[str, str], said: bytes) -> bytes:
    """What the command sends before it closes its side; then one line of JSON in ASCII comes back."""
    words = (event.replace("\0", ""), *(beside.get(name, "") for name in BESIDE))
    return b"\0".join([token, *(word.encode("utf-8", "surrogatepass") for word in words), said])


def read_request(sent: bytes) -> tuple[bytes, str, dict[str, str], bytes]:
    """Token, event, what the command saw, and what it was given. Raises ValueError for what is no request."""
    token, *words, said = sent.split(b"\0", 2 + len(BESIDE))
    event, *seen = (word.decode("utf-8", "surrogatepass") for word in words)
    return token, event, {name: value for name, value in zip(BESIDE, seen, strict=True) if value}, said
