"""Real clients in a home of their own, driven without a model: one prompt a process."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from mcp_server.clients.hooks import protocol
from tests.end_to_end.fake_models import FakeModels
from tests.end_to_end.node import BIN_VARIABLE
from tests.end_to_end.servers import turns
from tests.preloaded import programs
from tests.running import printed

PATIENCE = 300.0
SERVER = Path(sys.executable).parent / "context-manager-mcp"


@dataclass(frozen=True, slots=True)
class Program:
    """How a test drives a client: its command, its settings and its environment for the endpoint at a URL."""

    client: str
    command: str
    prompt: Callable[[str], Sequence[str]]
    """The arguments for one prompt."""
    files: Callable[[str], Mapping[str, Any]]
    """Settings below the home folder: text, or an object as JSON."""
    environ: Callable[[str], Mapping[str, str]] = lambda url: {}
    reports_the_end: bool = True
    """True if its hooks report the end of a session that has one prompt."""


_AT_ONCE = {"GEMINI_CLI_NO_RELAUNCH": "true", "QWEN_CODE_NO_RELAUNCH": "true"}
"""Programs that would start Node a second time, with more memory, do not."""

CODEX = Program(
    "codex",
    "codex",
    lambda prompt: ("exec", "--skip-git-repo-check", "--dangerously-bypass-hook-trust", prompt),
    lambda url: {
        ".codex/config.toml": (
            'model = "fake"  # of the test\nmodel_provider = "fake"\n\n[model_providers.fake]\nname = "fake"\n'
            f'base_url = "{url}/v1"\nwire_api = "responses"\n'
            "requires_openai_auth = false\nsupports_websockets = false\n"
        )
    },
)
QWEN = Program(
    "qwen",
    "qwen",
    lambda prompt: ("--auth-type", "openai", "--yolo", "-p", prompt),
    lambda url: {
        ".qwen/settings.json": '{\n  "privacy": {"usageStatisticsEnabled": false}, // of the test\n  "$version": 4\n}\n'
    },
    lambda url: {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "fake", "OPENAI_MODEL": "fake", **_AT_ONCE},
    reports_the_end=False,
)
GEMINI = Program(
    "gemini",
    "gemini",
    lambda prompt: ("--skip-trust", "--yolo", "-m", "gemini-2.5-flash", "-p", prompt),
    lambda url: {
        ".gemini/settings.json": {
            "security": {"auth": {"selectedType": "gemini-api-key"}},
            "privacy": {"usageStatisticsEnabled": False},
        }
    },
    lambda url: {"GOOGLE_GEMINI_BASE_URL": url, "GEMINI_API_KEY": "fake", **_AT_ONCE},
)
COPILOT = Program(
    "copilot",
    "copilot",
    lambda prompt: ("--allow-all-tools", "-p", prompt),
    lambda url: {".copilot/mcp-config.json": {"mcpServers": {}}},
    lambda url: {
        "COPILOT_OFFLINE": "true",
        "COPILOT_PROVIDER_BASE_URL": f"{url}/v1",
        "COPILOT_PROVIDER_API_KEY": "fake",
        "COPILOT_MODEL": "gpt-5.1",
    },
)
OPENCODE = Program(
    "opencode",
    "opencode",
    lambda prompt: ("run", prompt),
    lambda url: {
        ".config/opencode/opencode.json": {
            "model": "fake/fake",
            "small_model": "fake/fake",
            "autoupdate": False,
            "provider": {
                "fake": {
                    "npm": "@ai-sdk/openai-compatible",
                    "options": {"baseURL": f"{url}/v1", "apiKey": "fake"},
                    "models": {"fake": {"limit": {"context": 100_000, "output": 1_000}}},
                }
            },
        }
    },
    lambda url: {"OPENCODE_DISABLE_MODELS_FETCH": "true", "npm_config_registry": url},  # no package for its plugins
    reports_the_end=False,
)
CLAUDE = Program(
    "claude-code",
    "claude",
    lambda prompt: ("-p", prompt),
    lambda url: {},
    lambda url: {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "sk-fake",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_AUTOUPDATER": "1",
        "CLAUDE_CODE_MCP_STARTUP_WAIT_MS": "60000",
    },
)
PROGRAMS = {program.client: program for program in (CODEX, GEMINI, QWEN, COPILOT, OPENCODE)}


@dataclass(slots=True)
class Desk:
    """A user with an empty home, a project and a memory; the model is `api`."""

    api: FakeModels
    home: Path
    settings: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.project.mkdir(parents=True, exist_ok=True)

    @property
    def project(self) -> Path:
        return self.home / "a project"

    @property
    def workspace(self) -> Path:
        return self.home / "my memory"

    @property
    def env(self) -> dict[str, str]:
        outside = ("LANG", "TMPDIR", "NPM_CONFIG_USERCONFIG", "NODE_COMPILE_CACHE")
        kept = {name: os.environ[name] for name in outside if name in os.environ}
        path = os.pathsep.join(filter(None, [os.environ.get(BIN_VARIABLE), os.environ["PATH"]]))
        patience = {"CONTEXT_MANAGER_HOOK_SECONDS": str(PATIENCE / 3)}
        return {**kept, "HOME": str(self.home), "PATH": path, **patience, **self.settings}

    def prepare(self, program: Program) -> None:
        """Writes the program's settings. Skips the test if the program is not installed."""
        if shutil.which(program.command, path=self.env["PATH"]) is None:
            pytest.skip(f"needs {program.client}: `{program.command}` on PATH")
        for name, content in program.files(self.api.url).items():
            file = self.home / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content if isinstance(content, str) else json.dumps(content, indent=2) + "\n", "utf-8")

    def ask(self, program: Program, prompt: str) -> str:
        """Returns what the program prints for one prompt in a new session."""
        env = {**self.env, **program.environ(self.api.url)}
        return printed([program.command, *program.prompt(prompt)], env=env, cwd=self.project)

    def our(self, *arguments: str) -> str:
        """Returns what a command of ours prints."""
        command = str(programs() / "context-manager")
        return printed([command, "--workspace", self.workspace, *arguments], env=self.env, cwd=self.project)

    def wait_for_server(self) -> None:
        """Waits until a server on the memory listens to hooks."""
        _wait_for((self.workspace / ".local" / protocol.ADDRESS).exists, "the server to listen")

    def wait_for_record(self, prompt: str, answers: int = 1) -> None:
        """Waits until the session of a prompt is in the memory with its answers: hooks record in the background."""

        def is_whole() -> bool:
            said = [[line.strip('"') for _, line in lines] for lines in turns(self.workspace).values()]
            return any(prompt in lines and lines.count("Fine.") == answers for lines in said)

        _wait_for(is_whole, f"the record of {prompt!r}")

    @contextmanager
    def patient(self) -> Iterator[None]:
        """Gives our hooks more time than `install` does, and starts servers that have their imports done.

        Machines that run tests are noisy, and a server that imports for itself takes more than a second of CPU.
        """
        quick = str(programs() / SERVER.name).encode()
        found = {self.home / name: data for name, data in self.files().items() if b"context-manager" in data}
        there = {file: data for file, data in found.items() if file.suffix in (".json", ".js")}
        for file, data in there.items():
            slow = re.sub(rb'(timeout"?: )(\d+)', rb"\g<1>\g<2>0", data)
            file.write_bytes(slow.replace(f'"{SERVER}"'.encode(), b'"' + quick + b'"'))
        yield
        for file, data in there.items():
            file.write_bytes(data)

    def files(self) -> dict[str, bytes]:
        """Returns the configuration files in the home folder, without what programs or we write besides."""
        found = (file for file in self.home.rglob("*") if file.is_file() and self.workspace not in file.parents)
        return {str(file.relative_to(self.home)): file.read_bytes() for file in found}


def _wait_for(holds: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, f"waited for {what}"
        time.sleep(0.1)
