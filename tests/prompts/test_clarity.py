"""Prompt `clarity`: S0's commands from the chat."""

from __future__ import annotations

from pathlib import Path

import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp.types import PromptReference, TextContent

from mcp_server.core.clarity import COMMANDS
from tests.serving import connected, say

pytestmark = pytest.mark.anyio


async def clarity(client: Client, **arguments: str) -> str:
    (message,) = (await client.get_prompt("clarity", arguments)).messages
    assert isinstance(message.content, TextContent)
    return message.content.text


async def test_every_command_of_the_seed_answers(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        await say(client, "ClaraCore and focus-engine")
        answers = {action: await clarity(client, action=action, item="ClaraCore") for action in COMMANDS}
        assert "[CLARITY CONTEXT]" in await clarity(client)
    assert "claracore" in answers["scores"]
    assert "- items: 2" in answers["stats"]
    assert '"halfLife": 5' in answers["config"]
    assert '"currentTurn": 1' in answers["state"]
    assert "item claracore: anchored" in answers["anchor"]
    assert "item claracore: no longer anchored" in answers["unanchor"]
    assert "Nothing to prune" in answers["prune"]


async def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        with pytest.raises(MCPError, match="no conversation yet"):
            await clarity(client)
        with pytest.raises(MCPError, match="none of status, scores"):
            await clarity(client, action="dance")
        with pytest.raises(MCPError, match="anchor needs an item"):
            await clarity(client, action="anchor")


async def test_actions_and_items_are_completed(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        ref = PromptReference(type="ref/prompt", name="clarity")
        nothing = await client.complete(ref, {"name": "item", "value": ""})
        assert nothing.completion.values == []
        await say(client, "ClaraCore and focus-engine")
        actions = await client.complete(ref, {"name": "action", "value": "un"})
        assert actions.completion.values == ["unanchor"]
        items = await client.complete(ref, {"name": "item", "value": "cl"})
        assert items.completion.values == ["claracore"]
