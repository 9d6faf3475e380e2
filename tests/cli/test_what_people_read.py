"""What the commands say is right, whole and in words: found by using them as a newcomer does."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli.test_commands import Run, pipe, run  # noqa: F401 - the fixture is used by its name

GIT = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@GIT
def test_lines_of_several_files_stand_under_their_own_file(run: Run, workspace: Path) -> None:  # noqa: F811
    run("init")
    for name in ("ana", "bo"):
        (workspace / f"knowledge/people/{name}.md").write_text(
            f"# {name}\n\n- lives in Basel [src: raw/conversations/{name}.md#1]\n"
        )

    said = run("history", "where", "lives in Basel")

    places = [said.index(place) for place in ("people/ana.md", "/ana.md#1", "people/bo.md", "/bo.md#1")]
    assert places == sorted(places)
    assert "[src:" not in said


def test_nothing_is_recorded_of_an_empty_message(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    pipe(monkeypatch, b" \n")
    assert "nothing to record" in run("observe", code=1)
    assert "No conversations yet" in run("session", "list")
