"""Finds, writes and removes our server and our hooks in the text of a client's JSON or TOML file.

Hooks run in a shell, one command for each event, and end with `; exit 0`, which sh, bash and PowerShell understand, so
that a missing command is no error. On Windows Claude Code starts our command without a shell: Git's shell and
PowerShell quote differently, and a shell needs four processes instead of one. Other hooks are left alone.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any

from mcp_server.clients.adapters.adapter import Adapter, as_mapping
from mcp_server.clients.installers import jsonc, toml_edit
from mcp_server.clients.installers.known import Client
from mcp_server.errors import Conflict, Invalid

Hook = Callable[[str], tuple[str, list[str]]]

_SILENT = "; exit 0"
_SHELL = re.compile(r"context-manager(?:\.exe)?[\"']?\s+(?:--workspace[= ]\S+\s+)?hook\b", re.IGNORECASE)
_NAME = re.compile(r"(?:.*[\\/])?context-manager(?:\.exe)?", re.IGNORECASE)

Spot = tuple[int, int, bool]
"""The position of one of our handlers: index of its group, index in the group, and whether it is alone there."""


def wanted(adapter: Adapter, hook: Hook, *, shell: bool = True) -> dict[str, dict[str, Any]]:
    """Returns the client's event → our handler. Without `shell` the client starts the command itself (Windows)."""
    handlers = {}
    for event, (ours, also) in adapter.events.items():
        command, arguments = hook(ours)
        words = {"command": shlex.join((command, *arguments)) + _SILENT}
        handlers[event] = {"type": "command", **(words if shell else {"command": command, "args": arguments}), **also}
    return handlers


def words_of_hook(handler: Mapping[str, Any]) -> list[str]:
    """Returns the command and the arguments of one of our handlers; [] if its quotes are unbalanced."""
    command, arguments = handler.get("command"), handler.get("args")
    if isinstance(arguments, list):
        return [str(command), *map(str, arguments)]
    try:
        return shlex.split(str(command).removesuffix(_SILENT))
    except ValueError:
        return []


def put_hooks(
    text: str, handlers: Mapping[str, Mapping[str, Any]], where: str, begin: Mapping[str, Any] | None = None
) -> str:
    """Returns `text` with these handlers as the only ones of ours. Other hooks stay where they are.

    `begin` are keys that a new file must have.
    """
    for key, value in (begin or {}).items() if not text.strip() else ():
        text = jsonc.put(text, (key,), value, where)
    for event in _hooks(text, where):
        spots = list(_spots(text, event, where))
        keep = spots[:1] if event in handlers else []
        for group, place, alone in reversed(spots[len(keep) :]):
            path: jsonc.Path = ("hooks", event, group) if alone else ("hooks", event, group, "hooks", place)
            text = jsonc.remove(text, path, where)
    for event, handler in handlers.items():
        spots = list(_spots(text, event, where))
        if spots:
            group, place, _ = spots[0]
            text = jsonc.put(text, ("hooks", event, group, "hooks", place), dict(handler), where)
        else:
            text = jsonc.append(text, ("hooks", event), {"hooks": [dict(handler)]}, where)
    return text


def present(text: str, where: str) -> dict[str, dict[str, Any]]:
    found = {}
    for event, groups in _hooks(text, where).items():
        for group, place, _ in _spots(text, event, where):
            found[event] = groups[group]["hooks"][place]
            break
    return found


def is_our_hook(handler: object) -> bool:
    if not isinstance(handler, Mapping):
        return False
    command, arguments = handler.get("command"), handler.get("args")
    if not isinstance(command, str):
        return False
    if isinstance(arguments, list):
        words = [command, *map(str, arguments)]
        return any(_NAME.fullmatch(word) for word in words) and "hook" in words
    return _SHELL.search(command) is not None


def _hooks(text: str, where: str) -> dict[str, Any]:
    found = as_mapping(jsonc.read(text, where)).get("hooks")
    return found if isinstance(found, dict) else {}


def _spots(text: str, event: str, where: str) -> Iterator[Spot]:
    groups = _hooks(text, where).get(event)
    for index, group in enumerate(groups if isinstance(groups, list) else ()):
        handlers = group.get("hooks") if isinstance(group, dict) else None
        for place, handler in enumerate(handlers if isinstance(handlers, list) else []):
            if is_our_hook(handler):
                yield index, place, len(handlers or []) == 1


NAMES = ("memory", "context-manager")
"""The name of our entry; the second is used if another server has the first."""

Container = tuple[str, ...]

_SERVER = re.compile(r"context-manager-mcp(?:\.exe)?(?:[@=<>~!\[ ].*)?", re.IGNORECASE)
_CLI = re.compile(r"context-manager(?:\.exe)?", re.IGNORECASE)


def servers(client: Client, container: Container, text: str, where: str) -> dict[str, Any]:
    """Returns the servers in the file. Raises Invalid with file and line if it is broken."""
    found: Any = (toml_edit if client.form == "toml" else jsonc).read(text, where)
    for step in container:
        found = as_mapping(found).get(step)
    return found if isinstance(found, dict) else {}


def refuse_comments(client: Client, text: str, where: str) -> None:
    """Raises Invalid if the file has comments or trailing commas and the client cannot read them."""
    if client.form == "json" and client.plain and text.strip():
        odd_line = jsonc.parse(text, where).odd_line
        if odd_line:
            raise Invalid(
                f"{where}: line {odd_line}: because of a comment or a trailing comma, {client.title} ignores the "
                "whole file; remove it and try again"
            )


def is_ours(entry: object) -> bool:
    """Returns True if an entry starts our server, from any installation and in any of the known forms."""
    words = words_of(entry)
    if any(_SERVER.fullmatch(_name(word)) for word in words):
        return True
    return ("-m", "mcp_server") in pairwise(words) or any(_CLI.fullmatch(_name(a)) and "serve" in words for a in words)


def words_of(entry: object) -> list[str]:
    """Returns the command and the arguments of an entry. Old versions of Zed have both under `command`."""
    if not isinstance(entry, Mapping):
        return []
    command = entry.get("command")
    if isinstance(command, Mapping):
        return [str(command.get("path", "")), *_strings(command.get("args"))]
    if isinstance(command, list):
        return _strings(command)
    return [command, *_strings(entry.get("args"))] if isinstance(command, str) else []


def ours(found: Mapping[str, Any]) -> list[str]:
    """Returns the names of our entries, the usual ones first."""
    names = [name for name, entry in found.items() if is_ours(entry)]
    return sorted(names, key=lambda name: (name not in NAMES, names.index(name)))


def put(client: Client, container: Container, text: str, fields: Mapping[str, Any], where: str) -> tuple[str, str]:
    """Returns `text` with our entry, and its name. An existing entry is updated; its other fields stay.

    Raises Conflict if other servers have both of our names.
    """
    found = servers(client, container, text, where)
    names = ours(found)
    name = names[0] if names else next((name for name in NAMES if name not in found), None)
    if name is None:
        raise Conflict(f"{where} has other servers named {' and '.join(NAMES)}; rename one of them and try again")
    if client.form == "toml":
        return toml_edit.put(text, (*container, name), fields, where), name
    if name not in found:
        return jsonc.put(text, (*container, name), dict(fields), where), name
    for key, value in fields.items():
        text = jsonc.put(text, (*container, name, key), value, where)
    return text, name


def remove(client: Client, container: Container, text: str, where: str) -> str:
    for name in ours(servers(client, container, text, where)):
        edit = toml_edit.remove if client.form == "toml" else jsonc.remove
        text = edit(text, (*container, name), where)
    return text


def remove_empty(path: Container, text: str, where: str) -> str:
    """Returns the text of a JSON file without the object or list at `path`, if that is empty."""
    node = jsonc.get(jsonc.parse(text, where), path)
    return jsonc.remove(text, path, where) if node is not None and node.value in ({}, []) else text


def _name(word: str) -> str:
    return re.split(r"[\\/]", word)[-1]


def _strings(value: object) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
