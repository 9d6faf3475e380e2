"""Adds our hooks to a client's file, one command for each event, and leaves other hooks alone.

The commands run in a shell and end with `; exit 0`, which sh, bash and PowerShell understand, so that a missing command
is no error. On Windows Claude Code starts our command without a shell: Git's shell and PowerShell quote differently,
and a shell needs four processes instead of one.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from mcp_server.clients.adapters.adapter import Adapter
from mcp_server.clients.installers import jsonc

Hook = Callable[[str], tuple[str, list[str]]]

_SILENT = "; exit 0"
_SILENT_BEFORE = " 2>/dev/null || true"
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


def words_of(handler: Mapping[str, Any]) -> list[str]:
    """Returns the command and the arguments of one of our handlers; [] if its quotes are unbalanced."""
    command, arguments = handler.get("command"), handler.get("args")
    if isinstance(arguments, list):
        return [str(command), *map(str, arguments)]
    try:
        return shlex.split(str(command).removesuffix(_SILENT).removesuffix(_SILENT_BEFORE))
    except ValueError:
        return []


def put(
    text: str, handlers: Mapping[str, Mapping[str, Any]], where: str, begin: Mapping[str, Any] | None = None
) -> str:
    """Returns `text` with exactly these handlers of ours. Other hooks stay where they are.

    `begin` are keys that a new file must have.
    """
    for key, value in (begin or {}).items() if not text.strip() else ():
        text = jsonc.put(text, (key,), value, where)
    for event in _events(text, where):
        spots = list(_spots(text, event, where))
        keep = spots[:1] if event in handlers else []
        for spot in reversed(spots[len(keep) :]):
            text = _without(text, event, spot, where)
    for event, handler in handlers.items():
        spots = list(_spots(text, event, where))
        if spots:
            group, place, _ = spots[0]
            text = jsonc.put(text, ("hooks", event, group, "hooks", place), dict(handler), where)
        else:
            text = jsonc.append(text, ("hooks", event), {"hooks": [dict(handler)]}, where)
    return text


def remove(text: str, where: str) -> str:
    """Returns `text` without our handlers."""
    return put(text, {}, where)


def present(text: str, where: str) -> dict[str, dict[str, Any]]:
    """Returns event → our handler in the file."""
    document = jsonc.parse(text, where)
    found = {}
    for event in _events(text, where):
        for group, place, _ in _spots(text, event, where):
            node = jsonc.get(document, ("hooks", event, group, "hooks", place))
            assert node is not None
            found[event] = node.value
            break
    return found


def is_ours(handler: object) -> bool:
    """Returns True if a handler runs our `hook` command."""
    if not isinstance(handler, Mapping):
        return False
    command, arguments = handler.get("command"), handler.get("args")
    if not isinstance(command, str):
        return False
    if isinstance(arguments, list):
        words = [command, *map(str, arguments)]
        return any(_NAME.fullmatch(word) for word in words) and "hook" in words
    return _SHELL.search(command) is not None


def _events(text: str, where: str) -> list[str]:
    node = jsonc.get(jsonc.parse(text, where), ("hooks",))
    return list(node.value) if node is not None and isinstance(node.value, dict) else []


def _spots(text: str, event: str, where: str) -> Iterator[Spot]:
    node = jsonc.get(jsonc.parse(text, where), ("hooks", event))
    groups = node.value if node is not None and isinstance(node.value, list) else []
    for index, group in enumerate(groups):
        handlers = group.get("hooks") if isinstance(group, dict) else None
        for place, handler in enumerate(handlers if isinstance(handlers, list) else []):
            if is_ours(handler):
                yield index, place, len(handlers or []) == 1


def _without(text: str, event: str, spot: Spot, where: str) -> str:
    group, place, alone = spot
    path: jsonc.Path = ("hooks", event, group) if alone else ("hooks", event, group, "hooks", place)
    return jsonc.remove(text, path, where)
