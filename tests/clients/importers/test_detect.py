"""The format is seen from the file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mcp_server.clients.importers.run import detect
from mcp_server.errors import Invalid
from tests.benchmarks import data
from tests.clients.importers import claude_code_files, test_chatgpt, test_claude_ai


def test_notes_are_recognised(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.MD").write_text("# A")
    assert detect(tmp_path / "notes") == "markdown"
    assert detect(tmp_path / "notes" / "a.MD") == "markdown"


def test_chats_of_claude_and_chatgpt_are_recognised(tmp_path: Path) -> None:
    (tmp_path / "claude.json").write_text(json.dumps(test_claude_ai.export()))
    (tmp_path / "gpt.json").write_text(json.dumps([test_chatgpt.conversation()]))
    path = claude_code_files.everything().write(tmp_path / "projects")
    (tmp_path / "other.jsonl").write_text('{"a": 1}')
    assert detect(tmp_path / "claude.json") == "claude-ai"
    assert detect(tmp_path / "gpt.json") == "chatgpt"
    assert detect(path) == "claude-code"
    assert detect(path.parent) == "claude-code"
    assert detect(tmp_path / "projects") == "claude-code"
    with pytest.raises(Invalid, match="--format"):
        detect(tmp_path / "other.jsonl")


def test_what_is_not_known_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text('{"a": 1}')
    (tmp_path / "note.txt").write_text("text")
    (tmp_path / "empty").mkdir()
    (tmp_path / "locomo.json").write_text(json.dumps(data.locomo()))
    (tmp_path / "chats").mkdir()
    (tmp_path / "chats" / "chat.json").write_text(json.dumps(data.beam()))
    for path in ("other.json", "note.txt", "empty", "locomo.json", "chats", "chats/chat.json"):
        with pytest.raises(Invalid, match="--format"):
            detect(tmp_path / path)
