"""Our hooks in Claude Code's settings: each event once, as in the plugin, whatever was there before."""

from __future__ import annotations

import json
import re
from pathlib import Path

from mcp_server.clients.adapters import claude_code
from mcp_server.clients.installers import hook_entries as hooks
from tests.clients.installers.homes import launch

CLAUDE = claude_code.ADAPTER
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
    after = hooks.put(before, wanted, "settings.json")
    said = json.loads(after)["hooks"]
    assert said["Stop"] == [{"hooks": [wanted["Stop"]]}, {"hooks": [other]}]
    assert said["Notification"] == []
    assert set(hooks.present(after, "settings.json")) == set(CLAUDE.events)
    assert hooks.put(after, wanted, "settings.json") == after
    bare = json.loads(hooks.remove(after, "settings.json"))["hooks"]
    assert bare["Stop"] == [{"hooks": [other]}]
    assert not hooks.present(hooks.remove(after, "settings.json"), "settings.json")


def test_only_our_own_are_taken_for_ours() -> None:
    for command in (
        "context-manager hook Stop 2>/dev/null || true",
        "'/a b/context-manager' hook Stop",
        '"C:/a b/context-manager.exe" hook Stop',
        "uvx --from context-manager-mcp context-manager hook Stop",
        "/x/context-manager --workspace /m hook Stop",
    ):
        assert hooks.is_ours({"type": "command", "command": command}), command
    for handler in (
        {"type": "command", "command": "my-context-manager-hook"},
        {"type": "command", "command": "echo hook"},
        {"type": "command", "command": "npx", "args": ["hook"]},
        {"type": "mcp_tool", "server": "memory", "tool": "hook"},
        "text",
    ):
        assert not hooks.is_ours(handler), handler


def test_the_words_of_a_hook_are_those_that_are_started() -> None:
    (handler, *_) = hooks.wanted(CLAUDE, launch(Path("/my memory")).hook).values()
    words = ["/opt/some where/bin/context-manager", "hook", "SessionStart", "--workspace", "/my memory"]
    assert hooks.words_of(handler) == words
    assert hooks.words_of({"command": "it's broken"}) == []
    assert hooks.words_of({"command": "a b", "args": ["c"]}) == ["a b", "c"]


def test_on_windows_no_shell_stands_between_for_nobody_knows_which_it_is() -> None:
    program = r"C:\Program Files\x\context-manager.exe"
    (handler, *_) = hooks.wanted(CLAUDE, lambda event: (program, ["hook", event]), shell=False).values()
    assert (handler["command"], handler["args"]) == (program, ["hook", "SessionStart"])
    assert hooks.is_ours(handler)
    assert hooks.words_of(handler) == [program, "hook", "SessionStart"]


def test_what_a_shell_gets_is_alike_in_sh_and_in_powershell() -> None:
    """PowerShell 5 knows neither `||` nor /dev/null; both would keep the command from being run at all."""
    for handler in hooks.wanted(CLAUDE, lambda event: ("context-manager", ["hook", event])).values():
        assert re.fullmatch(r"context-manager hook \w+; exit 0", handler["command"])


def test_hooks_of_an_earlier_version_are_brought_up_to_date() -> None:
    old = {"type": "command", "command": "'/a b/context-manager' hook Stop 2>/dev/null || true", "timeout": 5}
    assert hooks.words_of(old) == ["/a b/context-manager", "hook", "Stop"]
    after = hooks.put(text({"Stop": [{"hooks": [old]}]}), hooks.wanted(CLAUDE, launch().hook), "settings.json")
    assert "|| true" not in after
    assert len(json.loads(after)["hooks"]["Stop"]) == 1
