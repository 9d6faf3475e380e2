"""Homes with the configuration that clients leave there, and a command that stands for ours."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from mcp_server.clients.installers.jsonc import parse
from mcp_server.clients.installers.known import Client, Machine
from mcp_server.clients.installers.plan import Launch

SERVER = "/opt/some where/bin/context-manager-mcp"
CLI = "/opt/some where/bin/context-manager"


def machine(home: Path, system: str = "linux", **environ: str) -> Machine:
    """A machine whose home is `home`, with nothing on its PATH."""
    return Machine(home, {"HOME": str(home), "PATH": "", **environ}, system)


def launch(workspace: Path | None = None) -> Launch:
    """An installation at a path with a space."""
    return Launch((SERVER,), (CLI,), workspace)


def configurations(client: Client) -> dict[str, bytes]:
    """What the client's file may look like, by what is special about it."""
    if client.form == "toml":
        return {
            "empty": b"",
            "others": b'model = "o5"\n\n[mcp_servers.files]\ncommand = "npx"\nargs = ["-y", "server"]\n',
            "comments": b'# mine\nmodel = "o5" # the good one\n\n[profiles.fast]\nmodel = "mini"\n\n# the end\n',
            "CRLF": b'model = "o5"\r\n\r\n[mcp_servers.files]\r\ncommand = "npx"\r\n',
            "BOM": b'\xef\xbb\xbfmodel = "o5"\n',
            "name taken": b'[mcp_servers.memory]\ncommand = "npx"\n\n[other]\nx = 1',
            "no newline": b'model = "o5"',
        }
    key = client.container[0]
    others = {"theme": "dark", key: {"files": {"command": "npx", "args": ["-y", "s"], "env": {"T": "č"}}}, "z": [1, {}]}
    found = {
        "empty": b"",
        "empty object": b"{}",
        "others": json.dumps(others, indent=2, ensure_ascii=False).encode() + b"\n",
        "tabs": json.dumps(others, indent="\t").encode(),
        "four spaces": json.dumps(others, indent=4).encode(),
        "one line": json.dumps(others).encode(),
        "CRLF": json.dumps(others, indent=2).replace("\n", "\r\n").encode(),
        "BOM": b"\xef\xbb\xbf" + json.dumps(others, indent=2).encode(),
        "no servers": b'{\n  "theme": "dark"\n}\n',
        "name taken": json.dumps({key: {"memory": {"command": "npx", "args": ["server-memory"]}}}, indent=2).encode(),
    }
    if not client.plain:
        found["comments"] = (
            b'// all mine\n{\n  "theme": "dark", // at night\n  /* servers:\n     two */\n  "'
            + key.encode()
            + b'": {\n'
            b'    // "off": {},\n    "files": {"command": "npx"}, // with a comma\n  },\n}\n// the end\n'
        )
        found["comments only"] = b"// nothing yet\n"
    return found


BROKEN = {
    "json": b'{\n  "theme": "dark"\n  "x": 1\n}\n',
    "toml": b'model = "o5"\nbroken = \n',
}


def said(client: Client, data: bytes) -> Any:
    """What a configuration says to its client."""
    text = data.decode("utf-8-sig")
    if client.form == "toml":
        return tomllib.loads(text)
    if client.plain:
        return json.loads(text or "{}")
    root = parse(text, "file").root
    return {} if root is None else root.value
