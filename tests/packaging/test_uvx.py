"""`uvx context-manager-mcp`, from the wheel: everything that it needs is named, and a client gets its answers."""

from __future__ import annotations

from pathlib import Path

import pytest
from mcp import Client

from tests.packaging.programs import installed_by_uv, started_by_uv
from tests.serving import call, say

pytestmark = pytest.mark.anyio


async def test_a_client_starts_the_server_from_the_wheel_with_uvx(wheel: Path, tmp_path: Path) -> None:
    run = ("tool", "run", "--isolated", "--from", str(wheel))
    installed_by_uv(*run, "context-manager", "--version", home=tmp_path)
    server = started_by_uv(*run, "context-manager-mcp", home=tmp_path, cwd=tmp_path)
    async with Client(server) as client:
        session = await say(client, "The boiler runs at 2 bar.", delivery="replace")
        assert "2 bar" in await call(client, "compile_context", session=session)
        assert "wordllama" in await call(client, "status", max_tokens=100_000)
    assert "The boiler" in next((tmp_path / ".context-manager" / "raw").rglob("*.md")).read_text("utf-8")
