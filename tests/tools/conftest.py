"""Tests of what a client sees. Their servers open a copy of a new workspace, instead of making one each."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture(autouse=True)
def made_workspace(tmp_path: Path, new_workspace: Path) -> None:
    """Copies a new workspace to `tmp_path`."""
    shutil.copytree(new_workspace, tmp_path, dirs_exist_ok=True)


@pytest.fixture(autouse=True, scope="module")
def quick_notes(fast_notes: None) -> None:
    """Replaces the network that recognizes decisions and facts in messages: answers of tools do not depend on it."""
