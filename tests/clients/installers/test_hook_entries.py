"""Our hooks in Claude Code's settings: each event once, as in the plugin, whatever was there before."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from mcp_server.clients.adapters import opencode
from mcp_server.clients.adapters.adapter import CLAUDE_CODE
from mcp_server.clients.installers import config_file
from mcp_server.clients.installers import entries as hooks
from mcp_server.clients.installers.install import install, uninstall
from mcp_server.clients.installers.known import CLIENTS, client_named
from mcp_server.clients.installers.plan import hooks_place, plan
from mcp_server.errors import Invalid, Refused
from mcp_server.memory import Memory
from tests.clients.installers.homes import launch, machine

CLAUDE = CLAUDE_CODE
PLUGIN = Path(__file__).parents[3] / "plugin" / "hooks" / "hooks.json"


def text(value: object) -> str:
    return json.dumps({"hooks": value}, indent=2)


def test_they_are_those_of_the_plugin() -> None:
    plugin = json.loads(PLUGIN.read_text("utf-8"))["hooks"]
    ours = hooks.wanted(CLAUDE, lambda event: ("context-manager", ["hook", event]))
    assert {event: group["hooks"][0] for event, (group,) in plugin.items()} == ours


def test_each_event_gets_one_however_many_were_there() -> None:
    old = {"type": "command", "command": "/old/context-manager", "args": ["hook", "Stop"]}
    other = {"type": "command", "command": "say done"}
    before = text({"Stop": [{"hooks": [old]}, {"hooks": [other, old]}], "Notification": [{"hooks": [old]}], "X": 1})
    wanted = hooks.wanted(CLAUDE, launch().hook)
    after = hooks.put_hooks(before, wanted, "settings.json")
    said = json.loads(after)["hooks"]
    assert said["Stop"] == [{"hooks": [wanted["Stop"]]}, {"hooks": [other]}]
    assert said["Notification"] == []
    assert set(hooks.present(after, "settings.json")) == set(CLAUDE.events)
    assert hooks.put_hooks(after, wanted, "settings.json") == after
    bare = json.loads(hooks.put_hooks(after, {}, "settings.json"))["hooks"]
    assert bare["Stop"] == [{"hooks": [other]}]
    assert not hooks.present(hooks.put_hooks(after, {}, "settings.json"), "settings.json")


def test_only_our_own_are_taken_for_ours() -> None:
    for command in (
        "context-manager hook Stop; exit 0",
        "'/a b/context-manager' hook Stop",
        '"C:/a b/context-manager.exe" hook Stop',
        "uvx --from context-manager-mcp context-manager hook Stop",
        "/x/context-manager --workspace /m hook Stop",
    ):
        assert hooks.is_our_hook({"type": "command", "command": command}), command
    for handler in (
        {"type": "command", "command": "my-context-manager-hook"},
        {"type": "command", "command": "echo hook"},
        {"type": "command", "command": "npx", "args": ["hook"]},
        {"type": "mcp_tool", "server": "memory", "tool": "hook"},
        "text",
    ):
        assert not hooks.is_our_hook(handler), handler


def test_the_words_of_a_hook_are_those_that_are_started() -> None:
    (handler, *_) = hooks.wanted(CLAUDE, launch(Path("/my memory")).hook).values()
    words = ["/opt/some where/bin/context-manager", "hook", "SessionStart", "--workspace", "/my memory"]
    assert hooks.words_of_hook(handler) == words
    assert hooks.words_of_hook({"command": "it's broken"}) == []
    assert hooks.words_of_hook({"command": "a b", "args": ["c"]}) == ["a b", "c"]


def test_on_windows_no_shell_stands_between_for_nobody_knows_which_it_is() -> None:
    program = r"C:\Program Files\x\context-manager.exe"
    (handler, *_) = hooks.wanted(CLAUDE, lambda event: (program, ["hook", event]), shell=False).values()
    assert (handler["command"], handler["args"]) == (program, ["hook", "SessionStart"])
    assert hooks.is_our_hook(handler)
    assert hooks.words_of_hook(handler) == [program, "hook", "SessionStart"]


def test_what_a_shell_gets_is_alike_in_sh_and_in_powershell() -> None:
    """PowerShell 5 knows neither `||` nor /dev/null; both would keep the command from being run at all."""
    for handler in hooks.wanted(CLAUDE, lambda event: ("context-manager", ["hook", event])).values():
        assert re.fullmatch(r"context-manager hook \w+; exit 0", handler["command"])


FOREIGN = {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "say done", "timeout": 3}]}], "Other": []}}
ODD = {
    "empty": b"",
    "blank": b"\n\n",
    "empty object": b"{}",
    "foreign hooks": json.dumps(FOREIGN, indent=2).encode() + b"\n",
    "one line": json.dumps(FOREIGN).encode(),
    "tabs": json.dumps(FOREIGN, indent="\t").encode(),
    "CRLF": json.dumps(FOREIGN, indent=2).replace("\n", "\r\n").encode(),
    "BOM": b"\xef\xbb\xbf" + json.dumps(FOREIGN, indent=2).encode(),
    "no hooks": b'{\n  "version": 1,\n  "name": "\xc4\x8d"\n}',
    "empty hooks": b'{"hooks": {}}\n',
    "null": b'{"hooks": null}',
    "null event": b'{"hooks": {"Stop": null, "AfterAgent": null}}',
    "comments": b'// mine\n{\n  "hooks": {\n    // none yet\n  }, /* end */\n}\n',
}
BROKEN = (b'{"hooks": ', b'{"hooks": []}', b"[]", b"\xff\xfe")


@pytest.mark.anyio
@pytest.mark.parametrize("name", [client.name for client in CLIENTS if client.hooks and not client.hooks.plugin])
async def test_a_file_with_hooks_gets_ours_and_is_taken_back_byte_for_byte(
    memory: Memory, tmp_path: Path, name: str
) -> None:
    client = client_named(name)
    for kind, data in ODD.items():
        if kind == "comments" and client.plain:
            continue
        home = machine(tmp_path / kind)
        place = hooks_place(client.hooks, home, None)
        assert place is not None
        place.parent.mkdir(parents=True)
        original = place.with_name("the real file") if kind == "one line" else place
        original.write_bytes(data)
        if original != place:
            place.symlink_to(original)
        install(memory, plan(client, home, launch()))
        assert client.hooks is not None
        there = hooks.present(config_file.read(place).text, "")
        assert set(there) == set(client.hooks.events), kind
        assert b"say done" in place.read_bytes() or b"say done" not in data
        uninstall(memory, client, home)
        assert original.read_bytes() == data, kind
        assert place.is_symlink() == (original != place)
    for number, data in enumerate(BROKEN):
        home = machine(tmp_path / f"broken {number}")
        place = hooks_place(client.hooks, home, None)
        assert place is not None
        place.parent.mkdir(parents=True)
        place.write_bytes(data)
        with pytest.raises(Invalid, match=re.escape(str(place))):
            plan(client, home, launch())
        assert place.read_bytes() == data


@pytest.mark.anyio
async def test_opencode_gets_a_plugin_that_is_taken_back_and_another_file_of_its_name_is_kept(
    memory: Memory, tmp_path: Path
) -> None:
    client = client_named("opencode")
    home = machine(tmp_path / "home")
    place = hooks_place(client.hooks, home, None)
    assert place is not None
    home.home.mkdir()
    install(memory, plan(client, home, launch(Path("/my memory"))))
    words = opencode.command_in(place.read_text("utf-8"))
    assert words[1:] == ["hook", "EVENT", "--client", "opencode", "--workspace", "/my memory"]
    assert not plan(client, home, launch(Path("/my memory"))).needed
    uninstall(memory, client, home)
    assert list((tmp_path / "home").iterdir()) == []
    place.parent.mkdir(parents=True)
    place.write_text("export const Mine = 1\n")
    with pytest.raises(Refused, match="is not ours"):
        plan(client, home, launch())
    uninstall(memory, client, home)
    assert place.read_text() == "export const Mine = 1\n"
