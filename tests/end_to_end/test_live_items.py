"""Real servers: what a conversation settles is known to the next window while the conversation is still open."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.servers import done, eventually, served
from tests.understanding.talks import BERTH, HELLO

pytestmark = pytest.mark.anyio
PAGE = "knowledge/projects/atlas/context.md"


async def test_the_next_window_knows_an_item_also_if_the_first_server_was_killed(tmp_path: Path) -> None:
    root, folder = tmp_path / "memory", tmp_path / "atlas"
    folder.mkdir()
    (folder / ".context-manager").write_text("atlas\n", "utf-8")
    page = root / PAGE

    async def is_written() -> bool:
        return page.exists() and BERTH in page.read_text("utf-8")

    async with served(root, cwd=folder) as first, served(root, cwd=folder) as second:
        for number, text in enumerate((*HELLO, BERTH, "OK, I'll keep that in mind.")):
            role = "agent" if number % 2 else "user"
            await first.call("observe", role=role, content=text, session="first")
        await eventually(is_written)
        first.kill()
        known = await second.call("compile_context", message="what is left to do?")
        assert BERTH in known
        await second.call("observe", role="user", content="Done: call Ana about the winter berth", session="second")
        await second.call("observe", role="agent", content="Good to hear.", session="second")

        async def is_closed() -> bool:
            return f"{BERTH} (done " in page.read_text("utf-8")

        await eventually(is_closed)
    await done(root, "session", "end", "first")
    await done(root, "session", "end", "second")
    assert page.read_text("utf-8").count(BERTH) == 1
    assert await is_closed()
