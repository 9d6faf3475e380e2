from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.serving import call, connected, say, text

pytestmark = pytest.mark.anyio


async def test_what_was_said_is_found_with_path_lines_and_date(tmp_path: Path) -> None:
    async with connected(tmp_path, maintained=True) as client:
        await say(client, "Our landlord is called Petrović.", session="a", at="2026-05-04T10:00:00Z")
        result = await client.call_tool("search", {"query": "landlord Petrovic"})
    assert result.structured_content is not None
    hit = result.structured_content["hits"][0]
    assert hit["path"].startswith("raw/conversations/2026/05/04/")
    assert "Petrović" in str(hit)
    assert hit["turn"] == 1
    assert "Petrović" in text(result)


async def test_all_that_the_text_tells_is_in_the_structured_answer(tmp_path: Path) -> None:
    async with connected(tmp_path, maintained=True) as client:
        for n in range(5):
            await say(client, f"Reason number {n} for the blue boat is that it floats.", session="a")
        result = await client.call_tool("search", {"query": "blue boat", "max_tokens": 400})
    structured = str(result.structured_content)
    paths = re.findall(r"raw/\S+?\.md", text(result))
    assert paths
    assert all(path in structured for path in paths)


async def test_nothing_found_is_no_error(tmp_path: Path) -> None:
    async with connected(tmp_path, maintained=True) as client:
        assert await call(client, "search", query='"" AND NEAR(* "')
