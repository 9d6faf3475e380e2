"""Our entry among a client's servers: found, put, taken out. Works on text; knows both forms, JSON and TOML."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from mcp_server.clients.installers import jsonc, toml_edit
from mcp_server.clients.installers import jsonc as jsonc_edit
from mcp_server.clients.installers.known import Client
from mcp_server.errors import Conflict, Invalid

NAMES = ("memory", "context-manager")
"""What our server is called; the second where the first is somebody else's."""

Container = tuple[str, ...]

_SERVER = re.compile(r"context-manager-mcp(?:\.exe)?(?:[@=<>~!\[ ].*)?", re.IGNORECASE)
_CLI = re.compile(r"context-manager(?:\.exe)?", re.IGNORECASE)


def servers(client: Client, container: Container, text: str, where: str) -> dict[str, Any]:
    """The servers that the file names. Raises Invalid with file and line if it is broken."""
    found: Any = read(client, text, where)
    for step in container:
        found = found.get(step, {}) if isinstance(found, dict) else {}
    return found if isinstance(found, dict) else {}


def read(client: Client, text: str, where: str) -> Any:
    """What the file says. Raises Invalid with file and line if it is broken."""
    if client.form == "toml":
        return toml_edit.read(text, where)
    document = jsonc.parse(text, where)
    return {} if document.root is None else document.root.value


def refuse_comments(client: Client, text: str, where: str) -> None:
    """Raises Invalid if the client itself cannot read the file, because it has what only some clients allow."""
    if client.form == "json" and client.plain and text.strip():
        document = jsonc.parse(text, where)
        if document.root is None or not document.plain:
            raise Invalid(
                f"{where}: line {document.odd_line or 1}: a comment or a trailing comma, for which {client.title} "
                "ignores the whole file; take it out and try again"
            )


def is_ours(entry: object) -> bool:
    """True if a server's entry starts our server, however it was written and wherever it is installed."""
    words = words_of(entry)
    if any(_SERVER.fullmatch(_name(word)) for word in words):
        return True
    return ("-m", "mcp_server") in pairwise(words) or any(_CLI.fullmatch(_name(a)) and "serve" in words for a in words)


def words_of(entry: object) -> list[str]:
    """Command and arguments of an entry; Zed once kept both under `command`."""
    if not isinstance(entry, Mapping):
        return []
    command = entry.get("command")
    if isinstance(command, Mapping):
        return [str(command.get("path", "")), *_strings(command.get("args"))]
    return [command, *_strings(entry.get("args"))] if isinstance(command, str) else []


def ours(found: Mapping[str, Any]) -> list[str]:
    """The names of our entries, the usual one first."""
    names = [name for name, entry in found.items() if is_ours(entry)]
    return sorted(names, key=lambda name: (name not in NAMES, names.index(name)))


def put(client: Client, container: Container, text: str, fields: Mapping[str, Any], where: str) -> tuple[str, str]:
    """`text` with our entry, and the entry's name. One that is there is brought up to date, what else is in it stays.

    Raises Conflict if every name that we would take is somebody else's.
    """
    found = servers(client, container, text, where)
    names = ours(found)
    name = names[0] if names else next((name for name in NAMES if name not in found), None)
    if name is None:
        raise Conflict(f"{where} has other servers named {' and '.join(NAMES)}; rename one of them and try again")
    if client.form == "toml":
        return toml_edit.put(text, (*container, name), fields, where), name
    if name not in found:
        return jsonc_edit.put(text, (*container, name), dict(fields), where), name
    for key, value in fields.items():
        text = jsonc_edit.put(text, (*container, name, key), value, where)
    return text, name


def remove(client: Client, container: Container, text: str, where: str) -> str:
    """`text` without any entry of ours."""
    for name in ours(servers(client, container, text, where)):
        edit = toml_edit.remove if client.form == "toml" else jsonc_edit.remove
        text = edit(text, (*container, name), where)
    return text


def remove_empty(client: Client, path: Container, text: str, where: str) -> str:
    """`text` without the object or list at `path`, if nothing is left in it."""
    if client.form == "toml":
        return text  # a table of ours takes the one above it along
    node = jsonc_edit.get(jsonc.parse(text, where), path)
    return jsonc_edit.remove(text, path, where) if node is not None and node.value in ({}, []) else text


def _name(word: str) -> str:
    return re.split(r"[\\/]", word)[-1]


def _strings(value: object) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
