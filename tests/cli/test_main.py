"""The command line answers at once, and says in one line what is wrong."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import click
import pytest

from mcp_server.cli import main as entry
from mcp_server.cli.main import COMMANDS, GROUPS, cli, main
from mcp_server.cli.shell import print_json
from mcp_server.errors import NotFound
from tests.running import printed, run

HEAVY = {"mcp", "numpy", "rich", "pydantic", "tiktoken", "wordllama", "git", "aiosqlite", "anyio"}


def test_help_names_every_command_and_imports_nothing_heavy() -> None:
    script = (
        "import sys, json; from mcp_server.cli.main import main; main(['-h']); print(json.dumps(list(sys.modules)))"
    )
    *help_text, modules = printed([sys.executable, "-c", script]).splitlines()
    assert not HEAVY & {name.split(".")[0] for name in json.loads(modules)}
    for name in COMMANDS:
        assert any(line.strip().startswith(name) for line in help_text)


def leaves(command: click.Command, path: str = "context-manager") -> list[tuple[str, click.Command]]:
    """Returns all commands without subcommands, each with the words that call it."""
    if not isinstance(command, click.Group):
        return [(path, command)]
    context = click.Context(command)
    below = ((name, command.get_command(context, name)) for name in command.list_commands(context))
    return [leaf for name, one in below if one for leaf in leaves(one, f"{path} {name}")]


def test_every_command_has_json_explains_each_option_and_follows_our_conventions() -> None:
    for path, command in leaves(cli):
        options = [one for one in command.params if isinstance(one, click.Option)]
        names = {name for one in options for name in one.opts}
        assert ("--json" in names) == (path.split()[1] not in ("serve", "page", "hook")), path
        assert [one.opts for one in options if not one.help] == [], path
        assert not names & {"--yes", "--force", "--dry-run", "--now"}, path


@pytest.mark.parametrize("arguments", [["search"], ["read", "a", "b"], ["observe", "x", "--at", "yesterday"], []])
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


def test_json_drives_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    said = {"title": "č \x1b[2J \x9b31m \u202e \U000e0041 \ud800"}
    print_json(said)
    printed = capsys.readouterr().out
    assert json.loads(printed) == said
    assert "č" in printed
    assert all(c.isprintable() or c == "\n" for c in printed)


def test_help_and_every_error_fit_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    def pages(arguments: list[str], command: click.Command) -> list[list[str]]:
        inner = command.commands.items() if isinstance(command, click.Group) and command is not cli else ()
        return [arguments, *(page for name, one in inner for page in pages([*arguments, name], one))]

    commands = {name: cli.get_command(click.Context(cli), name) for name in COMMANDS}
    for name, command in commands.items():
        assert command is not None
        for page in pages([name], command):
            assert main([*page, "--help"]) == 0
            too_long = [line for line in capsys.readouterr().out.splitlines() if len(line) > 80]
            assert not too_long, page
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(len(line) <= 80 for line in shown.splitlines())
    assert [line for line in shown.splitlines() if line in {f"{title}:" for title in GROUPS}] == [
        f"{title}:" for title in GROUPS
    ]


@pytest.mark.parametrize(
    ("call", "code"), [(["nosuch"], 2), (["read"], 2), (["search", "x", "--limit", "0"], 2), (["status"], 1)]
)
def test_with_json_an_error_is_json(
    call: list[str], code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--workspace", str(tmp_path / "none"), *call, "--json"]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    error = json.loads(captured.err)
    assert error["exit_code"] == code
    assert error["error"]


def test_the_shell_completes_commands() -> None:
    asked = {"_CONTEXT_MANAGER_COMPLETE": "bash_complete", "COMP_WORDS": "context-manager sea", "COMP_CWORD": "1"}
    done = run([Path(sys.executable).parent / "context-manager"], env={**os.environ, **asked})
    assert done.stdout.split() == ["plain,search"]


def test_the_server_says_its_version_and_what_a_terminal_should_do() -> None:
    server = [sys.executable, "-m", "mcp_server"]
    assert printed([*server, "--version"]).startswith("context-manager-mcp ")
    assert "context-manager install" in " ".join(printed([*server, "--help"]).split())
    ours, theirs = os.openpty()
    try:
        told = run(server, stdin=theirs)
    finally:
        os.close(ours)
        os.close(theirs)
    assert told.returncode == 2
    assert "context-manager install" in told.stderr
    assert told.stdout == ""
