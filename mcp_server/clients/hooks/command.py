"""`context-manager hook EVENT`: sends a client's hook to the running server and prints the answer.

A client starts this for every prompt, so it must be fast: it imports only a few standard modules (a test checks that)
and does not parse the prompt (`protocol`). On any error it prints nothing and exits 0.

    a server answers     → prints the answer
    none answers         → SessionStart: prints the brief on disk. UserPromptSubmit: prints passages found by keywords;
                           if there are none, the answer of a starting server, if it comes in time. (It waits for that
                           server first if the index may lack what the prompt is about: `STARTING_BUDGET`.)
    it printed such text → queues a report, so that the next server knows what the window contains
    no server handled it → Stop, SessionEnd, PreCompact, PostCompact: queues the event for the next server
"""

from __future__ import annotations

import _socket  # importing `socket` takes 3 ms more, a tenth of this command's time
import os
import sys
import time

from mcp_server.clients.hooks import protocol

TYPE_CHECKING = False  # importing `typing` or `collections` takes long
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

BUDGET = 1.5
"""Time limit of the command in seconds; `CONTEXT_MANAGER_HOOK_SECONDS` sets another one, for slow machines."""

STARTING_BUDGET = 6.0
"""Seconds for a prompt that only the starting server can answer, because it asks to continue the last session, or the
end of an earlier session is still in the queue. Clients wait 8 s for this hook."""

LAST_BUDGET = 1.0
"""Time limit in seconds at SessionEnd: Claude Code stops all hooks of this event after 1.5 s, including their start."""

READ_SECONDS = 0.3
"""Part of the budget for reading the index if no server answers."""

CONNECT_SECONDS = 0.25
"""Limit for connecting to a port: a listening port answers at once, but Windows tries a closed one for 2 s."""

LONGEST_INPUT = 64_000_000

NOTHING: Mapping[str, str] = {}


def main(arguments: list[str]) -> int:
    """Runs the command with the arguments `[EVENT] [--workspace DIR] [--client NAME]`.

    Always returns 0: with exit code 2 the client would block the prompt.
    """
    try:
        event, workspace, client = _parse_arguments(arguments)
        payload = b"" if sys.stdin.isatty() else sys.stdin.buffer.read(LONGEST_INPUT)
        respond(event, payload, workspace, os.environ, _show, client)
    except BaseException:  # no error may block the user's prompt
        if os.environ.get("CONTEXT_MANAGER_HOOK_DEBUG"):
            sys.excepthook(*sys.exc_info())
    return 0


def _show(answer: str) -> None:
    if answer:
        sys.stdout.buffer.write(answer.encode("ascii") + b"\n")
        sys.stdout.buffer.flush()


def respond(
    event: str | None,
    payload: bytes,
    workspace: str | None,
    environ: Mapping[str, str],
    show: Callable[[str], object] = len,
    client: str | None = None,
) -> str:
    """Returns the hook's output for its input `payload`: JSON in ASCII, or nothing. Calls `show` to print it.

    Without `event` the input's `hook_event_name` is used. `workspace` and `client` are the command's arguments.
    """
    began = time.monotonic()
    if _is_run_by_copilot(client, payload, environ):
        return _explain_silence(environ, "Copilot CLI ran a hook of Claude Code; its own hook does the work")
    extra = _environment_values(environ, client)
    if not event:
        from mcp_server.clients.hooks.offline import all_fields

        event = str(all_fields(payload).get("hook_event_name") or "")
    root = os.path.abspath(
        os.path.expanduser(workspace or environ.get("CONTEXT_MANAGER_HOME") or os.path.join("~", ".context-manager"))
    )
    local = local_folder(root, environ)
    if not os.path.isdir(root):  # there is no memory yet, or a server is creating it
        if event in protocol.LATER and _fields(payload, extra).get("transcript_path"):
            _enqueue(local, event, payload, extra)
        return _explain_silence(environ, f"there is no memory in {root}")
    if not _is_ours(root):
        return _explain_silence(environ, f"{root} is not a memory")
    queued = _enqueue(local, event, payload, extra) if event == "SessionEnd" else ""

    budget = LAST_BUDGET if event == "SessionEnd" else _budget(environ)
    paused = "paused" in extra
    prints_alone = event in ("SessionStart", "UserPromptSubmit") and not paused
    answer, stalls = ask(local, event, began + budget - (READ_SECONDS if prints_alone else 0.0), payload, extra)
    waits = answer is None and event == "UserPromptSubmit" and prints_alone and not stalls
    if waits and protocol.is_starting(local) and (_has_queued_turns(local) or _asks_to_go_on(payload, extra)):
        deadline = began + max(budget, STARTING_BUDGET) - READ_SECONDS
        answer, stalls = _ask_starting_server(local, event, deadline, payload, extra)
    if answer is None and prints_alone:
        if printed := _answer_from_disk(local, event, payload, extra, show):
            return printed
        if event == "UserPromptSubmit" and not stalls:
            answer, stalls = _ask_starting_server(local, event, began + budget, payload, extra)

    if answer is not None:
        if queued:
            try:
                os.unlink(queued)
            except FileNotFoundError:  # the server has taken it from the queue
                queued = ""
        if answer == "{}" or (paused and event in protocol.INJECTING):
            return _explain_silence(
                environ, f"{event} was received, and adds nothing (`context-manager last` shows the reason)"
            )
        show(answer)
        return answer
    if event in protocol.LATER and not queued:
        _enqueue(local, event, payload, extra)
    where = "the server did not answer in time" if stalls else "no server is running on this memory"
    kept = "; the next server records the conversation" if event in protocol.LATER else ""
    return _explain_silence(environ, f"{where}, so {event or 'an event without a name'} adds nothing{kept}")


def _is_run_by_copilot(client: str | None, payload: bytes, environ: Mapping[str, str]) -> bool:
    """Returns whether Copilot CLI runs a hook that is in a project's file for Claude Code (tried with 1.0.102).

    Claude Code's input always names its own transcript, even if Copilot's shell started Claude Code. Copilot's input
    names Copilot's transcript, or none.
    """
    if client or not environ.get("COPILOT_CLI"):
        return False
    return b'"transcript_path"' not in payload or b"session-state" in payload


def _is_ours(root: str) -> bool:
    """Returns whether the folder is a workspace, is becoming one, or contains only our queue."""
    names = set(os.listdir(root))
    being_created = os.path.isdir(os.path.join(root, "raw", "conversations"))  # the settings are written last
    return "memory-config.yaml" in names or names <= {".local"} or being_created


def local_folder(root: str, environ: Mapping[str, str]) -> str:
    """Returns the folder `.local` of a workspace, or the folder that the setting `workspace.local_dir` names instead.

    Reads the setting without a YAML parser, because importing one takes long.
    """
    chosen = environ.get("CONTEXT_MANAGER_WORKSPACE__LOCAL_DIR") or ""
    if not chosen:
        try:
            with open(os.path.join(root, ".local", "settings.yaml"), encoding="utf-8") as file:
                lines = [line.strip() for line in file if line.lstrip().startswith("local_dir:")]
        except (OSError, UnicodeDecodeError):
            lines = []
        chosen = lines[0].partition(":")[2].partition(" #")[0].strip().strip("'\"") if lines else ""
    if chosen in ("", "null", "~"):
        chosen = ".local"
    return os.path.join(root, os.path.expanduser(chosen))


def ask(
    local: str, event: str, deadline: float, payload: bytes = b"{}", extra: Mapping[str, str] = NOTHING
) -> tuple[str | None, bool]:
    """Sends an event to the server. Returns the answer (a JSON object) or None, and True if a server listens but did
    not answer before `deadline` (monotonic clock).

    `extra` are values of this process's environment (`protocol.FROM_ENVIRONMENT`).
    """
    if len(payload) > protocol.LONGEST_SAID:
        import json

        payload = json.dumps(_fields(payload, NOTHING), ensure_ascii=False).encode("utf-8", "replace")
    try:
        with open(os.path.join(local, protocol.ADDRESS), "rb") as file:
            token, _, kind, place = protocol.read_address(file.read())
        connection = _connect(kind, place, deadline)
        try:
            connection.sendall(protocol.request(token, event, extra, payload))
            connection.shutdown(_socket.SHUT_WR)
            received = b""
            while not received.endswith(b"\n"):
                connection.settimeout(_seconds_left(deadline))
                part = connection.recv(65536)
                if not part:
                    return None, False
                received += part
        finally:
            connection.close()
        answer = received[:-1].decode("ascii")
    except TimeoutError:
        return None, True
    except (OSError, ValueError):  # no server, or another program
        return None, False
    return (answer if answer.startswith("{") and answer.endswith("}") else None), False


def _ask_starting_server(
    local: str, event: str, deadline: float, payload: bytes, extra: Mapping[str, str]
) -> tuple[str | None, bool]:
    """Waits for a starting server and returns as `ask` does; (None, False) if none is starting."""
    while time.monotonic() < deadline:
        is_starting = protocol.is_starting(local)  # before `ask`, so that a server that has just started is asked
        answer, stalls = ask(local, event, deadline, payload, extra)
        if answer is not None or stalls or not is_starting:
            return answer, stalls
        time.sleep(0.02)  # there is no socket to wait on yet
    return None, False


def _has_queued_turns(local: str) -> bool:
    """Returns whether turns of an earlier session wait in the queue to be recorded, or a server is recording them."""
    try:
        names = os.listdir(os.path.join(local, protocol.QUEUE))
    except OSError:  # the queue has never been used
        return False
    return any(f"-{event}" in name for name in names for event in protocol.LATER)


def _asks_to_go_on(payload: bytes, extra: Mapping[str, str]) -> bool:
    from mcp_server.context.window_text import asks_to_go_on

    return asks_to_go_on(str(_fields(payload, extra).get("prompt") or ""))


def _answer_from_disk(
    local: str, event: str, payload: bytes, extra: Mapping[str, str], show: Callable[[str], object]
) -> str:
    """Prints the brief or the passages found on disk, then queues a report for the next server. Returns the output."""
    from mcp_server.clients.hooks import offline

    fields = _fields(payload, extra)
    what = "brief"
    if event == "UserPromptSubmit":
        text, passages = offline.find_passages(local, fields, time.monotonic() + READ_SECONDS)
        what = f"{passages} passage{'' if passages == 1 else 's'}"
    else:  # a resumed window already contains a brief
        text = "" if fields.get("source") == "resume" or fields.get("agent_id") else offline.brief(local, fields)
    if not text:
        return ""
    answer = offline.output_text(event, text, what, extra.get("client"))
    show(answer)
    offline.enqueue(local, event, {**fields, "printed": text})
    return answer


def _explain_silence(environ: Mapping[str, str], why: str) -> str:
    """Returns "" and, if CONTEXT_MANAGER_HOOK_DEBUG is set, writes the reason to stderr."""
    if environ.get("CONTEXT_MANAGER_HOOK_DEBUG"):
        sys.stderr.write(f"context-manager hook: {why}\n")
    return ""


def _enqueue(local: str, event: str, payload: bytes, extra: Mapping[str, str]) -> str:
    from mcp_server.clients.hooks.offline import enqueue

    return enqueue(local, event, _fields(payload, extra))


def _parse_arguments(arguments: list[str]) -> tuple[str | None, str | None, str | None]:
    """Returns event, workspace and client. Ignores unknown words, because a typing error must not block a prompt."""
    event = None
    named: dict[str, str | None] = {}
    words = iter(arguments)
    for word in words:
        name, equals, value = word.partition("=")
        if name in ("--workspace", "--client"):
            named[name] = value if equals else next(words, None)
        elif not word.startswith("-"):
            event = event or word
    return event, named.get("--workspace"), named.get("--client")


def _fields(payload: bytes, extra: Mapping[str, str]) -> dict[str, object]:
    from mcp_server.clients.hooks.offline import fields_of

    return fields_of(payload, extra)


def _environment_values(environ: Mapping[str, str], client: str | None) -> dict[str, str]:
    """Returns the values of a request that are not in the hook's input (`protocol.FROM_ENVIRONMENT`)."""
    folder = environ.get(protocol.CLIENT_FOLDERS.get(client or "claude-code", ""))
    paused = environ.get(protocol.PAUSE_VARIABLE, "").strip().lower() not in ("", "0", "false", "no", "off")
    seen = {
        "project_dir": environ.get("CLAUDE_PROJECT_DIR"),
        "window": environ.get(protocol.WINDOW_VARIABLE),
        "client": client,
        "client_folder": os.path.abspath(os.path.expanduser(folder)) if folder else None,
        "paused": "1" if paused else None,
    }
    return {name: value for name, value in seen.items() if value}


def _connect(kind: str, where: bytes, deadline: float) -> _socket.socket:
    unix = kind == "unix"
    place = where if unix else ("127.0.0.1", int(where))
    connection = _socket.socket(_socket.AF_UNIX if unix else _socket.AF_INET, _socket.SOCK_STREAM)
    try:
        left = _seconds_left(deadline)
        connection.settimeout(left if unix else min(left, CONNECT_SECONDS))
        try:
            connection.connect(place)
        except TimeoutError:
            if unix:
                raise
            raise ConnectionError("no server listens") from None
    except BaseException:
        connection.close()
        raise
    return connection


def _seconds_left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _budget(environ: Mapping[str, str]) -> float:
    try:
        return float(environ["CONTEXT_MANAGER_HOOK_SECONDS"])
    except (KeyError, ValueError):
        return BUDGET
