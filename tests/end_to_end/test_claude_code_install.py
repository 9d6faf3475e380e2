"""The real Claude Code, installed into in a home of its own: it connects, its hooks run, and nothing is left of it
afterwards. Skipped where Claude Code is not installed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.claude import usable_claude
from tests.end_to_end.fake_anthropic import FakeAnthropic, Says
from tests.end_to_end.node import BIN_VARIABLE
from tests.end_to_end.servers import turns
from tests.preloaded import programs
from tests.running import printed

WORDS = "The lighthouse keeper is called Marta."


@pytest.fixture
def claude() -> Path:
    return usable_claude()


@pytest.fixture
def api() -> Iterator[FakeAnthropic]:
    with FakeAnthropic(lambda asked: Says("I will remember her.")) as running:
        yield running


@pytest.fixture
def env(tmp_path: Path, api: FakeAnthropic) -> dict[str, str]:
    """The environment of somebody who has a home with a space in it, and nothing in it yet."""
    home = tmp_path / "my home"
    (home / "work").mkdir(parents=True)
    kept = {name: os.environ[name] for name in ("LANG", "TMPDIR") if name in os.environ}
    return {
        **kept,
        "HOME": str(home),
        "PATH": os.pathsep.join(filter(None, [os.environ.get(BIN_VARIABLE), os.environ["PATH"]])),
        "ANTHROPIC_API_KEY": "sk-fake",
        "ANTHROPIC_BASE_URL": api.url,  # `mcp list` waits for the real one, too
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_AUTOUPDATER": "1",
    }


def ran(env: dict[str, str], *words: str | Path) -> str:
    return printed(words, env=env, cwd=Path(env["HOME"]) / "work")


def test_it_connects_records_and_is_taken_out_again(claude: Path, env: dict[str, str]) -> None:
    home = Path(env["HOME"])
    memory = home / "my memory"
    ours = (programs() / "context-manager", "--workspace", memory)
    for scope in ((), ("--project",)):
        assert json.loads(ran(env, *ours, "install", "claude-code", *scope, "--json"))["works"]
        listed = ran(env, claude, "mcp", "list")
        assert "memory: " in listed
        assert "✔ Connected" in listed
        if not scope:
            ran(env, claude, "-p", WORDS)
            assert "session" in ran(env, *ours, "status")  # processes the queue of the hooks
            (spoken,) = turns(memory).values()
            assert WORDS in [content for _, content in spoken]
        checks = {check["name"]: check for check in json.loads(ran(env, *ours, "doctor", "--json"))}
        assert all(check["ok"] for name, check in checks.items() if name.startswith("Claude Code"))
        ran(env, *ours, "uninstall", "claude-code", *scope)
        left = [file for file in home.rglob("*.json") if "context-manager" in file.read_text("utf-8")]
        assert [file for file in left if memory not in file.parents] == []
