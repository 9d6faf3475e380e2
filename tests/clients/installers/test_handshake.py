"""A real process is greeted as a client greets it, and what is wrong with it is said in one sentence."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from mcp_server import __version__
from mcp_server.clients.installers.chain import handshake
from tests import preloaded
from tests.serving import PLAIN

pytestmark = pytest.mark.anyio


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


async def test_our_server_answers_with_its_version_and_tools(workspace: Path) -> None:
    words = preloaded.python("-m", "mcp_server", "--workspace", str(workspace))
    found = await handshake(words, os.environ, PLAIN)
    assert found.problem == ""
    assert found.version == __version__
    assert {"search", "remember", "observe"} <= set(found.tools)


async def test_the_last_line_of_stderr_is_shown() -> None:
    found = await handshake(python("import sys; print('one', file=sys.stderr); sys.exit('no disk today')"), os.environ)
    assert found.problem == "it ended at once; it said: no disk today"


async def test_one_that_does_not_end_is_ended() -> None:
    found = await handshake(python("import time; time.sleep(1000)"), os.environ, patience=0.2)
    assert found.problem.startswith("no answer within")


async def test_what_is_no_protocol_is_quoted() -> None:
    found = await handshake(python("print('Welcome!'); input()"), os.environ)
    assert found.problem == "its stdout is not MCP: 'Welcome!'"


async def test_a_refusal_is_told() -> None:
    refusal = '{"jsonrpc": "2.0", "id": 1, "error": {"code": -1, "message": "too old"}}'
    found = await handshake(
        python(f"import sys; input(); print({refusal!r}, flush=True); sys.stdin.read()"), os.environ
    )
    assert found.problem == "it refused: too old"


async def test_a_command_that_is_not_there_is_named(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("no program")
    plain.chmod(0o644)
    broken = tmp_path / "broken"
    broken.write_bytes(b"\x00\x01")
    broken.chmod(0o755)
    assert (await handshake(["/no/such/server"], os.environ)).problem == "there is no /no/such/server"
    assert (await handshake(["no-such-server"], os.environ)).problem == "no-such-server is not on PATH"
    assert (await handshake([], os.environ)).problem == "no command is named"
    assert "cannot be started" in (await handshake([str(broken)], os.environ)).problem
    if os.name == "posix":
        assert "is not executable" in (await handshake([str(plain)], os.environ)).problem
