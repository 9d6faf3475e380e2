from __future__ import annotations

from pathlib import Path

import pytest
from mcp import Client
from mcp.types import TextContent

from tests.serving import connected, say

pytestmark = pytest.mark.anyio


async def review(client: Client, **arguments: str) -> str:
    (message,) = (await client.get_prompt("prune_review", arguments)).messages
    assert isinstance(message.content, TextContent)
    return message.content.text


async def test_the_model_is_asked_to_look_first_and_to_ask_before_it_acts(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        text = await review(client)
    for word in ("`prune`", "keep, fading and gone", "Change nothing before", "`anchor`", "`recover`", "/compact"):
        assert word in text
    assert "session=" not in text


async def test_the_handle_is_named_where_it_is_known(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        assert 'session="other"' in await review(client, session="other")
        session = await say(client, "Hello")
        assert f'session="{session}"' in await review(client)
