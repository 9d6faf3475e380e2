"""Claude Code's hooks, in its `settings.json`: one command for each event, among those that others put there.

They go through the shell, as the plugin's do, so that they fail nobody where our command is gone: `; exit 0` is said
alike by sh, bash and PowerShell. Our own path on Windows needs no shell: there it would be Git's or PowerShell, which
quote differently, and four processes instead of one.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from mcp_server.clients.installers import jsonc
from mcp_server.clients.installers import jsonc as jsonc_edit

Hook = Callable[[str], tuple[str, list[str]]]

EVENTS: dict[str, dict[str, Any]] = {
    "SessionStart": {"timeout": 5},
    "UserPromptSubmit": {"timeout": 8},
    "PostToolUse": {"timeout": 5, "async": True},
    "Stop": {"timeout": 5},
    "PreCompact": {"timeout": 5},
    "PostCompact": {"timeout": 5},
    "SessionEnd": {"timeout": 2},
}
"""The events, and the seconds after which Claude Code gives up; a test holds that the plugin has the same."""

_SILENT = "; exit 0"
_SILENT_BEFORE = " 2>/dev/null || true"
_SHELL = re.compile(r"context-manager(?:\.exe)?[\"']?\s+(?:--workspace[= ]\S+\s+)?hook\b", re.IGNORECASE)
_NAME = re.compile(r"(?:.*[\\/])?context-manager(?:\.exe)?", re.IGNORECASE)

Spot = tuple[int, int, bool]
"""A handler of ours: the place of its group, its place there, and whether it is the only one."""


def wanted(hook: Hook, *, shell: bool = True) -> dict[str, dict[str, Any]]:
    """Event → the handler that it should have. Without `shell` the client starts the command itself (Windows)."""
    handlers = {}
    for event, also in EVENTS.items():
        command, arguments = hook(event)
        words = {"command": shlex.join((command, *arguments)) + _SILENT}
        handlers[event] = {"type": "command", **(words if shell else {"command": command, "args": arguments}), **also}
    return handlers


def words_of(handler: Mapping[str, Any]) -> list[str]:
    """The command that a handler of ours starts, and its arguments. Empty if its quotes are broken."""
    command, arguments = handler.get("command"), handler.get("args")
    if isinstance(arguments, list):
        return [str(command), *map(str, arguments)]
    try:
        return shlex.split(str(command).removesuffix(_SILENT).removesuffix(_SILENT_BEFORE))
    except ValueError:
        return []


def put(text: str, handlers: Mapping[str, Mapping[str, Any]], where: str) -> str:
    """`text` with each event's handler, once; other people's hooks stay where they are."""
    for event in _events(text, where):
        spots = list(_spots(text, event, where))
        keep = spots[:1] if event in handlers else []
        for spot in reversed(spots[len(keep) :]):
            text = _without(text, event, spot, where)
    for event, handler in handlers.items():
        spots = list(_spots(text, event, where))
        if spots:
            group, place, _ = spots[0]
            text = jsonc_edit.put(text, ("hooks", event, group, "hooks", place), dict(handler), where)
        else:
            text = jsonc_edit.append(text, ("hooks", event), {"hooks": [dict(handler)]}, where)
    return text


def remove(text: str, where: str) -> str:
    """`text` without our handlers."""
    return put(text, {}, where)


def present(text: str, where: str) -> dict[str, dict[str, Any]]:
    """Event → our handler, as the file has it."""
    document = jsonc.parse(text, where)
    found = {}
    for event in _events(text, where):
        for group, place, _ in _spots(text, event, where):
            node = jsonc_edit.get(document, ("hooks", event, group, "hooks", place))
            assert node is not None
            found[event] = node.value
            break
    return found


def is_ours(handler: object) -> bool:
    """True if a handler runs our `hook` command, or asks our server's tool of that name."""
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
    node = jsonc_edit.get(jsonc.parse(text, where), ("hooks",))
    return list(node.value) if node is not None and isinstance(node.value, dict) else []


def _spots(text: str, event: str, where: str) -> Iterator[Spot]:
    node = jsonc_edit.get(jsonc.parse(text, where), ("hooks", event))
    groups = node.value if node is not None and isinstance(node.value, list) else []
    for index, group in enumerate(groups):
        handlers = group.get("hooks") if isinstance(group, dict) else None
        for place, handler in enumerate(handlers if isinstance(handlers, list) else []):
            if is_ours(handler):
                yield index, place, len(handlers or []) == 1


def _without(text: str, event: str, spot: Spot, where: str) -> str:
    group, place, alone = spot
    path: jsonc_edit.Path = ("hooks", event, group) if alone else ("hooks", event, group, "hooks", place)
    return jsonc_edit.remove(text, path, where)
