"""`install`, `uninstall` and `doctor`, as a person and as a program use them, in a home of their own."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mcp_server.cli.main import main
from mcp_server.clients.hooks.command import respond
from mcp_server.clients.hooks.protocol import CLIENT_FOLDERS
from mcp_server.clients.installers import plan
from mcp_server.context import briefs
from tests.clients.importers.claude_code_files import Transcript, everything
from tests.preloaded import programs

Run = Callable[..., str]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home; nothing of the real one is seen."""
    home = tmp_path / "home"
    (home / "work").mkdir(parents=True)
    for name in ("XDG_CONFIG_HOME", *CLIENT_FOLDERS.values(), "CONTEXT_MANAGER_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"HOME": str(home), "USERPROFILE": str(home), "PATH": os.defpath, "COLUMNS": "200"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("CONTEXT_MANAGER_SEARCH__EMBEDDER", "none")
    monkeypatch.setattr(plan, "_command", lambda folders, name, python: str(programs() / name))  # starts at once
    monkeypatch.chdir(home / "work")
    return home


@pytest.fixture
def run(home: Path, workspace: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: str, code: int = 0) -> str:
        capsys.readouterr()
        ended = main(["--workspace", str(workspace), *arguments])
        captured = capsys.readouterr()
        assert ended == code, captured.out + captured.err
        return captured.out if code == 0 else captured.out + captured.err

    return run


def answering(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    """Somebody sits at the terminal and types these lines."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Terminal("".join(f"{line}\n" for line in lines)))


def settings(home: Path) -> Path:
    file = home / ".cursor" / "mcp.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text('{"theirs": 1}\n')
    return file


def test_a_client_is_installed_tried_listed_and_taken_out(run: Run, home: Path, workspace: Path) -> None:
    file = settings(home)
    assert "context-manager install cursor" in run("install")
    said = run("install", "cursor")
    assert "mcp.json.context-manager-backup-1" in said
    assert "Tried it: it answers" in said
    assert "uninstall cursor" in said
    entry = json.loads(file.read_text())["mcpServers"]["memory"]
    assert entry["args"] == ["--workspace", str(workspace)]
    assert "nothing was changed" in run("install", "cursor")
    (found,) = [each for each in json.loads(run("install", "--json")) if each["client"] == "cursor"]
    assert found["state"] == "installed"
    assert "was restored exactly" in run("uninstall", "cursor")
    assert file.read_text() == '{"theirs": 1}\n'
    assert "nothing of this memory" in run("uninstall", "cursor")


def test_a_program_installs_and_undoes_with_json(run: Run, home: Path) -> None:
    file = settings(home)
    done = json.loads(run("install", "cursor", "--json"))
    assert done["works"]
    assert done["files"][0] == {"path": str(file), "what": "written", "backup": f"{file}.context-manager-backup-1"}
    undone = json.loads(run("uninstall", "cursor", "--json"))
    assert undone == {"client": "cursor", "files": [{"path": str(file), "what": "restored", "backup": None}]}
    assert file.read_text() == '{"theirs": 1}\n'


def test_show_and_print_change_nothing(run: Run, home: Path, workspace: Path) -> None:
    file = settings(home)
    assert '+{"theirs": 1, "mcpServers"' in run("install", "cursor", "--show")
    snippet = run("install", "claude-code", "--print")
    assert '"command":' in snippet
    assert '"SessionStart"' in snippet
    assert "[mcp_servers.memory]" in run("install", "codex", "--print")
    for how in ("--show", "--print"):
        (first, *_) = json.loads(run("install", "cursor", how, "--json"))
        assert first["file"] == str(file)
    assert file.read_text() == '{"theirs": 1}\n'
    assert not workspace.exists()
    run("install", "cursor")
    assert "nothing would change" in run("install", "cursor", "--show")


def test_a_project_gets_a_file_of_its_own(run: Run, home: Path) -> None:
    (home / "work" / ".git").mkdir()
    assert "do not commit or share it" in run("install", "vscode", "--project")
    assert (home / "work/.vscode/mcp.json").exists()
    assert "vscode (in ~/work)" in run("install")
    assert "was deleted" in run("uninstall", "vscode", "--project")
    assert not (home / "work/.vscode").exists()


def test_a_broken_file_is_one_line_that_says_where(run: Run, home: Path) -> None:
    file = settings(home)
    file.write_text("{\n oops")
    error = run("install", "cursor", code=1)
    assert error.count("\n") == 1
    assert f"{file}: line 2" in error
    assert "did you mean 'cursor'" in run("install", "cursr", code=1)
    assert file.read_text() == "{\n oops"


@pytest.fixture
def spoken(home: Path) -> Path:
    """A transcript of Claude Code."""
    return everything().write(home / ".claude" / "projects")


def test_what_claude_code_has_said_is_offered(
    run: Run, home: Path, workspace: Path, spoken: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "Import them with: context-manager import" in run("install", "claude-code")
    run("uninstall", "claude-code")
    assert json.loads(run("session", "list", "--json")) == []
    answering(monkeypatch, "n")
    assert "1 conversation (" in run("install", "claude-code")
    run("uninstall", "claude-code")
    assert "conversations" not in run("install", "claude-code", "--no-import")
    run("uninstall", "claude-code")
    folder = home / "harbour"
    folder.mkdir()
    talk = Transcript("11111111-2222-3333-4444-555555555555", str(folder))
    talk.user("How shall we store the berths?")
    talk.says("m1", "Decision: we store the berths in SQLite.")
    talk.user("From now on, never deploy on a Friday. TODO: call Ana about the winter berth.")
    talk.says("m2", "Noted.")
    talk.write(home / ".claude" / "projects")
    answering(monkeypatch, "y")
    said = run("install", "claude-code")
    assert "Learned: 1 decision, " in said
    assert "decision, 2026-02-16: we store the berths in SQLite" in said
    assert "call Ana about the winter berth" in said
    assert "not read yet" not in said
    told = json.loads((workspace / briefs.INDEX).read_text("utf-8"))
    assert "SQLite" in (workspace / briefs.FOLDER / told[str(folder)]["brief"]).read_text("utf-8")
    assert json.loads(run("session", "list", "--json"))
    run("uninstall", "claude-code")
    assert "Learned" not in run("install", "claude-code", "--import")
    done: dict[str, Any] = json.loads(run("install", "claude-code", "--import", "--json"))
    assert done["files"][0]["what"] == "unchanged"
    assert done["import"]["new_turns"] == 0


def test_the_first_window_has_its_brief_before_any_server_made_one(run: Run, home: Path, workspace: Path) -> None:
    run("remember", "The winter berth is paid until March", "--project", "global")

    run("install", "claude-code", "--no-import")

    start = json.dumps({"session_id": "a1", "hook_event_name": "SessionStart", "source": "startup", "cwd": str(home)})
    printed = respond("SessionStart", start.encode(), str(workspace), {})
    assert "winter berth is paid" in json.loads(printed)["hookSpecificOutput"]["additionalContext"]


def test_the_export_of_chats_is_explained(run: Run) -> None:
    assert "Settings → Privacy → Export data" in run("install", "claude-desktop")
    assert "ChatGPT" in run("install")


def test_doctor_sees_the_chain_and_ends_with_1_if_a_link_is_broken(run: Run, home: Path) -> None:
    file = settings(home)
    run("install", "cursor")
    said = run("doctor")
    assert "connected in" in said
    assert "Everything important works." in said
    assert {"versions", "space", "hook socket", "Cursor"} <= {
        check["name"] for check in json.loads(run("doctor", "--json"))
    }
    broken = json.loads(file.read_text())
    broken["mcpServers"]["memory"]["command"] = "/gone/context-manager-mcp"
    file.write_text(json.dumps(broken))
    said = run("doctor", code=1)
    assert "there is no /gone/context-manager-mcp" in said
    assert "→ context-manager install cursor" in said
    assert "\nfix  Cursor" in said
    assert "1 to fix: the lines with `fix`." in said


def test_everything_is_taken_out_and_deleted_only_when_somebody_says_so(run: Run, home: Path, workspace: Path) -> None:
    file = settings(home)
    assert "in any client's configuration" in run("uninstall", "--all")
    run("install", "cursor")
    run("install", "codex")
    run("observe", "The pump needs a seal.")
    assert "name a client, or say --all" in run("uninstall", code=2)
    assert "--purge needs --all" in run("uninstall", "cursor", "--purge", code=2)
    said = run("uninstall", "--all", "--purge")
    assert f"This deletes {workspace}: 1 conversations" in said
    assert "memory" in file.read_text()
    said = run("uninstall", "--all", "--purge", "--apply")
    assert "was restored exactly" in said
    assert f"Deleted: {workspace}" in said
    assert not workspace.exists()
    assert file.read_text() == '{"theirs": 1}\n'
    assert not (home / ".codex").exists()


def test_the_plugin_is_not_ours_to_take_out_and_is_named(run: Run, home: Path, workspace: Path) -> None:
    (home / ".claude").mkdir(exist_ok=True)
    (home / ".claude" / "settings.json").write_text('{"enabledPlugins": {"memory@context-manager": true}}')
    run("init")
    for words in (("claude-code",), ("--all",)):
        assert "remove it with: claude plugin uninstall memory@context-manager" in run("uninstall", *words)
    said = run("uninstall", "--all", "--purge", "--apply", code=1)
    assert "would create an empty memory in its place" in said
    assert workspace.is_dir()


def test_a_program_purges_a_memory_whose_local_folder_lies_elsewhere(
    run: Run, home: Path, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONTEXT_MANAGER_WORKSPACE__LOCAL_DIR", str(tmp_path / "elsewhere"))
    run("observe", "The pump needs a seal.")
    gone = json.loads(run("uninstall", "--all", "--purge", "--apply", "--json"))
    assert gone == {"clients": [], "deleted": [str(workspace), str(tmp_path / "elsewhere")]}
    assert not workspace.exists()
    assert not (tmp_path / "elsewhere").exists()
