from __future__ import annotations

from pathlib import Path

import pytest
from mcp import Client
from mcp.types import TextContent

from tests.serving import connected, say

pytestmark = pytest.mark.anyio


async def flush(client: Client, **arguments: str) -> str:
    (message,) = (await client.get_prompt("flush", arguments)).messages
    assert isinstance(message.content, TextContent)
    return message.content.text


async def test_the_model_is_asked_to_save_what_matters_first(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        text = await flush(client)
        session = await say(client, "Hello")
        assert f'session="{session}"' in await flush(client)
        assert 'session="other"' in await flush(client, session="other")
    for word in ("`remember`", "`anchor`", "decisions", "lessons", "journal", "FLUSH_OK"):
        assert word in text
    assert "session=" not in text
