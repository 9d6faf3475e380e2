"""Each client's configuration gets our entry and nothing else; taking it back gives the bytes that were there."""

from __future__ import annotations

import copy
import json
import stat
import tomllib
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mcp_server.clients.installers import config_file, entries, jsonc
from mcp_server.clients.installers.chain import look
from mcp_server.clients.installers.entries import words_of
from mcp_server.clients.installers.install import install, record_of, uninstall
from mcp_server.clients.installers.known import CLIENTS, Client, client_named
from mcp_server.clients.installers.plan import Launch, Plan, plan
from mcp_server.errors import Conflict, ContextManagerError, Invalid, Refused, Unavailable
from mcp_server.memory import Memory
from tests.clients.installers.homes import (
    BROKEN,
    CLI,
    SERVER,
    Odd,
    configurations,
    launch,
    machine,
    odd_files,
    put_in_place,
    said,
)
from tests.end_to_end.servers import files_below

pytestmark = pytest.mark.anyio

EVERY = [pytest.param(client, id=client.name) for client in CLIENTS]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home of mine"


def written(client: Client, home: Path, data: bytes, mode: int = 0o640) -> Path:
    file = client.file(machine(home))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    file.chmod(mode)
    return file


def planned(client: Client, home: Path, how: Launch | None = None, **options: Any) -> Plan:
    return plan(client, machine(home), how or launch(), **options)


def with_ours(client: Client, document: dict[str, Any]) -> dict[str, Any]:
    """`document` with the entry that it should get."""
    expected = copy.deepcopy(document)
    servers = expected
    for key in client.container:
        servers = servers.setdefault(key, {})
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
async def test_our_entry_is_added_with_a_backup_and_undone_to_the_byte(
    memory: Memory, home: Path, client: Client
) -> None:
    for kind, data in configurations(client).items():
        there = home / kind
        file = written(client, there, data)
        done = install(memory, planned(client, there))
        text = file.read_bytes()
        assert said(client, text) == with_ours(client, said(client, data)), kind
        assert stat.S_IMODE(file.stat().st_mode) == 0o640
        assert text.startswith(b"\xef\xbb\xbf") == data.startswith(b"\xef\xbb\xbf")
        assert text.count(b"\n") == text.count(b"\r\n") or b"\r\n" not in data
        assert b"\r" not in text or b"\r" in data

        backup = file.with_name(f"{file.name}.context-manager-backup-1")
        assert next(one for one in done if one.path == file).backup == backup
        assert backup.read_bytes() == data
        assert stat.S_IMODE(backup.stat().st_mode) == 0o640
        assert look(client, machine(there)).state == "installed"

        undone = uninstall(memory, client, machine(there))
        assert file.read_bytes() == data, kind
        assert stat.S_IMODE(file.stat().st_mode) == 0o640
        assert {one.what for one in undone if one.path == file} == {"restored"}
        assert not backup.exists()
        assert not record_of(memory, client).installations
        assert uninstall(memory, client, machine(there)) == ()


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
    for kind, data in configurations(client).items():
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
async def test_a_broken_file_is_refused_with_its_line_and_left_as_it_is(
    memory: Memory, home: Path, client: Client
) -> None:
    file = written(client, home, BROKEN[client.form])
    with pytest.raises(Invalid, match=r"line [23].*mend the file") as refused:
        planned(client, home)
    assert str(file) in str(refused.value)
    assert file.read_bytes() == BROKEN[client.form]
    assert list(file.parent.glob("*backup*")) == []
    found = look(client, machine(home))
    assert found.state == "broken"
    assert "mend the file" in found.problem


@pytest.mark.parametrize("client", EVERY)
async def test_a_read_only_file_is_refused(memory: Memory, home: Path, client: Client) -> None:
    file = written(client, home, b"", mode=0o444)
    with pytest.raises(Refused, match="is read-only"):
        planned(client, home)
    assert file.read_bytes() == b""


@pytest.mark.parametrize("client", EVERY)
async def test_a_symbolic_link_is_followed_and_stays_one(
    memory: Memory, home: Path, tmp_path: Path, client: Client
) -> None:
    file = written(client, home, b"")
    data = configurations(client)["others"]
    kept = tmp_path / "dotfiles" / "kept"
    kept.parent.mkdir()
    kept.write_bytes(data)
    file.unlink()
    file.symlink_to(kept)
    install(memory, planned(client, home))
    assert file.is_symlink()
    assert SERVER in kept.read_text("utf-8")
    uninstall(memory, client, machine(home))
    assert file.is_symlink()
    assert kept.read_bytes() == data


@pytest.mark.parametrize("client", EVERY)
async def test_installing_again_changes_nothing_and_a_new_path_only_that(
    memory: Memory, home: Path, client: Client
) -> None:
    data = configurations(client)["others"]
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
    assert any("keep it out of what you share" in note for note in found.notes)
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


async def test_a_client_without_projects_says_so(memory: Memory, home: Path, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="no configuration for a single project"):
        planned(client_named("claude-desktop"), home, project=tmp_path)


async def test_comments_that_a_client_does_not_understand_are_told_with_their_line(memory: Memory, home: Path) -> None:
    for name in ("claude-code", "claude-desktop"):
        written(client_named(name), home, b'{\n  "a": 1, // why\n  "mcpServers": {}\n}')
        with pytest.raises(Invalid, match="line 2: a comment or a trailing comma"):
            planned(client_named(name), home)


async def test_both_names_taken_is_told(memory: Memory, home: Path) -> None:
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


async def test_what_is_no_file_or_no_text_is_refused(memory: Memory, home: Path) -> None:
    client = client_named("cursor")
    file = written(client, home, b'{"a": "\xff"}')
    with pytest.raises(Invalid, match=r"line 1: not UTF-8"):
        planned(client, home)
    file.unlink()
    file.mkdir()
    with pytest.raises(Invalid, match="is a folder"):
        planned(client, home)
    assert config_file.digest(None) == ""


async def test_claude_codes_hooks_stand_beside_those_of_others(memory: Memory, home: Path) -> None:
    client = client_named("claude-code")
    settings = home / ".claude" / "settings.json"
    settings.parent.mkdir(parents=True)
    theirs = {
        "model": "opus",
        "hooks": {
            "Stop": [{"hooks": [{"type": "command", "command": "say done"}]}],
            "PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "check"}]}],
        },
    }
    data = json.dumps(theirs, indent=4).encode()
    settings.write_bytes(data)
    install(memory, planned(client, home))
    hooks = json.loads(settings.read_bytes())["hooks"]
    assert hooks["Stop"][0] == theirs["hooks"]["Stop"][0]  # type: ignore[index]
    assert hooks["PreToolUse"] == theirs["hooks"]["PreToolUse"]  # type: ignore[index]
    ours = hooks["Stop"][1]["hooks"][0]
    assert ours["command"] == f"'{CLI}' hook Stop; exit 0"
    uninstall(memory, client, machine(home))
    assert settings.read_bytes() == data


async def test_without_hooks_the_server_keeps_the_tools_that_hooks_replace(memory: Memory, home: Path) -> None:
    client = client_named("claude-code")
    install(memory, planned(client, home, hooks=False))
    assert json.loads((home / ".claude.json").read_bytes())["mcpServers"]["memory"]["args"] == []
    assert not (home / ".claude").exists()


async def test_the_plugin_and_an_installation_do_not_come_together(memory: Memory, home: Path) -> None:
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


@pytest.mark.parametrize("client", [client for client in CLIENTS if client.form == "json"], ids=lambda one: one.name)
async def test_a_null_in_place_of_the_servers_is_an_empty_table(memory: Memory, home: Path, client: Client) -> None:
    data = json.dumps(dict.fromkeys([client.container[0]]) | {"theme": "dark"}, indent=2).encode()
    file = written(client, home, data)
    install(memory, planned(client, home))
    assert said(client, file.read_bytes()) == with_ours(client, {"theme": "dark", client.container[0]: {}})
    uninstall(memory, client, machine(home))
    assert file.read_bytes() == data


async def test_hooks_of_null_are_an_empty_table(memory: Memory, home: Path) -> None:
    client = client_named("claude-code")
    settings = home / ".claude" / "settings.json"
    for nothing in ({"hooks": None}, {"hooks": {"Stop": None}}):
        settings.parent.mkdir(parents=True, exist_ok=True)
        settings.write_text(json.dumps(nothing))
        install(memory, planned(client, home))
        assert len(json.loads(settings.read_text())["hooks"]["Stop"]) == 1
        uninstall(memory, client, machine(home))
        assert json.loads(settings.read_text()) == nothing


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
        install(memory, planned(client, home))
    except ContextManagerError as error:
        if everything_in(home) != before or record_of(memory, client).installations:
            return "refused, but changed"
        is_clear = odd.refused and odd.refused in str(error) and path.name in str(error) and "\n" not in str(error)
        return "" if is_clear else f"refused: {error}"
    found = look(client, machine(home))
    if odd.refused:
        return "installed"
    if found.state != "installed" or (client.hooks and set(found.hooks) != set(client.hooks.events or ["plugin"])):
        return f"{found.state}, with the hooks {sorted(found.hooks)}: {found.problem}"
    if odd.data and path.suffix != ".js" and not holds(content(path, path.read_bytes()), content(path, odd.data)):
        return f"something of others is lost: {path.read_text('utf-8')}"
    uninstall(memory, client, machine(home))
    return "" if everything_in(home) == before else f"not taken back: {everything_in(home)}"


def content(path: Path, data: bytes) -> Any:
    """Returns the content of a TOML or JSON file."""
    text = data.decode("utf-8-sig")
    if path.suffix == ".toml":
        return tomllib.loads(text)
    root = jsonc.parse(text, "").root
    return {} if root is None else root.value


def holds(after: Any, before: Any) -> bool:
    """Returns whether a document still has all of an earlier one; null may have become an object or a list."""
    if isinstance(before, dict):
        return isinstance(after, dict) and all(key in after and holds(after[key], before[key]) for key in before)
    if isinstance(before, list) and isinstance(after, list):
        return after[: len(before)] == before
    return before is None or bool(after == before)


@pytest.mark.parametrize("name", ["codex", "gemini", "qwen", "copilot", "opencode"])
async def test_our_part_in_an_unusual_file_is_taken_back_to_the_byte_or_the_file_is_refused_and_unchanged(
    memory: Memory, home: Path, name: str
) -> None:
    client = client_named(name)
    number = len(list(odd_files(client, home)))
    assert number >= 20
    wrong = {}
    for place in range(number):
        there = home / str(place)
        path, odd = list(odd_files(client, there))[place]
        if problem := await result_of(memory, client, path, odd, there):
            wrong[f"{path.name}: {odd.kind}"] = problem
    assert wrong == {}


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
