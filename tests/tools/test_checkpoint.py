"""Tool `checkpoint`: where a conversation stands is written down."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.serving import call, connected, refused, resource, say, text

pytestmark = pytest.mark.anyio


async def test_it_answers_with_an_id_for_recover(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        session = await say(client, "Decision: use two files for the cache")
        result = await client.call_tool("checkpoint", {"note": "before the rewrite"})
        answer = text(result)
        first, second, *_ = answer.splitlines()
        number = first.removeprefix("checkpoint: ")
        assert second.startswith(f"session {session}, after turn 1: 1 decision")
        assert f'recover(id="{number}")' in answer
        shown = await client.call_tool("recover", {"id": number})
        assert not shown.is_error
        assert (tmp_path / "checkpoints" / session / f"{number}.md").is_file()


async def test_without_a_conversation_it_asks_which_one(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        nobody = await client.call_tool("checkpoint", {})
        assert nobody.is_error
        assert "the conversation is not known" in text(nobody)
        unknown = await client.call_tool("checkpoint", {"session": "ses_0"})
        assert unknown.is_error
        assert "no session 'ses_0'" in text(unknown)


async def test_an_anchored_name_stands_first_in_what_is_compiled(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        await say(client, "The oven and the oven; ClaraCore too")
        assert "claracore: anchored" in await call(client, "anchor", item="ClaraCore", note="our engine")
        assert "⚓ claracore" in await call(client, "compile_context")
        assert "⚓ claracore" in await resource(client, "context://clarity/scores")
        assert "no longer anchored" in await call(client, "anchor", item="ClaraCore", on=False)
        assert "⚓" not in await call(client, "compile_context")


async def test_what_is_not_there_says_what_to_do(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        assert "is not anchored" in await refused(client, "anchor", item="boat", on=False)
        assert "knowledge/people/nobody.md" in await refused(client, "anchor", item="knowledge/people/nobody.md")
        assert "argument 'item'" in await refused(client, "anchor", item="")
