"""`context-manager hook EVENT`: gives a client's hook to the running server and prints the answer.

A client starts this for every prompt, so it must be quick: the standard library only, and little of it (a test holds
that). A prompt is passed on unread (`wire`). It never fails and never keeps the user waiting: whatever goes wrong, it
prints nothing and exits 0.

    a server listens      → its answer; nothing if it does not come in time
    none does             → SessionStart: the brief that was kept ready
    it was not seen to    → Stop, SessionEnd, PreCompact, PostCompact: an entry in the queue
"""

from __future__ import annotations

import _socket  # what `socket` adds to it takes 3 ms to import: a tenth of what a prompt waits for this command
import os
import sys
import time

from mcp_server.clients.hooks import wire

TYPE_CHECKING = False  # `typing` would be heavy, and so is `collections`
if TYPE_CHECKING:
    from collections.abc import Mapping

BUDGET = 1.5
"""Seconds for everything; `CONTEXT_MANAGER_HOOK_SECONDS` gives a slow machine more."""

LAST_BUDGET = 1.0
"""At SessionEnd, where Claude Code gives 1.5 s to all hooks together, their start included."""

CONNECT_SECONDS = 0.25
"""A port of this machine answers at once where somebody listens; where nobody does, Windows tries for two seconds."""

LONGEST_INPUT = 64_000_000

NOTHING: Mapping[str, str] = {}


def main(arguments: list[str]) -> int:
    """The command, its name `hook` left out: `[EVENT] [--workspace DIR]`. Always 0: a client takes 2 for a veto."""
    try:
        event, workspace = _parsed(arguments)
        said = b"" if sys.stdin.isatty() else sys.stdin.buffer.read(LONGEST_INPUT)
        answer = respond(event, said, workspace, os.environ)
        if answer:
            sys.stdout.buffer.write(answer.encode("ascii") + b"\n")
            sys.stdout.buffer.flush()
    except BaseException:  # whatever it is: the user's prompt must go on
        if os.environ.get("CONTEXT_MANAGER_HOOK_DEBUG"):
            sys.excepthook(*sys.exc_info())
    return 0


def respond(event: str | None, said: bytes, workspace: str | None, environ: Mapping[str, str]) -> str:
    """What the hook prints for the input `said`: JSON in ASCII, or nothing.

    Without `event` the input's own `hook_event_name` counts; `workspace` is as the user gave it.
    """
    began = time.monotonic()
    beside = _beside(environ)
    event = event or _named(said)
    root = os.path.abspath(
        os.path.expanduser(workspace or environ.get("CONTEXT_MANAGER_HOME") or os.path.join("~", ".context-manager"))
    )
    local = local_folder(root, environ)
    if not os.path.isdir(root):  # nothing is remembered yet; a server may be making the workspace at this moment
        if event in wire.LATER and _fields(said, beside).get("transcript_path"):
            _later(local, event, said, beside)
        return _silent(environ, f"there is no memory in {root}")
    queued = _later(local, event, said, beside) if event == "SessionEnd" else ""

    budget = LAST_BUDGET if event == "SessionEnd" else _budget(environ)
    stalls = False
    try:
        answer = ask(local, event, began + budget, said, beside)
        if answer is None and event == "UserPromptSubmit":
            answer = _when_started(local, event, began + budget, said, beside)
    except TimeoutError:
        answer, stalls = None, True

    paused = "paused" in beside
    if answer is not None:
        if queued:
            _taken_back(queued)
        if answer == "{}" or (paused and event in wire.INJECTING):
            return _silent(environ, f"{event} was heard, and brings in nothing (context-manager last says why)")
        return answer
    if event in wire.LATER and not queued:
        _later(local, event, said, beside)
    if event == "SessionStart" and not (paused or stalls):
        from mcp_server.clients.hooks.alone import brief

        fields = _fields(said, beside)
        if fields.get("source") != "resume" and (said_alone := brief(local, event, fields)):
            return said_alone  # a window that is resumed holds a brief already
    where = "the server did not answer in time" if stalls else "no server is running on this memory"
    kept = "; what was said is recorded by the next one" if event in wire.LATER else ""
    return _silent(environ, f"{where}, so {event or 'an event without a name'} brings in nothing{kept}")


def local_folder(root: str, environ: Mapping[str, str]) -> str:
    """The folder `.local` of a workspace, moved or not: the one setting that is read here, without a YAML parser."""
    chosen = environ.get("CONTEXT_MANAGER_WORKSPACE__LOCAL_DIR") or ""
    if not chosen:
        try:
            with open(os.path.join(root, "memory-config.yaml"), encoding="utf-8") as file:
                lines = [line.strip() for line in file if line.lstrip().startswith("local_dir:")]
        except (OSError, UnicodeDecodeError):
            lines = []
        chosen = lines[0].partition(":")[2].partition(" #")[0].strip().strip("'\"") if lines else ""
    if chosen in ("", "null", "~"):
        chosen = ".local"
    return os.path.join(root, os.path.expanduser(chosen))


def ask(
    local: str, event: str, patience: float, said: bytes = b"{}", beside: Mapping[str, str] = NOTHING
) -> str | None:
    """The server's answer, a JSON object; None if none listens. Raises TimeoutError if one does and says nothing until
    `patience` (on the monotonic clock). `beside` is what only this process can see (`wire`)."""
    if len(said) > wire.LONGEST_SAID:
        said = _shortened(said)
    try:
        with open(os.path.join(local, wire.ADDRESS), "rb") as file:
            token, _, kind, place = wire.read_address(file.read())
        connection = _connected(kind, place, patience)
        try:
            connection.sendall(wire.request(token, event, beside, said))
            connection.shutdown(_socket.SHUT_WR)
            received = b""
            while not received.endswith(b"\n"):
                connection.settimeout(_left(patience))
                part = connection.recv(65536)
                if not part:
                    return None
                received += part
        finally:
            connection.close()
        answer = received[:-1].decode("ascii")
    except TimeoutError:
        raise
    except (OSError, ValueError):  # nobody there, or nobody that we know
        return None
    return answer if answer.startswith("{") and answer.endswith("}") else None


def _when_started(local: str, event: str, patience: float, said: bytes, beside: Mapping[str, str]) -> str | None:
    """The answer of a server that is only just starting, if one is: its first prompt may be the only one."""
    from mcp_server.clients.hooks.alone import starting

    while time.monotonic() < patience:
        is_starting = starting(local)  # asked first: what begins to listen in between is heard by the question below
        answer = ask(local, event, patience, said, beside)
        if answer is not None or not is_starting:
            return answer
        time.sleep(0.02)  # the socket of a server that starts is not there yet: nothing to wait on
    return None


def _silent(environ: Mapping[str, str], why: str) -> str:
    """Nothing to print. Who looks for a reason is told it on stderr."""
    if environ.get("CONTEXT_MANAGER_HOOK_DEBUG"):
        sys.stderr.write(f"context-manager hook: {why}\n")
    return ""


def _taken_back(queued: str) -> None:
    """The server has seen to it; it may have taken the entry from the queue meanwhile."""
    try:
        os.unlink(queued)
    except FileNotFoundError:
        return


def _later(local: str, event: str, said: bytes, beside: Mapping[str, str]) -> str:
    from mcp_server.clients.hooks.alone import enqueue

    return enqueue(local, event, _fields(said, beside))


def _parsed(arguments: list[str]) -> tuple[str | None, str | None]:
    """Event and workspace. What we do not know is left out: a wrong word must not stop anybody's prompt."""
    event = workspace = None
    words = iter(arguments)
    for word in words:
        if word == "--workspace":
            workspace = next(words, None)
        elif word.startswith("--workspace="):
            workspace = word.partition("=")[2]
        elif not word.startswith("-"):
            event = event or word
    return event, workspace


def _named(said: bytes) -> str:
    from mcp_server.clients.hooks.given import whole

    return str(whole(said).get("hook_event_name") or "")


def _fields(said: bytes, beside: Mapping[str, str]) -> dict[str, object]:
    from mcp_server.clients.hooks.given import fields_of

    return fields_of(said, beside)


def _shortened(said: bytes) -> bytes:
    import json

    return json.dumps(_fields(said, NOTHING), ensure_ascii=False).encode("utf-8", "replace")


def _beside(environ: Mapping[str, str]) -> dict[str, str]:
    seen = {"project_dir": environ.get("CLAUDE_PROJECT_DIR"), "window": environ.get(wire.WINDOW_VARIABLE)}
    found = {name: value for name, value in seen.items() if value}
    return {**found, "paused": "1"} if _on(environ.get(wire.PAUSE_VARIABLE)) else found


def _connected(kind: str, where: bytes, patience: float) -> _socket.socket:
    unix = kind == "unix"
    place = where if unix else ("127.0.0.1", int(where))
    connection = _socket.socket(_socket.AF_UNIX if unix else _socket.AF_INET, _socket.SOCK_STREAM)
    try:
        left = _left(patience)
        connection.settimeout(left if unix else min(left, CONNECT_SECONDS))
        try:
            connection.connect(place)
        except TimeoutError:
            if unix:
                raise
            raise ConnectionError("nobody listens") from None
    except BaseException:
        connection.close()
        raise
    return connection


def _left(patience: float) -> float:
    left = patience - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _budget(environ: Mapping[str, str]) -> float:
    try:
        return float(environ["CONTEXT_MANAGER_HOOK_SECONDS"])
    except (KeyError, ValueError):
        return BUDGET


def _on(value: str | None) -> bool:
    return (value or "").strip().lower() not in ("", "0", "false", "no", "off")
