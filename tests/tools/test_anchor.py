from __future__ import annotations

from pathlib import Path

import pytest

from tests.serving import ERAS, Mode, call, connected, refused, resource, say

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("mode", ERAS)
async def test_an_anchored_name_stands_first_in_what_is_compiled(tmp_path: Path, mode: Mode) -> None:
    async with connected(tmp_path, mode=mode) as client:
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
