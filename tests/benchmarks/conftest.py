"""A workbench whose workspaces use keywords only, and a small data set of each kind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import injection, push
from benchmarks.workbench import Workbench
from tests.benchmarks import data
from tests.conftest import KEYWORDS_ONLY


@pytest.fixture
def bench() -> Workbench:
    return Workbench(KEYWORDS_ONLY)


@pytest.fixture
def few_shipped_prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measures with one unrelated prompt of each set, not with all: every conversation is asked each of them."""
    few = {kind: prompts[:1] for kind, prompts in push.shipped_prompts().items()}
    for module in (injection, push):
        monkeypatch.setattr(module, "shipped_prompts", lambda: few)


@pytest.fixture
def locomo_file(tmp_path: Path) -> Path:
    path = tmp_path / "talk.json"
    other = data.locomo()[0] | {"sample_id": "talk-2"}
    path.write_text(json.dumps([*data.locomo(), other]), encoding="utf-8")
    return path


@pytest.fixture
def beam_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "chats" / "1"
    folder.mkdir(parents=True)
    (folder / "chat.json").write_text(json.dumps(data.beam()), encoding="utf-8")
    (folder / "probing_questions.json").write_text(json.dumps(data.probing_questions()), encoding="utf-8")
    return folder.parent
