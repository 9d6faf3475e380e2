from __future__ import annotations

from pathlib import Path

import pytest

from tests.serving import connected, refused, resource, say, text

pytestmark = pytest.mark.anyio


async def test_the_views_come_structured_with_all_that_the_text_says(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        session = await say(client, "Where do we keep the blue boat?")
        result = await client.call_tool("status", {"view": "sessions"})
        assert result.structured_content is not None
        assert session in str(result.structured_content)
        assert session in text(result)
        assert "workspace" in result.structured_content


async def test_the_resource_says_the_same(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        assert str(tmp_path) in await resource(client, "context://status")


async def test_a_broken_setting_is_shown(tmp_path: Path) -> None:
    (tmp_path / "memory-config.yaml").write_text("serch:\n  embedder: none\n")
    async with connected(tmp_path) as client:
        result = await client.call_tool("status", {})
        assert "'search'" in text(result)
        assert "'search'" in str(result.structured_content)


async def test_an_unknown_session_is_no_session(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        assert "no session" in await refused(client, "status", view="sessions", session="nowhere")
