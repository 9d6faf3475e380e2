"""Clients that other people wrote: the MCP Inspector, the conformance suite, the TypeScript SDK."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.end_to_end.node import Node, usable_node
from tests.preloaded import programs, python
from tests.serving import ROOT, environment

INSPECTOR = "@modelcontextprotocol/inspector/clients/launcher/build/index.js"
STABLE = "@modelcontextprotocol/conformance/dist/index.js"
ALPHA = "conformance-alpha/dist/index.js"
STABLE_SCENARIOS = {
    "server-initialize",
    "ping",
    "tools-list",
    "resources-list",
    "prompts-list",
    "resources-subscribe",
    "resources-unsubscribe",
    "completion-complete",
    "dns-rebinding-protection",
    "server-sse-multiple-streams",
}
ALPHA_SCENARIOS = {
    "caching",
    "http-header-validation",
    "sep-2164-resource-not-found",
    "dns-rebinding-protection",
    "tools-list",
    "resources-list",
    "prompts-list",
    "completion-complete",
    "input-required-result-missing-input-response",
    "input-required-result-unsupported-methods",
    "input-required-result-ignore-extra-params",
    "input-required-result-validate-input",
}


@pytest.fixture(scope="module")
def node() -> Node:
    return usable_node()


@contextmanager
def over_http(root: Path, *options: str) -> Iterator[str]:
    """A real server on a free port of loopback; gives its URL."""
    command = python("-m", "mcp_server", "--http", "--port", "0", *options)
    with subprocess.Popen(command, cwd=ROOT, env=environment(root), stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            line = server.stderr.readline()
            assert "http://" in line, line + server.stderr.read()
            yield line.split()[1]
        finally:
            server.terminate()


@pytest.fixture(scope="module")
def open_url(node: Node, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with over_http(tmp_path_factory.mktemp("workspace"), "--no-token") as url:
        yield url


def inspect(node: Node, root: Path, era: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    server = python("-m", "mcp_server", "--workspace", str(root))
    return node.run(INSPECTOR, "--cli", *server, *arguments, "--protocol-era", era, env=environment(root))


def test_the_inspector_finds_every_schema_portable(node: Node, tmp_path: Path) -> None:
    done = inspect(node, tmp_path, "modern", "--method", "tools/list", "--strict")
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(json.loads(done.stdout)["tools"]) == 10


def test_the_inspector_records_in_one_era_and_compiles_in_the_other(node: Node, tmp_path: Path) -> None:
    said = ["role=user", "content=The launch is on Tuesday.", "session=seen", "delivery=replace"]
    arguments = [part for argument in said for part in ("--tool-arg", argument)]
    done = inspect(node, tmp_path, "legacy", "--method", "tools/call", "--tool-name", "observe", *arguments)
    assert "session: seen" in done.stdout, done.stdout + done.stderr
    done = inspect(node, tmp_path, "modern", "--method", "resources/read", "--uri", "context://compiled/seen")
    assert "The launch is on Tuesday." in done.stdout, done.stdout + done.stderr


def test_the_inspector_gets_a_prompt_and_a_refusal(node: Node, tmp_path: Path) -> None:
    done = inspect(node, tmp_path, "modern", "--method", "prompts/get", "--prompt-name", "reflect")
    assert "remember" in done.stdout, done.stdout + done.stderr
    wrong = inspect(
        node, tmp_path, "modern", "--method", "tools/call", "--tool-name", "read", "--tool-arg", "path=../x"
    )
    assert wrong.returncode == 5, wrong.stdout + wrong.stderr


def not_passed(scenarios: set[str], done: subprocess.CompletedProcess[str]) -> set[str]:
    """Returns those of the scenarios that a run of a whole suite does not list as passed."""
    return scenarios - set(re.findall(r"^✓ (\S+): ", done.stdout, re.MULTILINE))


def test_the_server_conforms_to_the_stable_protocol(node: Node, open_url: str, tmp_path: Path) -> None:
    done = node.run(STABLE, "server", "--url", open_url, "--suite", "all", "--output-dir", str(tmp_path))
    assert not_passed(STABLE_SCENARIOS, done) == set(), done.stdout + done.stderr


def test_the_server_conforms_to_the_protocol_of_2026(node: Node, open_url: str, tmp_path: Path) -> None:
    suite = ("--suite", "all", "--spec-version", "2026-07-28", "--output-dir", str(tmp_path))
    done = node.run(ALPHA, "server", "--url", open_url, *suite)
    assert not_passed(ALPHA_SCENARIOS, done) == set(), done.stdout + done.stderr


def test_a_client_of_the_typescript_sdk_is_told_of_turns_and_of_edits_by_hand(node: Node, tmp_path: Path) -> None:
    # Node looks for packages beside the script.
    script = Path(shutil.copy(Path(__file__).parent / "clients" / "subscribe.mjs", node.folder))
    env = {**environment(tmp_path), "PYTHONPATH": str(ROOT)}
    done = node.run(script, str(programs() / "python"), str(tmp_path), env=env)
    assert done.stdout.splitlines() == [
        "updated after an observe",
        "updated after an edit by hand",
        "text/markdown",
    ], done.stdout + done.stderr


def test_a_server_with_a_token_answers_nobody_without_it(tmp_path: Path) -> None:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}).encode()
    with over_http(tmp_path) as url:
        token = (tmp_path / ".local" / "http-token").read_text().strip()
        for given, status in ((None, 401), ("wrong", 401), (token, 400)):  # 400: let in, and a ping is no handshake
            request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
            request.add_header("Accept", "application/json, text/event-stream")
            if given:
                request.add_header("Authorization", f"Bearer {given}")
            with pytest.raises(urllib.error.HTTPError) as refusal:
                urllib.request.urlopen(request)
            assert refusal.value.code == status
            refusal.value.close()
