from __future__ import annotations

from pathlib import Path

import pytest
from mcp.shared.exceptions import MCPError
from mcp.types import PromptReference

from mcp_server.relevance.clarity_scores import COMMANDS
from tests.serving import connected, prompt, say

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("fast_notes")]


SAID = {
    "reflect": ("`remember`", "decision", "lesson", "person", "procedure", "secret"),
    "flush": ("`remember`", "`anchor`", "decisions", "lessons", "journal", "FLUSH_OK"),
    "prune_review": ("`prune`", "keep, fading and gone", "Change nothing before", "`anchor`", "`recover`", "/compact"),
}
"""Words of each prompt that asks the model to do something."""


async def test_the_model_is_told_what_to_do_and_the_handle_where_it_is_known(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        for name, words in SAID.items():
            text = await prompt(client, name)
            assert [word for word in words if word not in text] == []
            assert "project" not in text  # this kind is refused outside of a project
            assert "session=" not in text
            assert 'session="other"' in await prompt(client, name, session="other")
        session = await say(client, "Hello")
        for name in SAID:
            assert f'session="{session}"' in await prompt(client, name)


async def test_an_unknown_prompt_is_named(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        with pytest.raises(MCPError, match="nothing"):
            await client.get_prompt("nothing")


async def test_every_command_of_the_seed_answers(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        await say(client, "ClaraCore and focus-engine")
        answers = {action: await prompt(client, "clarity", action=action, item="ClaraCore") for action in COMMANDS}
        assert "[CLARITY CONTEXT]" in await prompt(client, "clarity")
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
            await prompt(client, "clarity")
        with pytest.raises(MCPError, match="not one of status, scores"):
            await prompt(client, "clarity", action="dance")
        with pytest.raises(MCPError, match="anchor needs an item"):
            await prompt(client, "clarity", action="anchor")


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
