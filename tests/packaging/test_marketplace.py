"""The repository is a marketplace of one plugin, as Claude Code reads it."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

from tests.packaging.programs import ROOT, claude


def test_it_points_to_the_plugin() -> None:
    document = json.loads((ROOT / ".claude-plugin/marketplace.json").read_text("utf-8"))
    (listed,) = document["plugins"]
    plugin = json.loads((ROOT / listed["source"] / ".claude-plugin/plugin.json").read_text("utf-8"))
    assert listed["name"] == plugin["name"]


def test_claude_code_takes_it_and_installs_from_it(tmp_path: Path) -> None:
    def run(*arguments: str) -> str:
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("CLAUDE_", "CONTEXT_MANAGER_"))}
        quiet = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_TELEMETRY": "1", "DISABLE_AUTOUPDATER": "1"}
        environ = {**kept, **quiet, "HOME": str(tmp_path), "CLAUDE_CONFIG_DIR": str(tmp_path / ".claude")}
        done = subprocess.run(
            [program, *arguments], cwd=ROOT, env=environ, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    program = claude()
    assert "Validation passed" in run("plugin", "validate", str(ROOT))
    document = json.loads((ROOT / ".claude-plugin/marketplace.json").read_text("utf-8"))
    name = f"{document['plugins'][0]['name']}@{document['name']}"
    said = re.findall(r"`claude (plugin [^`]+)`", (ROOT / "docs" / "packages.md").read_text("utf-8"))
    assert [words.split()[1:3] for words in said] == [["marketplace", "add"], ["install", name]]
    for words in said:
        run(*words.split())
    assert name.partition("@")[0] in run("plugin", "list")
