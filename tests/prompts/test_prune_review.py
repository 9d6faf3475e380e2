from __future__ import annotations

from pathlib import Path

import pytest

from tests.serving import connected, prompt, say

pytestmark = pytest.mark.anyio


async def test_the_model_is_asked_to_look_first_and_to_ask_before_it_acts(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        text = await prompt(client, "prune_review")
    for word in ("`prune`", "keep, fading and gone", "Change nothing before", "`anchor`", "`recover`", "/compact"):
        assert word in text
    assert "session=" not in text


async def test_the_handle_is_named_where_it_is_known(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        assert 'session="other"' in await prompt(client, "prune_review", session="other")
        session = await say(client, "Hello")
        assert f'session="{session}"' in await prompt(client, "prune_review")
