"""What the hook command does where no server answers: it sees whether one is starting, keeps what has to be done later
in the queue, and prints the brief that was kept ready.

Apart from `command`, because most prompts need nothing of it. The standard library only here too.
"""

from __future__ import annotations

import json
import os
import time

from mcp_server.clients.hooks import wire

LONGEST_BRIEF = 9_500
"""Characters; Claude Code makes a file of anything over 10,000."""


def starting(local: str) -> bool:
    """True while a server is about to listen."""
    run = os.path.join(local, "run")
    try:
        names = [name for name in os.listdir(run) if name.startswith(wire.STARTING)]
        return any(_lives(name[len(wire.STARTING) :], os.path.join(run, name)) for name in names)
    except OSError:
        return False


def enqueue(local: str, event: str, fields: dict[str, object]) -> str:
    """Keeps an event for the next server, durably; returns the entry's path.

    A session's later event of the same name takes the place of an earlier one: its work takes in what came before.
    """
    kept = {name: fields[name] for name in fields if name not in ("prompt", "last_assistant_message")}
    folder = os.path.join(local, wire.QUEUE)
    _make_private(folder)
    path = os.path.join(folder, f"{_name(str(fields.get('session_id')))}-{_name(event)}.json")
    written = f"{path}.{os.getpid()}.tmp"
    entry = json.dumps({"event": event, "at": time.time(), "given": kept})
    handle = os.open(written, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(handle, entry.encode("ascii"))
        os.fsync(handle)
    finally:
        os.close(handle)
    os.replace(written, path)
    if os.name == "posix":  # a new name is only on disk once its folder is
        handle = os.open(folder, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)
    return path


def brief(local: str, event: str, fields: dict[str, object]) -> str:
    """The hook's output with the brief of the folder's project; an entry in the queue says that it was given."""
    folder = os.path.join(local, wire.BRIEFS)
    try:
        with open(os.path.join(folder, "index.json"), encoding="utf-8") as file:
            known = json.load(file)
        place = os.path.realpath(str(fields.get("project_dir") or fields.get("cwd") or os.getcwd()))
        while place not in known and os.path.dirname(place) != place:
            place = os.path.dirname(place)
        name = os.path.basename(str(known.get(place, "global.md")))
        with open(os.path.join(folder, name), encoding="utf-8", newline="") as file:
            text = file.read(LONGEST_BRIEF + 1)
    except (OSError, ValueError, AttributeError):
        return ""
    if not text.strip() or len(text) > LONGEST_BRIEF:
        return ""
    enqueue(local, event, {**fields, "printed": text})
    line = f"memory: brief, about {len(text) // 4:,} tokens"  # to count them would take longer than all the rest
    return json.dumps(
        {"hookSpecificOutput": {"hookEventName": event, "additionalContext": text}, "systemMessage": line}
    )


def _lives(pid: str, marker: str) -> bool:
    if time.time() - os.stat(marker).st_mtime > wire.STARTING_SECONDS:
        return False
    if os.name != "posix":  # elsewhere signal 0 is no question
        return True
    try:
        os.kill(int(pid), 0)
    except (ProcessLookupError, ValueError):
        return False
    except PermissionError:
        pass
    return True


def _make_private(folder: str) -> None:
    """The folder and those above it that are missing, for this user alone."""
    if not os.path.isdir(folder):
        _make_private(os.path.dirname(folder))
        try:
            os.mkdir(folder, mode=0o700)
        except FileExistsError:  # another command was quicker
            return


def _name(text: str) -> str:
    """`text` as part of a file's name: ids of clients are fit for that as they are."""
    plain = text.isascii() and text.replace("-", "").replace("_", "").isalnum()
    return text if plain and len(text) <= 80 else text.encode("utf-8", "replace")[:60].hex()
