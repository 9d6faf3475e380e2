"""The advisor's state of a session is written behind the caller's back; the newest wins."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mcp_server.storage.local.files import WorkspaceFiles
from mcp_server.storage.logs import AdvisorFiles, advisor_path


def test_what_was_given_last_is_on_disk(tmp_path: Path) -> None:
    files = WorkspaceFiles(tmp_path)
    states = AdvisorFiles(files)
    for number in range(200):
        states.put_later("s", {"n": number})
    states.put_later("a/b", {"n": 0})
    states.close()
    assert json.loads(files.read_text(".local/advisor/s.json")) == {"n": 199}
    states.put_later("s", {"n": 200})
    states.close()
    states.close()
    assert json.loads(files.read_text(".local/advisor/s.json")) == {"n": 200}
    assert json.loads(files.read_text(advisor_path("a/b"))) == {"n": 0}


def test_a_disk_that_refuses_it_costs_nothing_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / ".local").write_text("a file in the way")
    states = AdvisorFiles(WorkspaceFiles(tmp_path))
    states.put_later("s", {})
    states.close()
    assert "was not written" in caplog.text
