from __future__ import annotations

from pathlib import Path

import pytest

from tests.serving import ERAS, Mode, call, connected, refused, resource, say

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("mode", ERAS)
async def test_the_tool_gives_the_same_bytes_as_the_resource(tmp_path: Path, mode: Mode) -> None:
    async with connected(tmp_path, mode=mode, maintained=True) as client:
        session = await say(client, "Where do we keep the blue boat?", delivery="replace")
        compiled = await call(client, "compile_context", session=session)
        assert compiled == await resource(client, f"context://compiled/{session}")
        assert compiled == await call(client, "compile_context")


async def test_a_message_brings_what_was_said_elsewhere(tmp_path: Path) -> None:
    async with connected(tmp_path, maintained=True) as client:
        await say(client, "The blue boat is kept in the harbour of Senj.", session="old", delivery="replace")
        compiled = await call(client, "compile_context", message="Where is the blue boat kept?", session="old")
        assert "Senj" in compiled


async def test_the_receipt_says_why(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        session = await say(client, "Where do we keep the blue boat?")
        receipt = await call(client, "compile_context", session=session, format="receipt")
        assert receipt == await resource(client, f"context://receipt/{session}")
        assert "of 8,192 tokens" in receipt


async def test_a_budget_that_holds_nothing_is_refused(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        assert "'budget'" in await refused(client, "compile_context", budget=100)


async def test_a_session_that_never_was_is_no_session(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        assert "no session 'nowhere'" in await refused(client, "compile_context", session="nowhere")
