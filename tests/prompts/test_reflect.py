from __future__ import annotations

from pathlib import Path

import pytest
from mcp.shared.exceptions import MCPError

from tests.serving import connected, prompt, say

pytestmark = pytest.mark.anyio


async def test_the_model_is_asked_to_remember_what_lasts(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        text = await prompt(client, "reflect")
    for word in ("`remember`", "decision", "lesson", "person", "procedure", "secret"):
        assert word in text
    assert "session=" not in text


async def test_the_handle_is_named_where_it_is_known(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        assert 'session="other"' in await prompt(client, "reflect", session="other")
        session = await say(client, "Hello")
        assert f'session="{session}"' in await prompt(client, "reflect")


async def test_an_unknown_prompt_is_named(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        with pytest.raises(MCPError, match="nothing"):
            await client.get_prompt("nothing")
