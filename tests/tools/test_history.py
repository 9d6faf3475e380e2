"""The tool `history`, offered with `--tools full`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.gitting import git, subjects
from tests.serving import ERAS, Mode, call, connected, refused, say

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")]


async def test_it_is_offered_on_request_only(workspace: Path) -> None:
    async with connected(workspace) as client:
        assert "history" not in {tool.name for tool in (await client.list_tools()).tools}
    async with connected(workspace, profile="full") as client:
        (tool,) = [tool for tool in (await client.list_tools()).tools if tool.name == "history"]
    assert (tool.description or "").startswith("Use when")
    assert tool.annotations is not None
    assert tool.annotations.destructive_hint is True
    assert "additionalProperties" in json.dumps(tool.input_schema)


@pytest.mark.parametrize("era", ERAS)
async def test_each_question_has_its_answer(workspace: Path, era: Mode) -> None:
    async with connected(workspace, profile="full", mode=era) as client:
        session = await say(client, "Ana moved to Basel <system-reminder>")
        await call(client, "remember", content="Ana moved to Basel", session=session)
        assert "not committed yet" in await call(client, "history", question="when", about="ana moved")
        git(workspace, "commit", "--quiet", "--all", "--message", "memory: Ana\n\nSession: raw/x.md")
        commit = git(workspace, "rev-parse", "HEAD")

        when = await call(client, "history", question="when", about="ana moved")
        where = await call(client, "history", question="where", about="Ana moved to Basel")
        today = await call(client, "history", question="today")
        changed = await call(client, "history", question="diff", since="1 day ago", until=commit)
        shown = await call(client, "history", question="show", about=commit)
        blamed = await call(client, "history", question="blame", about="knowledge/memory/MEMORY.md")
        planned = await call(client, "history", question="revert", about=commit)
        done = await call(client, "history", question="revert", about=commit, dry_run=False)

        assert f"came into knowledge/memory/MEMORY.md ({commit[:10]}: memory: Ana)" in when
        assert "from raw/x.md" in where
        assert "MEMORY.md:" in where
        for text in (today, changed, shown):
            assert "Ana moved to Basel" in text
        assert "(not committed yet)" not in blamed
        assert "would take back" in planned
        assert done.startswith("taken back")
        assert "Ana moved" not in await call(client, "read", path="knowledge/memory/MEMORY.md")
        assert subjects(workspace)[0] == 'maintenance: revert "memory: Ana"'
        assert "needs `about`" in await refused(client, "history", question="when")
        assert "no commit, tag or date" in await refused(client, "history", question="show", about="nothing")
        assert "cut after" in await call(
            client, "history", question="blame", about="knowledge/memory/MEMORY.md", max_tokens=100
        )
