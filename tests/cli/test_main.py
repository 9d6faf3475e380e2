"""The command line answers at once, and says in one line what is wrong."""

from __future__ import annotations

import json
import subprocess
import sys

import click
import pytest

from mcp_server.cli import main as entry
from mcp_server.cli.main import COMMANDS, cli, main
from mcp_server.cli.printing import print_json
from mcp_server.errors import NotFound

HEAVY = {"mcp", "numpy", "rich", "pydantic", "tiktoken", "wordllama", "git", "aiosqlite", "anyio"}


def test_help_names_every_command_and_imports_nothing_heavy() -> None:
    script = (
        "import sys, json; from mcp_server.cli.main import main; main(['-h']); print(json.dumps(list(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    *help_text, modules = done.stdout.splitlines()
    assert not HEAVY & {name.split(".")[0] for name in json.loads(modules)}
    for name in COMMANDS:
        assert any(line.strip().startswith(name) for line in help_text)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_can_be_loaded_and_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    assert command.name == name
    assert main([name, "--help"]) == 0
    assert "Usage: context-manager" in capsys.readouterr().out


def test_every_leaf_command_but_serve_prints_json() -> None:
    def leaves(command: click.Command) -> list[click.Command]:
        return (
            [leaf for one in command.commands.values() for leaf in leaves(one)]
            if isinstance(command, click.Group)
            else [command]
        )

    for name in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        for leaf in leaves(command):
            has_json = any("--json" in parameter.opts for parameter in leaf.params)
            assert has_json == (name not in ("serve", "hook")), leaf.name


@pytest.mark.parametrize(
    "arguments",
    [["nosuch"], ["search"], ["search", "x", "--limit", "0"], ["compile", "--budgt", "7"], ["read", "a", "b"], []],
)
def test_wrong_usage_is_exit_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    if arguments:
        assert captured.err.count("\n") == 1
        assert "--help" in captured.err


def test_version_and_help_are_exit_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert "context-manager" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            NotFound("no session 'x'; try\n(session list)"),
            "no session 'x'; try (session list)",
        ),
        (NotFound("no file \x1b]0;x\x07"), r"no file \x1b]0;x\x07"),
        (ExceptionGroup("tasks", [NotFound("no file")]), "no file"),
        (KeyError("surprise"), "KeyError"),
        (KeyboardInterrupt(), "stopped"),
    ],
)
def test_a_failure_is_one_line_and_exit_1(
    error: BaseException, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    @click.command("fails")
    def fails() -> None:
        raise error

    monkeypatch.setattr(entry, "cli", fails)
    assert main([]) == 1
    captured = capsys.readouterr()
    assert captured.err.strip().count("\n") == 0
    assert said in captured.err


def test_a_misspelt_command_gets_the_nearest_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serch", "x"]) == 2
    assert "did you mean 'search'?" in capsys.readouterr().err


def test_bench_is_answered_with_the_command_of_a_clone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "push", "talk.json", "--show"]) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert "python -m benchmarks" in captured.err


def test_json_drives_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    said = {"title": "č \x1b[2J \x9b31m \u202e \U000e0041 \ud800"}
    print_json(said)
    printed = capsys.readouterr().out
    assert json.loads(printed) == said
    assert "č" in printed
    assert all(c.isprintable() or c == "\n" for c in printed)
