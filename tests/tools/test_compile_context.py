"""The tools `compile_context`, `search`, `read` and `status`."""

from __future__ import annotations

import re
from pathlib import Path

import anyio
import pytest

from tests.serving import call, connected, refused, resource, say, text

pytestmark = pytest.mark.anyio


async def test_the_tool_gives_the_same_bytes_as_the_resource(tmp_path: Path) -> None:
    async with connected(tmp_path, maintained=True) as client:
        session = await say(client, "Where do we keep the blue boat?", delivery="replace")
        compiled = await call(client, "compile_context", session=session)
        assert compiled == await resource(client, f"context://compiled/{session}")
        assert compiled == await call(client, "compile_context")


async def test_the_receipt_says_why(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        session = await say(client, "Where do we keep the blue boat?")
        receipt = await call(client, "compile_context", session=session, format="receipt")
        assert receipt == await resource(client, f"context://receipt/{session}")
        assert "of 8,192 tokens" in receipt


async def test_a_session_that_never_was_is_no_session(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        assert "no session 'nowhere'" in await refused(client, "compile_context", session="nowhere")
        assert "no session" in await refused(client, "status", view="sessions", session="nowhere")


async def test_a_memory_that_knows_nothing_says_so(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        said = await call(client, "compile_context", message="how do we deploy?")
        assert said == "The memory has nothing for this message."
        await call(client, "remember", content="We deploy with the script ship.sh.", kind="fact", project="global")
        assert "ship.sh" in await call(client, "compile_context", message="how do we deploy?")


async def test_what_was_said_is_found_with_path_lines_and_date(tmp_path: Path) -> None:
    async with connected(tmp_path, maintained=True) as client:
        await say(client, "Our landlord is called Petrović.", session="a", at="2026-05-04T10:00:00Z")
        with anyio.fail_after(60):  # a search waits for the index for a second at most
            while True:
                result = await client.call_tool("search", {"query": "landlord Petrovic"})
                assert result.structured_content is not None
                if hits := result.structured_content["hits"]:
                    break
    (hit,) = hits
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


async def test_a_range_of_a_file_is_read_and_a_cut_says_how_to_go_on(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        await call(client, "status")
        (tmp_path / "knowledge" / "reference").mkdir(parents=True, exist_ok=True)
        (tmp_path / "knowledge" / "reference" / "long.md").write_text("".join(f"line {n}\n" for n in range(1, 500)))
        answer = await call(client, "read", path="knowledge/reference/long.md", start=3, end=4)
        assert "line 3\nline 4" in answer
        assert "line 5" not in answer
        cut = await call(client, "read", path="knowledge/reference/long.md", max_tokens=100)
        assert "start=" in cut


async def test_the_views_come_structured_with_all_that_the_text_says(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        session = await say(client, "Where do we keep the blue boat?")
        result = await client.call_tool("status", {"view": "sessions"})
        assert result.structured_content is not None
        assert session in str(result.structured_content)
        assert session in text(result)
        assert "workspace" in result.structured_content
        assert str(tmp_path) in await resource(client, "context://status")


async def test_a_broken_setting_is_shown(tmp_path: Path) -> None:
    (tmp_path / "memory-config.yaml").write_text("serch:\n  embedder: none\n")
    async with connected(tmp_path) as client:
        result = await client.call_tool("status", {})
        assert "'search'" in text(result)
        assert "'search'" in str(result.structured_content)
