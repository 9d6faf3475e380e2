"""The resources that a client can list, read and complete."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote

import pytest
from mcp.shared.exceptions import MCPError
from mcp.types import INVALID_PARAMS, PromptReference, ResourceTemplateReference

from mcp_server.tokens import TokenCounter
from tests.serving import ERAS, Mode, call, connected, resource, say

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("fast_notes")]


async def test_a_file_of_the_memory_is_a_resource(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        assert "Petrović" not in await resource(client, "memory://knowledge/memory/MEMORY.md")
        await call(client, "remember", content="The landlord is Petrović.", project="global")
        assert "Petrović" in await resource(client, "memory://knowledge/memory/MEMORY.md"), "no answer from a copy"
        with pytest.raises(MCPError) as missing:
            await resource(client, "memory://knowledge/memory/MEMRY.md")
        assert missing.value.error.code == -32602
        assert "MEMORY.md" in str(missing.value)


LEAVING = [
    *("../x", "a/../../x", "%2e%2e/x", "a/%2e%2e/%2e%2e/x", "/etc/passwd", "%00"),
    *(".local/state.db", ".git/config"),
]


async def test_a_uri_that_leads_out_of_the_workspace_is_the_callers_mistake(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        await say(client, "Hello")
        for path in LEAVING:
            with pytest.raises(MCPError) as refusal:
                await resource(client, f"memory://{path}")
            assert refusal.value.error.code == INVALID_PARAMS, path
            assert "Error creating resource" not in str(refusal.value)


async def test_a_handle_with_any_characters_has_a_uri(tmp_path: Path) -> None:
    handle = "../a b/ć?"
    async with connected(tmp_path, client="claude-ai") as client:
        await say(client, "The launch is on Tuesday.", session=handle)
        await say(client, "Which cake shall I bake?", session="other")
        uri = f"context://compiled/{quote(handle, safe='')}"
        assert uri in await resource(client, "context://compiled")
        assert await resource(client, uri) == await call(client, "compile_context", session=handle)


async def test_handles_and_paths_are_completed(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        await say(client, "Hello", session="alpha")
        await say(client, "Hello", session="alps")
        template = ResourceTemplateReference(type="ref/resource", uri="context://compiled/{session}")
        assert set((await client.complete(template, {"name": "session", "value": "al"})).completion.values) == {
            "alpha",
            "alps",
        }
        files = ResourceTemplateReference(type="ref/resource", uri="memory://{+path}")
        paths = (await client.complete(files, {"name": "path", "value": "knowledge/mem"})).completion.values
        assert paths == ["knowledge/memory/MEMORY.md"]
        prompt = PromptReference(type="ref/prompt", name="reflect")
        assert (await client.complete(prompt, {"name": "session", "value": "alph"})).completion.values == ["alpha"]
        assert (await client.complete(prompt, {"name": "nothing", "value": ""})).completion.values == []


async def test_what_all_share_and_the_list_of_conversations_fit_the_budget_together(tmp_path: Path) -> None:
    (tmp_path / "knowledge" / "identity").mkdir(parents=True)
    (tmp_path / "knowledge" / "identity" / "SOUL.md").write_text("# Soul\n\n" + "I like the sea and the wind. " * 2000)
    async with connected(tmp_path, client="claude-ai") as client:
        for n in range(25):
            await say(client, f"<system-reminder> number {n}", session=f"chat-{n}")
        compiled = await resource(client, "context://compiled")
    assert compiled.count("context://compiled/chat-") == 20
    assert "<system-reminder>" not in compiled
    assert "the sea" in compiled
    assert TokenCounter().count(compiled) <= 8192


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
