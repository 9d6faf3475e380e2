"""Resources `context://clarity/…`: each says what the commands and `status` say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from mcp.shared.exceptions import MCPError

from tests.serving import ERAS, Mode, connected, resource, say

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("mode", ERAS)
async def test_state_scores_stats_and_config_are_of_this_connections_session(tmp_path: Path, mode: Mode) -> None:
    async with connected(tmp_path, mode=mode) as client:
        session = await say(client, "ClaraCore and focus-engine")
        state = json.loads(await resource(client, "context://clarity/state"))
        assert (state["session"], state["currentTurn"]) == (session, 1)
        assert [item["id"] for item in state["items"]] == ["claracore", "focus-engine"]
        assert "| claracore | project |" in await resource(client, "context://clarity/scores")
        assert "- items: 2" in await resource(client, "context://clarity/stats")
        assert json.loads(await resource(client, "context://clarity/config"))["scoring"]["halfLife"] == 5
        result = await client.call_tool("status", {"view": "clarity"})
        assert result.structured_content is not None
        assert result.structured_content["clarity"]["items"] == 2


async def test_any_session_can_be_named_and_one_that_never_was_is_no_session(tmp_path: Path) -> None:
    async with connected(tmp_path, transport="http") as client:
        with pytest.raises(MCPError, match="no conversation yet"):
            await resource(client, "context://clarity/scores")
        await say(client, "ClaraCore", session="one")
        await say(client, "focus-engine", session="two/with a slash")
        assert "claracore" in await resource(client, "context://clarity/scores/one")
        assert "focus-engine" in await resource(client, "context://clarity/scores/two%2Fwith%20a%20slash")
        assert "- items: 1" in await resource(client, "context://clarity/stats/one")
        with pytest.raises(MCPError, match="no session"):
            await resource(client, "context://clarity/state/nowhere")
