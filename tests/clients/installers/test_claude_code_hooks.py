"""Our hooks in Claude Code's settings: each event once, as in the plugin, whatever was there before."""

from __future__ import annotations

import json
from pathlib import Path

from mcp_server.clients.installers import claude_code_hooks as hooks
from tests.clients.installers.homes import launch

PLUGIN = Path(__file__).parents[3] / "plugin" / "hooks" / "hooks.json"


def text(value: object) -> str:
    return json.dumps({"hooks": value}, indent=2)


def test_they_are_those_of_the_plugin() -> None:
    plugin = json.loads(PLUGIN.read_text("utf-8"))["hooks"]
    ours = hooks.wanted(lambda event: ("context-manager", ["hook", event]))
    assert {event: group["hooks"][0] for event, (group,) in plugin.items()} == ours


def test_each_event_gets_one_however_many_were_there() -> None:
    old = {"type": "command", "command": "/old/context-manager", "args": ["hook", "Stop"]}
    other = {"type": "command", "command": "say done"}
    before = text({"Stop": [{"hooks": [old]}, {"hooks": [other, old]}], "Notification": [{"hooks": [old]}], "X": 1})
    wanted = hooks.wanted(launch().hook)
    after = hooks.put(before, wanted, "settings.json")
    said = json.loads(after)["hooks"]
    assert said["Stop"] == [{"hooks": [wanted["Stop"]]}, {"hooks": [other]}]
    assert said["Notification"] == []
    assert set(hooks.present(after, "settings.json")) == set(hooks.EVENTS)
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
    (handler, *_) = hooks.wanted(launch(Path("/my memory")).hook).values()
    words = ["/opt/some where/bin/context-manager", "hook", "SessionStart", "--workspace", "/my memory"]
    assert hooks.words_of(handler) == words
    assert hooks.words_of({"command": "it's broken"}) == []
    assert hooks.words_of({"command": "a b", "args": ["c"]}) == ["a b", "c"]


def test_windows_paths_are_written_for_the_shell_that_runs_them() -> None:
    (handler, *_) = hooks.wanted(lambda event: (r"C:\Program Files\x\context-manager.exe", ["hook", event])).values()
    assert handler["command"].startswith("'C:/Program Files/x/context-manager.exe' hook SessionStart")
    assert hooks.is_ours(handler)
