"""The folder of a project."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of the project `tea`."""
    place = tmp_path / "a project"
    place.mkdir()
    (place / ".context-manager").write_text("tea\n", "utf-8")
    return place
