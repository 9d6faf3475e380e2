"""A new workspace is one that a person wants to fill in."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mcp_server.storage.local.folders import create
from mcp_server.storage.templates import is_untouched_template, templates
from mcp_server.topics.front_matter import check

SETTINGS = {"memory-config.yaml": "# settings\n"}


def snapshot(root: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(root)): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in sorted(root.rglob("*"))
    }


def test_making_it_twice_changes_nothing(tmp_path: Path) -> None:
    root = tmp_path / "deep" / "memory"

    assert create(root, SETTINGS) is True
    before = snapshot(root)
    assert create(root, SETTINGS) is False

    assert snapshot(root) == before
    assert root.stat().st_mode & 0o777 == 0o700
    assert (root / ".gitignore").read_text().startswith("# This machine's own")
    assert "raw/** -text" in (root / ".gitattributes").read_text()
    assert (root / "raw/conversations").is_dir()


def test_what_is_there_already_is_kept_and_what_was_deleted_stays_deleted(tmp_path: Path) -> None:
    (tmp_path / "knowledge" / "identity").mkdir(parents=True)
    (tmp_path / "knowledge/identity/USER.md").write_text("I am Ana.\n")

    create(tmp_path, SETTINGS)
    (tmp_path / "knowledge/identity/TOOLS.md").unlink()
    create(tmp_path, SETTINGS)

    assert (tmp_path / "knowledge/identity/USER.md").read_text() == "I am Ana.\n"
    assert not (tmp_path / "knowledge/identity/TOOLS.md").exists()


def test_a_start_that_was_killed_is_finished_by_the_next(tmp_path: Path) -> None:
    create(tmp_path, SETTINGS)
    for path in ("memory-config.yaml", "knowledge/identity/SOUL.md"):
        (tmp_path / path).unlink()

    assert create(tmp_path, SETTINGS) is True

    assert (tmp_path / "knowledge/identity/SOUL.md").exists()


@pytest.mark.skipif(os.name == "nt", reason="folder modes")
def test_a_finished_workspace_needs_no_writing(tmp_path: Path) -> None:
    create(tmp_path, SETTINGS)
    before = tmp_path.stat().st_mtime_ns

    create(tmp_path, SETTINGS)

    assert tmp_path.stat().st_mtime_ns == before


@pytest.mark.parametrize("path", sorted(templates()))
def test_a_template_is_untouched_until_somebody_writes_in_it(path: str) -> None:
    text = templates()[path]

    assert is_untouched_template(path, text)
    assert is_untouched_template(path, text.replace("\n", "\r\n"))
    assert not is_untouched_template(path, text + "My name is Ana.\n")
    assert not is_untouched_template("other.md", text)


@pytest.mark.parametrize("path", sorted(path for path in templates() if path.endswith(".md")))
def test_every_template_has_front_matter_that_passes(path: str) -> None:
    checked = check(templates()[path], path)

    assert checked.fields["type"]
    assert checked.warnings == ()
    if path.endswith("MEMORY.md"):
        assert checked.fields["line_count"] == templates()[path].count("\n")


def test_templates_name_only_what_exists() -> None:
    text = "\n".join(templates().values()).lower()

    assert "recover" not in text
    assert "checkpoint" not in text
    for word in ("observe", "remember"):
        assert word in templates()["knowledge/identity/AGENTS.md"].lower()
