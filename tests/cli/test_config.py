"""`config get|set|edit` read and write the file that a setting belongs to."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.conftest import Run

pytestmark = pytest.mark.usefixtures("empty_memory")


def test_a_setting_is_read_changed_and_keeps_the_comments_of_its_file(run: Run, workspace: Path) -> None:
    file = workspace / "memory-config.yaml"
    assert run("config", "get", "clarity.scoring.half_life") == "5\n"
    before = file.read_text()
    assert "is now 7 in memory-config.yaml; it was 5" in run("config", "set", "clarity.scoring.half_life", "7")
    assert run("config", "get", "clarity.scoring.half_life") == "7\n"
    lines = zip(before.splitlines(), file.read_text().splitlines(), strict=True)
    ((_, changed),) = [(old, new) for old, new in lines if old != new]
    assert "#" in changed
    assert json.loads(run("config", "get", "clarity.scoring", "--json"))["clarity.scoring"]["half_life"] == 7
    assert "clarity.scoring.half_life: 7" in run("config", "get")


def test_a_setting_of_the_machine_goes_into_the_machines_file(run: Run, workspace: Path) -> None:
    done = json.loads(run("config", "set", "llm.model", "small", "--json"))
    assert done["file"] == ".local/settings.yaml"
    assert "small" in (workspace / ".local" / "settings.yaml").read_text()
    assert "small" not in (workspace / "memory-config.yaml").read_text()
    assert run("config", "get", "llm.model") == "small\n"


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("clarity.scoring.halflife", "7", "did you mean 'clarity.scoring.half_life'?"),
        ("clarity.scoring.half_life", "often", "cannot be 'often'"),
        ("clarity.scoring.half_life", "[1", "is not YAML"),
        ("nothing", "1", "no setting 'nothing'"),
        ("clarity", "3", "'clarity' is a section; name one of its settings: clarity.enabled, "),
    ],
)
def test_a_wrong_name_or_value_changes_nothing(run: Run, workspace: Path, name: str, value: str, said: str) -> None:
    before = (workspace / "memory-config.yaml").read_bytes()
    assert said in run("config", "set", name, value, code=2)
    assert (workspace / "memory-config.yaml").read_bytes() == before


def test_a_file_that_is_not_yaml_is_not_written_over(run: Run, workspace: Path) -> None:
    file = workspace / "memory-config.yaml"
    file.write_text("clarity: [broken\n")
    run("config", "set", "clarity.scoring.half_life", "7", code=2)
    assert file.read_text() == "clarity: [broken\n"


def test_the_editor_is_opened_and_the_file_is_checked_afterwards(
    run: Run, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nprintf "clarity:\\n  scorng: 1\\n" > "$1"\n')
    editor.chmod(0o700)
    monkeypatch.setenv("EDITOR", os.fspath(editor))
    monkeypatch.delenv("VISUAL", raising=False)
    run("config", "edit", code=1)
    assert "scorng" in (workspace / "memory-config.yaml").read_text()
