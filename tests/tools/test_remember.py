from __future__ import annotations

from pathlib import Path

import pytest

from tests.serving import connected, refused, say, text

pytestmark = pytest.mark.anyio


async def test_a_fact_is_written_where_a_person_looks_and_the_diff_comes_back(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        result = await client.call_tool("remember", {"content": "The landlord is Petrović.", "project": "global"})
    assert result.structured_content is not None
    written = tmp_path / result.structured_content["path"]
    assert "The landlord is Petrović." in written.read_text()
    assert "+" in result.structured_content["diff"]
    assert result.structured_content["diff"] in text(result)


async def test_a_secret_is_refused(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
        assert "secret" in (await refused(client, "remember", content=f"The token is {secret}")).lower()


async def test_identity_is_the_users_own_to_write(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        assert "knowledge/identity/" in await refused(client, "remember", content="I am kind.", kind="identity")


async def test_a_session_that_is_named_counts_as_this_connections(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        await say(client, "Hello", session="mine")
    async with connected(tmp_path) as client:
        await client.call_tool("remember", {"content": "The boat is blue.", "session": "mine"})
        assert await say(client, "Go on") == "mine"
