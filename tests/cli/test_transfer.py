"""What `export` writes, `import` reads back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mcp_server.cli.main import main
from tests.conftest import Run
from tests.end_to_end.servers import files_below

pytestmark = pytest.mark.usefixtures("empty_memory", "fast_notes")


@pytest.fixture
def filled(run: Run, workspace: Path) -> Run:
    run("observe", "The winter berth is number 14.", "--session", "berths")
    run("session", "end", "berths")
    run("observe", "The boiler runs at 2 bar.", "--session", "open-one")
    run("remember", "Ana keeps bees.", "--kind", "person", "--project", "global")
    (workspace / "knowledge/identity/USER.md").write_text("# Ana\n\nShe keeps bees.\n")
    return run


def files_of(root: Path) -> dict[str, bytes]:
    return {path: data for path, data in files_below(root).items() if "/." not in f"/{path}"}


@pytest.mark.parametrize("name", ["memory.zip", "copy"])
def test_an_export_is_imported_into_a_new_memory_whole(
    filled: Run, workspace: Path, tmp_path: Path, name: str, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    target = tmp_path / name
    assert str(target) in filled("export", str(target))
    other = tmp_path / "other"
    here = ["--workspace", str(other)]
    assert main([*here, "import", str(target), "--json"]) == 0
    assert main([*here, "search", "winter berth", "--json"]) == 0
    capsysbinary.readouterr()
    assert main([*here, "session", "list", "--json"]) == 0
    assert {row["session"] for row in json.loads(capsysbinary.readouterr().out)} == {"berths", "open-one"}
    ours, theirs = files_of(workspace), files_of(other)
    assert {path: theirs.get(path) for path in ours if not path.startswith("scratch/")} == ours
    assert main([*here, "import", str(target)]) == 1
    assert b"is not empty" in capsysbinary.readouterr().err


def test_only_what_export_wrote_becomes_a_memory(run: Run, workspace: Path, tmp_path: Path) -> None:
    assert "`export` it and import the result" in run("import", str(workspace), code=1)
    (tmp_path / "notes.txt").write_text("no export")
    for path in (workspace, tmp_path / "notes.txt"):
        assert "cannot be read" in run("import", str(path), "--format", "memory", code=1)


def test_nothing_is_written_over_or_into_the_memory_itself(run: Run, workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "memory.zip").write_text("mine")
    assert "exists already" in run("export", str(tmp_path / "memory.zip"), code=1)
    assert "is inside the memory itself" in run("export", str(workspace / "copy"), code=1)
    assert "ends with .zip" in run("export", str(tmp_path / "memory.tar.gz"), code=1)
    assert (tmp_path / "memory.zip").read_text() == "mine"
