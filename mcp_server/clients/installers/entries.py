"""Finds, writes and removes our entry among a client's servers, in the text of a JSON or TOML file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from mcp_server.clients.installers import jsonc, toml_edit
from mcp_server.clients.installers.known import Client
from mcp_server.errors import Conflict, Invalid

NAMES = ("memory", "context-manager")
"""The name of our entry; the second is used if another server has the first."""

Container = tuple[str, ...]

_SERVER = re.compile(r"context-manager-mcp(?:\.exe)?(?:[@=<>~!\[ ].*)?", re.IGNORECASE)
_CLI = re.compile(r"context-manager(?:\.exe)?", re.IGNORECASE)


def servers(client: Client, container: Container, text: str, where: str) -> dict[str, Any]:
    """Returns the servers in the file. Raises Invalid with file and line if it is broken."""
    found: Any = read(client, text, where)
    for step in container:
        found = found.get(step, {}) if isinstance(found, dict) else {}
    return found if isinstance(found, dict) else {}


def read(client: Client, text: str, where: str) -> Any:
    """Returns the file's content. Raises Invalid with file and line if it is broken."""
    if client.form == "toml":
        return toml_edit.read(text, where)
    document = jsonc.parse(text, where)
    return {} if document.root is None else document.root.value


def refuse_comments(client: Client, text: str, where: str) -> None:
    """Raises Invalid if the file has comments or trailing commas and the client cannot read them."""
    if client.form == "json" and client.plain and text.strip():
        document = jsonc.parse(text, where)
        if document.root is None or not document.plain:
            raise Invalid(
                f"{where}: line {document.odd_line or 1}: a comment or a trailing comma, for which {client.title} "
                "ignores the whole file; take it out and try again"
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
    """Returns `text` without our entries."""
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
