"""Our hooks in Claude Code's settings: each event once, as in the plugin, whatever was there before."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from mcp_server.clients.adapters import opencode
from mcp_server.clients.adapters.adapter import CLAUDE_CODE
from mcp_server.clients.installers import entries as hooks
from mcp_server.clients.installers.install import install, uninstall
from mcp_server.clients.installers.known import client_named
from mcp_server.clients.installers.plan import hooks_place, plan
from mcp_server.errors import Refused
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
