"""Each client's configuration gets our entry and nothing else; taking it back gives the bytes that were there."""

from __future__ import annotations

import codecs
import copy
import json
import stat
import tomllib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mcp_server.clients.installers import config_file, entries, jsonc
from mcp_server.clients.installers.chain import look
from mcp_server.clients.installers.entries import words_of
from mcp_server.clients.installers.install import Done, install, record_of, uninstall
from mcp_server.clients.installers.known import CLIENTS, Client, client_named
from mcp_server.clients.installers.plan import Launch, Plan, plan
from mcp_server.errors import Conflict, ContextManagerError, Refused, Unavailable
from mcp_server.memory import Memory
from tests.clients.installers.homes import (
    SERVER,
    Odd,
    launch,
    machine,
    odd_files,
    put_in_place,
    said,
)
from tests.end_to_end.servers import files_below

pytestmark = pytest.mark.anyio

OTHERS = {
    "json": b'{\n  "theme": "dark",\n  "z": [1, {}]\n}\n',
    "toml": b'model = "o5"\n\n[mcp_servers.files]\ncommand = "npx"\n',
}
"""Files with settings of the user's own."""
EVERY = [pytest.param(client, id=client.name) for client in CLIENTS]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home of mine"


def written(client: Client, home: Path, data: bytes) -> Path:
    file = client.file(machine(home))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    file.chmod(0o640)
    return file


def planned(client: Client, home: Path, how: Launch | None = None, **options: Any) -> Plan:
    return plan(client, machine(home), how or launch(), **options)


def with_ours(client: Client, document: dict[str, Any]) -> dict[str, Any]:
    """`document` with the entry that it should get."""
    expected = copy.deepcopy(document)
    servers = expected
    for key in client.container:
        servers[key] = servers.get(key) or {}
        servers = servers[key]
    name = "context-manager" if "memory" in servers else "memory"
    arguments = ["--hooks"] if client.hooks else []
    started = {"command": [SERVER, *arguments]} if client.joined else {"command": SERVER, "args": arguments}
    servers[name] = {**client.also, **started}
    elsewhere = machine(Path("/home/ana"))
    in_one_file = client.hooks and client.hooks.hooks_file({}, elsewhere.home, None) == client.file(elsewhere)
    if client.hooks and in_one_file and client.form == "json" and not client.joined:
        handlers = entries.wanted(client.hooks, partial(launch().hook, client=client.name))
        expected["hooks"] = {event: [{"hooks": [handler]}] for event, handler in handlers.items()}
    return expected


@pytest.mark.parametrize("client", EVERY)
async def test_a_missing_file_is_made_for_the_user_alone_and_goes_with_its_folders(
    memory: Memory, home: Path, client: Client
) -> None:
    home.mkdir()
    file = client.file(machine(home))
    found = planned(client, home)
    assert "does not seem to be on this machine" in found.notes[0]
    install(memory, found)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert SERVER in words_of(said(client, file.read_bytes())[client.container[0]]["memory"])
    assert {one.what for one in uninstall(memory, client, machine(home))} == {"deleted"}
    assert list(home.iterdir()) == []


@pytest.mark.parametrize("client", EVERY)
async def test_a_file_that_was_changed_since_only_loses_our_entry(memory: Memory, home: Path, client: Client) -> None:
    changeable = {"servers and hooks of others", "tabs", "one line", "CRLF", "byte order mark", "our name is taken"}
    changeable.add("servers of others, comments")  # in TOML
    file = client.file(machine(home))
    found = {odd.kind: odd.data for path, odd in odd_files(client, home) if path == file and odd.kind in changeable}
    assert len(found) >= 3
    for kind, data in found.items():
        there = home / kind
        file = written(client, there, data)
        install(memory, planned(client, there))
        text = file.read_bytes()
        later: dict[str, Any] = {"later": {"said": "x"}}
        if client.form == "toml":
            file.write_bytes(text + b'\n# later\n[later]\nsaid = "x"\n')
        else:
            place = text.index(b"{") + 1
            file.write_bytes(text[:place] + b'\n  "later": {"said": "x"},' + text[place:])
        assert {one.what for one in uninstall(memory, client, machine(there)) if one.path == file} == {"cleaned"}
        assert said(client, file.read_bytes()) == {**later, **said(client, data)}, kind
        assert look(client, machine(there)).state == "not installed"


@pytest.mark.parametrize("client", EVERY)
async def test_installing_again_changes_nothing_and_a_new_path_only_that(
    memory: Memory, home: Path, client: Client
) -> None:
    data = OTHERS[client.form]
    file = written(client, home, data)
    install(memory, planned(client, home))
    once = file.read_bytes()
    assert not planned(client, home).needed
    assert {one.what for one in install(memory, planned(client, home))} == {"unchanged"}
    moved = Launch(("/elsewhere/context-manager-mcp",), ("/elsewhere/context-manager",), Path("/my memory"))
    install(memory, planned(client, home, moved))
    assert file.read_bytes() != once
    entry = said(client, file.read_bytes())[client.container[0]]["memory"]
    command, *arguments = words_of(entry)
    assert command == "/elsewhere/context-manager-mcp"
    assert arguments[-2:] == ["--workspace", "/my memory"]
    uninstall(memory, client, machine(home))
    assert file.read_bytes() == data


@pytest.mark.parametrize("client", EVERY)
async def test_an_entry_made_by_hand_is_brought_up_to_date_and_keeps_what_else_is_in_it(
    memory: Memory, home: Path, client: Client
) -> None:
    key = client.container[0]
    if client.form == "toml":
        data = b'[mcp_servers.mem]\ncommand = "uvx" # mine\nargs = ["context-manager-mcp"]\nstartup_timeout_sec = 20\n'
    else:
        entry = {"command": "uvx", "args": ["context-manager-mcp@latest"], "startup_timeout_sec": 20}
        data = json.dumps({key: {"mem": entry}}).encode()
    file = written(client, home, data)
    install(memory, planned(client, home))
    servers = said(client, file.read_bytes())[key]
    assert list(servers) == ["mem"]
    assert words_of(servers["mem"])[0] == SERVER
    assert servers["mem"]["startup_timeout_sec"] == 20
    uninstall(memory, client, machine(home))
    assert not said(client, file.read_bytes()).get(key)


@pytest.mark.parametrize("name", [client.name for client in CLIENTS if client.project])
async def test_a_single_project_has_a_file_of_its_own(memory: Memory, home: Path, tmp_path: Path, name: str) -> None:
    client, folder = client_named(name), tmp_path / "a project"
    folder.mkdir()
    found = planned(client, home, project=folder)
    install(memory, found)
    assert client.project is not None
    assert SERVER in (folder / client.project).read_text("utf-8")
    assert any("do not commit or share it" in note for note in found.notes)
    assert not client.file(machine(home)).exists()
    assert look(client, machine(home), folder).state == "installed"
    uninstall(memory, client, machine(home), folder)
    assert list(folder.iterdir()) == []


async def test_claude_code_keeps_a_project_of_one_user_in_its_own_file(
    memory: Memory, home: Path, tmp_path: Path
) -> None:
    client, folder = client_named("claude-code"), tmp_path / "a project"
    folder.mkdir()
    data = json.dumps({"projects": {str(folder): {"allowedTools": ["Bash"]}}, "userID": "u"}, indent=2).encode()
    file = written(client, home, data)
    install(memory, planned(client, home))
    everywhere = file.read_bytes()
    install(memory, planned(client, home, project=folder))
    project = json.loads(file.read_bytes())["projects"][str(folder)]
    assert project["allowedTools"] == ["Bash"]
    assert project["mcpServers"]["memory"]["command"] == SERVER
    assert (folder / ".claude" / "settings.local.json").exists()
    uninstall(memory, client, machine(home), folder)
    assert file.read_bytes() == everywhere
    assert list(folder.iterdir()) == []
    uninstall(memory, client, machine(home))
    assert file.read_bytes() == data


def test_a_client_without_projects_says_so(home: Path, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="no configuration for a single project"):
        planned(client_named("claude-desktop"), home, project=tmp_path)


def test_both_names_taken_is_told(home: Path) -> None:
    taken = {"mcpServers": {"memory": {"command": "a"}, "context-manager": {"command": "b"}}}
    written(client_named("cursor"), home, json.dumps(taken).encode())
    with pytest.raises(Conflict, match="rename one of them"):
        planned(client_named("cursor"), home)


async def test_a_file_that_changed_between_looking_and_writing_is_left_alone(memory: Memory, home: Path) -> None:
    client = client_named("cursor")
    file = written(client, home, b"{}")
    found = planned(client, home)
    file.write_bytes(b'{"theirs": 1}')
    with pytest.raises(Conflict, match="just changed by another program"):
        install(memory, found)
    assert file.read_bytes() == b'{"theirs": 1}'
    assert uninstall(memory, client, machine(home)) == ()
    assert file.read_bytes() == b'{"theirs": 1}'


async def test_a_lost_backup_or_record_still_lets_our_entry_be_taken_out(memory: Memory, home: Path) -> None:
    client = client_named("cursor")
    file = written(client, home, b'{"theirs": 1}')
    install(memory, planned(client, home))
    file.with_name("mcp.json.context-manager-backup-1").unlink()
    assert [one.what for one in uninstall(memory, client, machine(home))] == ["cleaned"]
    assert json.loads(file.read_bytes()) == {"theirs": 1}
    install(memory, planned(client, home))
    memory.files.write_atomic(".local/installs/cursor.json", "{broken")
    assert [one.what for one in uninstall(memory, client, machine(home))] == ["cleaned"]
    assert json.loads(file.read_bytes())["theirs"] == 1


async def test_earlier_backups_are_kept(memory: Memory, home: Path) -> None:
    client = client_named("cursor")
    file = written(client, home, b'{"a": 1}')
    earlier = file.with_name("mcp.json.context-manager-backup-1")
    earlier.write_bytes(b"somebody's")
    (done,) = install(memory, planned(client, home))
    assert done.backup == file.with_name("mcp.json.context-manager-backup-2")
    uninstall(memory, client, machine(home))
    assert earlier.read_bytes() == b"somebody's"


async def test_without_hooks_the_server_keeps_the_tools_that_hooks_replace(memory: Memory, home: Path) -> None:
    client = client_named("claude-code")
    install(memory, planned(client, home, hooks=False))
    assert json.loads((home / ".claude.json").read_bytes())["mcpServers"]["memory"]["args"] == []
    assert not (home / ".claude").exists()


def test_the_plugin_and_an_installation_do_not_come_together(home: Path) -> None:
    settings = home / ".claude" / "settings.json"
    settings.parent.mkdir(parents=True)
    settings.write_text(json.dumps({"enabledPlugins": {"context-manager@somewhere": True}}))
    with pytest.raises(Refused, match="claude plugin disable context-manager@somewhere"):
        planned(client_named("claude-code"), home)
    assert look(client_named("claude-code"), machine(home)).state == "plugin"


async def test_an_install_that_fails_leaves_nothing(
    memory: Memory, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = client_named("claude-code")
    there = machine(home)
    home.mkdir()
    (home / ".claude.json").write_text('{"theme": "dark"}')
    before = files_below(home)
    real = config_file.write

    def failing(file: config_file.ConfigFile, data: bytes) -> None:
        if file.path.name == "settings.json":
            file.real.parent.mkdir(parents=True, exist_ok=True)
            raise Unavailable("the disk is full")
        real(file, data)

    monkeypatch.setattr(config_file, "write", failing)
    with pytest.raises(Unavailable):
        install(memory, planned(client, home))
    monkeypatch.undo()
    assert files_below(home) == before
    assert not (home / ".claude").exists()
    assert record_of(memory, client).installations == []
    assert uninstall(memory, client, there) == ()


def everything_in(folder: Path) -> dict[str, tuple[int, bytes | str]]:
    """Returns mode and bytes of each file, and the target of each link."""
    return {
        str(path.relative_to(folder)): (0, str(path.readlink()))
        if path.is_symlink()
        else (path.stat().st_mode, path.read_bytes() if path.is_file() else b"")
        for path in sorted(folder.rglob("*"))
    }


async def result_of(memory: Memory, client: Client, path: Path, odd: Odd, home: Path) -> str:
    """Installs and uninstalls with an unusual file; returns what is wrong, or ""."""
    put_in_place(path, odd)
    before = everything_in(home)
    try:
        done = install(memory, planned(client, home))
    except ContextManagerError as error:
        if odd.kind in ("a missing comma", "cut off") and look(client, machine(home)).state != "broken":
            return "refused, but not called broken"
        if everything_in(home) != before or record_of(memory, client).installations:
            return "refused, but changed"
        is_clear = odd.refused and odd.refused in str(error) and path.name in str(error) and "\n" not in str(error)
        return "" if is_clear else f"refused: {error}"
    found = look(client, machine(home))
    if odd.refused:
        return "installed"
    if found.state != "installed" or (client.hooks and set(found.hooks) != set(client.hooks.events or ["plugin"])):
        return f"{found.state}, with the hooks {sorted(found.hooks)}: {found.problem}"
    if odd.shape == "file" and path.suffix != ".js" and (problem := change_of(client, path, odd, home, done)):
        return f"{problem}: {path.read_bytes()!r}"
    undone = uninstall(memory, client, machine(home))
    if not {"restored", "deleted"} & {one.what for one in undone if one.path == path}:
        return f"not restored: {undone}"
    if record_of(memory, client).installations or uninstall(memory, client, machine(home)):
        return "still recorded as installed"
    return "" if everything_in(home) == before else f"not taken back: {everything_in(home)}"


def change_of(client: Client, path: Path, odd: Odd, home: Path, done: Sequence[Done]) -> str:
    """Returns what is wrong with a file that got our part, or ""."""
    data = path.read_bytes()
    now, before = content(path, data), content(path, odd.data)
    if path != client.file(machine(home)):
        if not holds(now, before):
            return "something of others is lost"
    elif client.joined or client.hooks is None or client.form == "toml":
        if now != with_ours(client, before):
            return "not only our entry came"
    elif not holds(now, before) or now[client.container[0]] != with_ours(client, before)[client.container[0]]:
        return "not only our entry came to the servers"
    if data.startswith(codecs.BOM_UTF8) != odd.data.startswith(codecs.BOM_UTF8):
        return "the byte order mark"
    if odd.kind == "CRLF" and data.count(b"\n") != data.count(b"\r\n"):
        return "the ends of lines"
    (one,) = (one for one in done if one.path == path)
    modes = {stat.S_IMODE(file.stat().st_mode) for file in (path, one.backup) if file}
    if one.backup is None or one.backup.read_bytes() != odd.data or modes != {0o640}:
        return f"the backup or the mode {modes}"
    return ""


def content(path: Path, data: bytes) -> Any:
    """Returns the content of a TOML or JSON file."""
    text = data.decode("utf-8-sig")
    if path.suffix == ".toml":
        return tomllib.loads(text)
    return jsonc.read(text, "")


def holds(after: Any, before: Any) -> bool:
    """Returns whether a document still has all of an earlier one; null may have become an object or a list."""
    if isinstance(before, dict):
        return isinstance(after, dict) and all(key in after and holds(after[key], before[key]) for key in before)
    if isinstance(before, list) and isinstance(after, list):
        return after[: len(before)] == before
    return before is None or bool(after == before)


@pytest.mark.parametrize("name", ["claude-code", "claude-desktop", "cursor", "gemini", "copilot", "opencode", "codex"])
async def test_our_part_in_an_unusual_file_is_taken_back_to_the_byte_or_the_file_is_refused_and_unchanged(
    memory: Memory, home: Path, name: str
) -> None:
    """The other clients' files differ from Cursor's or Gemini's only in their place and the key of the servers."""
    client = client_named(name)
    wrong, number = {}, 0
    for number, (path, odd) in enumerate(odd_files(client, home), 1):
        there = home / str(number)
        if problem := await result_of(memory, client, there / path.relative_to(home), odd, there):
            wrong[f"{path.name}: {odd.kind}"] = problem
    assert wrong == {}
    assert number >= 20


async def test_an_old_plugin_of_ours_is_deleted_and_no_empty_file_is_left(memory: Memory, home: Path) -> None:
    client = client_named("opencode")
    assert client.hooks
    assert client.hooks.plugin
    plugin = home / ".config/opencode/plugins/context-manager.js"
    plugin.parent.mkdir(parents=True)
    for records in (memory, None):
        plugin.write_text(client.hooks.plugin("/old/context-manager", ["hook", "EVENT"]))
        if records:
            install(records, planned(client, home))
        uninstall(records, client, machine(home))
        assert not plugin.exists()
