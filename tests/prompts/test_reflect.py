from __future__ import annotations

from pathlib import Path

import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp.types import TextContent

from tests.serving import connected, say

pytestmark = pytest.mark.anyio


async def reflect(client: Client, **arguments: str) -> str:
    (message,) = (await client.get_prompt("reflect", arguments)).messages
    assert isinstance(message.content, TextContent)
    return message.content.text


async def test_the_model_is_asked_to_remember_what_lasts(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        text = await reflect(client)
    for word in ("`remember`", "decision", "lesson", "person", "procedure", "secret"):
        assert word in text
    assert "session=" not in text


async def test_the_handle_is_named_where_it_is_known(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        assert 'session="other"' in await reflect(client, session="other")
        session = await say(client, "Hello")
        assert f'session="{session}"' in await reflect(client)


async def test_an_unknown_prompt_is_named(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        with pytest.raises(MCPError, match="nothing"):
            await client.get_prompt("nothing")
