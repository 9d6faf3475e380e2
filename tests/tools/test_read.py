from __future__ import annotations

from pathlib import Path

import pytest

from tests.serving import call, connected, refused

pytestmark = pytest.mark.anyio


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


async def test_no_path_leads_out_of_the_workspace(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        for path in ("../x", "/etc/passwd", "knowledge/../../x", "a\0b", "CON", ".local/state.db"):
            message = await refused(client, "read", path=path)
            assert "Error executing" not in message
            assert "root:" not in message


async def test_a_missing_file_offers_the_nearest(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        assert "knowledge/memory/MEMORY.md" in await refused(client, "read", path="knowledge/memory/MEMRY.md")
