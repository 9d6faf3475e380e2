"""Homes with the configuration that clients leave there, and a command that stands for ours."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from mcp_server.clients.installers import jsonc
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


def said(client: Client, data: bytes) -> Any:
    """What a configuration says to its client."""
    text = data.decode("utf-8-sig")
    if client.form == "toml":
        return tomllib.loads(text)
    if client.plain:
        return json.loads(text or "{}")
    return jsonc.read(text, "file")


@dataclass(frozen=True, slots=True)
class Odd:
    """An unusual file of a client: `kind` says what is unusual, `shape` what is at the file's path.

    `refused` is a part of the error if nothing may be changed; "" if our part is added and taken back.
    """

    kind: str
    data: bytes = b""
    refused: str = ""
    shape: Literal["file", "link", "link to nothing", "link to itself", "folder", "read-only"] = "file"


_SHAPES = (
    Odd("missing, behind a link", shape="link to nothing"),
    Odd("empty, behind a link", shape="link"),
    Odd("a folder", refused="is a folder", shape="folder"),
    Odd("read-only", refused="is read-only", shape="read-only"),
    Odd("a link to itself", refused="cannot be read", shape="link to itself"),
)
COMMENTS = {"comments at the ends of lines", "comments between", "only comments", "trailing commas"}
"""Kinds of files that a client which reads plain JSON ignores."""
_HOOK = {"type": "command", "command": "notify 'context-manager finished'", "timeout": 3}


def odd_json(servers: str, event: str) -> Iterator[Odd]:
    """Yields unusual JSON files. `servers` is the key of the servers, "" if there are none; `event` one of hooks."""
    theirs: dict[str, Any] = {"theme": "dark", "list": [1, 2.50, -0.0, 1e9, None, True], "text": 'č 🦉 \\ " \0 //'}
    if servers:
        theirs[servers] = {"files": {"command": "npx", "args": ["-y", "s"], "env": {"T": "č"}}}
    if event:
        theirs["hooks"] = {event: [{"matcher": "*", "hooks": [_HOOK, _HOOK]}, {"hooks": []}], "X": [{"x": [_HOOK]}]}
    text = json.dumps(theirs, indent=2, ensure_ascii=False)
    yield from _SHAPES
    yield Odd("empty")
    yield Odd("blank lines", b"\n\n \t\r\n")
    yield Odd("an empty object", b"{}")
    yield Odd("a wide empty object", b"{\n\n   }\n\n")
    yield Odd("servers and hooks of others", text.encode() + b"\n")
    yield Odd("behind a link", text.encode(), shape="link")
    yield Odd("no newline at the end", text.encode())
    yield Odd("three spaces", json.dumps(theirs, indent=3).encode())
    yield Odd("tabs", json.dumps(theirs, indent="\t").encode())
    yield Odd("no indentation", json.dumps(theirs, indent=0).encode())
    yield Odd("one line", json.dumps(theirs).encode())
    yield Odd("one line without spaces", json.dumps(theirs, separators=(",", ":")).encode())
    yield Odd("mixed indentation", text.replace("\n    ", "\n\t ").encode())
    yield Odd("CRLF", text.replace("\n", "\r\n").encode())
    yield Odd("CRLF and LF", text.replace("\n", "\r\n", 3).encode())
    yield Odd("byte order mark", b"\xef\xbb\xbf" + text.encode())
    yield Odd("byte order mark and nothing else", b"\xef\xbb\xbf")
    yield Odd("comments at the ends of lines", text.replace(",\n", ', // why, "then" {\n').encode())
    yield Odd("comments between", text.replace("{", "{ /* [ { */", 2).replace("\n", "\n// x\n").encode())
    yield Odd("only comments", b"// nothing yet\n/* nor here */")
    yield Odd("trailing commas", text.replace("\n}", ",\n}").replace("\n  ]", ",\n  ]").encode())
    yield Odd("escaped keys", json.dumps({"\u00e4": 1, 'a"b\\': {"": 0}} | theirs).encode())
    yield Odd("a key twice", text.replace("{", '{ "theme": "light",', 1).encode())
    yield Odd("deep", json.dumps(theirs | {"deep": json.loads("[" * 60 + "]" * 60)}).encode())
    if servers:
        taken = {servers: {"memory": {"command": "npx", "args": ["server-memory"]}}}
        yield Odd("our name is taken", json.dumps(taken, indent=2).encode())
        yield Odd("servers are null", json.dumps({servers: None}).encode())
        yield Odd("servers are a list", json.dumps({servers: []}).encode(), servers)
        yield Odd("servers are a text", json.dumps({servers: "none"}).encode(), servers)
    if event:
        yield Odd("hooks are null", b'{"hooks": null}')
        yield Odd("an event is null", json.dumps({"hooks": {event: None}}).encode())
        yield Odd("hooks are a list", b'{"hooks": []}', "hooks")
        yield Odd("an event is an object", json.dumps({"hooks": {event: {"command": "x"}}}).encode(), event)
    yield Odd("a missing comma", b'{\n  "theme": "dark"\n  "x": 1\n}\n', "line 3")
    yield Odd("cut off", text.encode()[:-2], "line ")
    yield Odd("two documents", b"{}\n{}", "line 2")
    yield Odd("a list", b"[]", "line 1")
    yield Odd("a text", b'"settings"', "line 1")
    yield Odd("an open comment", b"{}\n/* x", "line 2")
    yield Odd("single quotes", b"{'theme': 'dark'}", "line 1")
    yield Odd("marks of a conflict", b'<<<<<<< ours\n{}\n=======\n{"x": 1}\n>>>>>>> theirs\n', "line 1")
    yield Odd("Latin-1", b'{\n"theme": "d\xfcnn"}', "line 2: not UTF-8")
    yield Odd("UTF-16", "{}".encode("utf-16"), "not UTF-8")
    yield Odd("NUL bytes", b"\0\0\0\0", "line 1")


def odd_toml() -> Iterator[Odd]:
    """Yields unusual files of Codex."""
    text = (
        '# mine\nmodel = "o5" # the good one\nnotify = ["a",\n  "b", # [mcp_servers.memory]\n]\n\n[mcp_servers.files]\n'
        'command = "npx"\nargs = ["-y", "s"]\n\n[mcp_servers.files.env]\n"T.x" = "č 🦉"\n\n[[hooks]]\nx = 1\n# end\n'
    )
    yield from _SHAPES
    yield Odd("empty")
    yield Odd("blank lines", b"\n\n \t\n")
    yield Odd("only comments", b"# nothing yet\n  # [mcp_servers.memory]")
    yield Odd("servers of others, comments", text.encode())
    yield Odd("behind a link", text.encode(), shape="link")
    yield Odd("no newline at the end", text.strip().encode())
    yield Odd("CRLF", text.replace("\n", "\r\n").encode())
    yield Odd("CRLF and LF", text.replace("\n", "\r\n", 3).encode())
    yield Odd("byte order mark", b"\xef\xbb\xbf" + text.encode())
    yield Odd("byte order mark and nothing else", b"\xef\xbb\xbf")
    yield Odd("indented tables", text.replace("\n[", "\n\t  [").encode())
    yield Odd("spaces in headers", text.replace("[mcp_servers.files]", "[ mcp_servers . 'files' ] # x").encode())
    yield Odd("a text of several lines", b'x = """\n[mcp_servers.memory]\ncommand = "npx"\n"""\n')
    yield Odd("a literal of several lines", b"x = '''\n[mcp_servers.memory]\n'''\ny = 1979-05-27T07:32:00Z")
    yield Odd("keys with dots", b'model.name = "o5"\nmodel.size = 1_000\n')
    yield Odd("an empty table of servers", b"[mcp_servers]\n\n[other]\n")
    yield Odd("servers that are no neighbors", b'[mcp_servers.a]\ncommand="x"\n[other]\n[mcp_servers.b]\ncommand="y"')
    yield Odd("our name is taken", b'[mcp_servers.memory]\ncommand = "npx"\n\n[other]\nx = 1')
    yield Odd("arrays of tables at the end", b"[[a]]\n[[a.b]]\nx = {y = [1, {z = 2}]}\n")
    yield Odd("servers in one line", b'mcp_servers = {files = {command = "npx"}}\n', "mcp_servers")
    yield Odd("servers are a list", b"mcp_servers = []\n", "mcp_servers")
    yield Odd("a value is missing", b'model = "o5"\nbroken = \n', "line 2")
    yield Odd("cut off", b'model = "o5', "line 1")
    yield Odd("a table twice", b"[a]\n[a]\n", "line 2")
    yield Odd("JSON", b'{"model": "o5"}', "line 1")
    yield Odd("marks of a conflict", b"<<<<<<< ours\nx = 1\n=======\nx = 2\n>>>>>>> theirs\n", "line 1")
    yield Odd("Latin-1", b'x = "\xfc"', "line 1: not UTF-8")
    yield Odd("UTF-16", "x = 1".encode("utf-16"), "not UTF-8")
    yield Odd("NUL bytes", b"\0\0", "line 1")


def odd_files(client: Client, home: Path) -> Iterator[tuple[Path, Odd]]:
    """Yields the unusual files that a client may have in `home`, each with its path."""
    adapter, servers = client.hooks, client.file(machine(home))
    hooks = adapter.hooks_file({}, home, None) if adapter else None
    event = next(iter(adapter.events), "") if adapter else ""

    def json_files(container: str, event: str) -> Iterator[Odd]:
        for odd in odd_json(container, event):
            has_comments = client.plain and odd.kind in COMMENTS and not odd.refused
            yield replace(odd, refused="a comment or a trailing comma") if has_comments else odd

    in_one = event if servers == hooks else ""
    found = odd_toml() if client.form == "toml" else json_files(client.container[0], in_one)
    yield from ((servers, odd) for odd in found)
    if adapter is None or hooks is None or hooks == servers:
        return
    if adapter.plugin is None:
        yield from ((hooks, odd) for odd in json_files("", event))
        return
    yield from ((hooks, odd) for odd in _SHAPES)
    yield hooks, Odd("another plugin", b"export const Theirs = 1\n", "is not ours")
    yield hooks, Odd("binary", b"\xff\xfe\0", "not UTF-8")


def put_in_place(path: Path, odd: Odd) -> None:
    """Writes an unusual file; a link leads to a file elsewhere in the home folder."""
    path.parent.mkdir(parents=True)
    match odd.shape:
        case "folder":
            path.mkdir()
        case "link to itself":
            path.symlink_to(path)
        case "link" | "link to nothing":
            kept = path.parent / "dotfiles" / "kept"
            kept.parent.mkdir()
            path.symlink_to(kept.relative_to(path.parent))
            if odd.shape == "link":
                kept.write_bytes(odd.data)
        case shape:
            path.write_bytes(odd.data)
            path.chmod(0o444 if shape == "read-only" else 0o640)
