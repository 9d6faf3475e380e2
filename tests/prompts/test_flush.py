from __future__ import annotations

from pathlib import Path

import pytest

from tests.serving import connected, prompt, say

pytestmark = pytest.mark.anyio


async def test_the_model_is_asked_to_save_what_matters_first(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        text = await prompt(client, "flush")
        session = await say(client, "Hello")
        assert f'session="{session}"' in await prompt(client, "flush")
        assert 'session="other"' in await prompt(client, "flush", session="other")
    for word in ("`remember`", "`anchor`", "decisions", "lessons", "journal", "FLUSH_OK"):
        assert word in text
    assert "session=" not in text
