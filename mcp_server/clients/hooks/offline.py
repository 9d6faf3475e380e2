"""The hook command without a server: queues events for the next one, and reads the brief on disk or the index.

The module is separate because most prompts do not need it, and imports little because it delays the user's prompt.
"""

from __future__ import annotations

import hashlib
import json
import os
import time

from mcp_server.clients.hooks import protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

FIELDS = (
    "session_id",
    "transcript_path",
    "cwd",
    "prompt",
    "source",
    "trigger",
    "reason",
    "tool_name",
    "agent_id",
    "agent_type",
    "last_assistant_message",
    "prompt_response",
    "stop_hook_active",
)
"""The fields of a hook's input that are used. The client's transcript has the rest, such as a tool's response."""

ANSWERS = ("last_assistant_message", "prompt_response")
"""The fields with the model's last answer; the second is Gemini CLI's."""

LONGEST_TEXT = 200_000
"""Characters of a field; a longer one is cut."""


def fields_of(payload: bytes, extra: Mapping[str, str]) -> dict[str, object]:
    """Returns the used fields of a hook's input, and `extra`, values from the command's environment (`protocol`)."""
    given = all_fields(payload)
    fields: dict[str, object] = {}
    for name in FIELDS:
        value = given.get(name)
        if isinstance(value, str):
            fields[name] = value[:LONGEST_TEXT]
        elif isinstance(value, bool | int | float):
            fields[name] = value
    return {**fields, **extra, **({"paused": True} if "paused" in extra else {})}


def all_fields(payload: bytes) -> dict[str, object]:
    """Parses a hook's input and returns all its fields; {} if it is not a JSON object."""
    try:
        given = json.loads(payload.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return {}
    return given if isinstance(given, dict) else {}


LONGEST_BRIEF = 9_500
"""Maximum length in characters. Claude Code writes texts over 10,000 characters to a file."""


def enqueue(local: str, event: str, fields: Mapping[str, object], again: bool = False) -> str:
    """Writes an event durably to the queue of the next server, and returns the entry's path.

    A session's later event of the same name replaces the earlier one, because it includes the earlier one's work.
    Reports of printed texts are all kept: their names contain the text's hash. `again` is for an event that a server
    has handled in part: the entry keeps its time and gets another name, because the command deletes its own entry of
    the event when the server has answered.
    """
    kept = {name: fields[name] for name in fields if name not in ("prompt", "at", *ANSWERS)}
    folder = os.path.join(local, protocol.QUEUE)
    _make_private(folder)
    name = f"{_name(str(fields.get('session_id')))}-{_name(event)}"
    if "printed" in fields:
        name += f"-{hashlib.sha256(str(fields['printed']).encode('utf-8', 'replace')).hexdigest()[:16]}"
    if again:
        name += "-again"
    path = os.path.join(folder, f"{name}.json")
    written = f"{path}.{os.getpid()}.tmp"
    entry = json.dumps({"event": event, "at": fields.get("at", time.time()), "given": kept})
    handle = os.open(written, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(handle, entry.encode("ascii"))
        os.fsync(handle)
    finally:
        os.close(handle)
    os.replace(written, path)
    if os.name == "posix":  # the folder's sync puts the new name on disk
        handle = os.open(folder, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)
    return path


def reports(local: str, session: str) -> list[dict[str, Any]]:
    """Returns the queued reports of texts that the hook printed into a session's window, oldest first.

    Includes reports that a server has taken from the queue and not finished.
    """
    folder = os.path.join(local, protocol.QUEUE)
    try:
        names = [name for name in os.listdir(folder) if name.startswith(f"{_name(session)}-")]
    except OSError:
        return []
    found = []
    for name in names:
        try:
            with open(os.path.join(folder, name), encoding="ascii") as file:
                entry = json.load(file)
            if not name.endswith(".tmp") and isinstance(entry["given"]["printed"], str):
                found.append({**entry, "at": float(entry["at"])})
        except FileNotFoundError:  # a server has just renamed it (taken) or finished it
            return reports(local, session)
        except (OSError, ValueError, LookupError, TypeError):  # another event
            continue
    return sorted(found, key=lambda entry: entry["at"])


def brief(local: str, fields: Mapping[str, object]) -> str:
    """Returns the brief on disk for the folder's project; "" if there is none."""
    try:
        with open(os.path.join(local, protocol.BRIEFS, _known(local, fields)[0]), encoding="utf-8", newline="") as file:
            text = file.read(LONGEST_BRIEF + 1)
    except (OSError, ValueError):
        return ""
    return text if text.strip() and len(text) <= LONGEST_BRIEF else ""


def find_passages(local: str, fields: Mapping[str, object], deadline: float) -> tuple[str, int]:
    """Searches the index on disk by keywords for a prompt, and returns the passages as one text, and their number.

    Returns ("", 0) after `deadline` (monotonic clock), or if the window already contains all passages.
    """
    prompt, session = str(fields.get("prompt") or ""), str(fields.get("session_id") or "")
    _, projects = _known(local, fields)
    if projects is None or not session or fields.get("agent_id"):
        return "", 0
    from mcp_server.context.window_text import asks_nothing, fingerprints
    from mcp_server.storage.local.index import by_keywords

    if asks_nothing(prompt):
        return "", 0
    sent = {mark for entry in reports(local, session) for mark in fingerprints(entry["given"]["printed"])}
    return by_keywords.looked_up(local, prompt, session, projects, sent, deadline)


FLAT = ("copilot", "opencode")
"""Clients that take the text at the top of the output and ignore `hookSpecificOutput`."""


def output(event: str, text: str, line: str, client: object) -> dict[str, object]:
    """Returns the output for a client: a text for its model, and a line for its user."""
    if client in FLAT:
        return {"additionalContext": text}
    return {"hookSpecificOutput": {"hookEventName": event, "additionalContext": text}, "systemMessage": line}


def output_text(event: str, text: str, what: str, client: str | None) -> str:
    """Returns `output` as JSON, with the text's size in the line.

    The number of tokens is an estimate: counting takes longer than the rest of the command.
    """
    return json.dumps(output(event, text, f"memory: {what}, about {len(text) // 4:,} tokens", client))


def _known(local: str, fields: Mapping[str, object]) -> tuple[str, list[str] | None]:
    """Returns the brief's file name and the project names for the client's folder, from the server's index of folders.

    The names are None if nothing is pushed there.
    """
    try:
        with open(os.path.join(local, protocol.BRIEFS, "index.json"), encoding="utf-8") as file:
            known = json.load(file)
        place = os.path.realpath(str(fields.get("project_dir") or fields.get("cwd") or os.getcwd()))
        while place not in known and os.path.dirname(place) != place:
            place = os.path.dirname(place)
        entry = known.get(place) or known.get("") or {}
        return os.path.basename(str(entry.get("brief", "global.md"))), entry.get("projects")
    except (OSError, ValueError, AttributeError):
        return "", None


def _make_private(folder: str) -> None:
    """Makes the folder and its missing parents, for this user only."""
    if not os.path.isdir(folder):
        _make_private(os.path.dirname(folder))
        try:
            os.mkdir(folder, mode=0o700)
        except FileExistsError:  # another command has just made it
            return


def _name(text: str) -> str:
    """Returns `text` for use in a file name: unchanged if it is safe, as clients' ids are, else in hexadecimal."""
    plain = text.isascii() and text.replace("-", "").replace("_", "").isalnum()
    return text if plain and len(text) <= 80 else text.encode("utf-8", "replace")[:60].hex()
