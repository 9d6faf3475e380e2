"""The tool `topics`, which only the full profile offers, and the resource that says the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.serving import call, connected, refused, resource, say

pytestmark = pytest.mark.anyio

TEA = "---\ntriggers:\n  - {type: pattern, match: '\\btea\\b'}\nactivation: auto\n---\n# Tea\n\nWarm the pot.\n"


def write(root: Path, name: str, text: str) -> None:
    (root / "topics").mkdir(parents=True, exist_ok=True)
    (root / "topics" / name).write_text(text, encoding="utf-8")


async def test_only_the_full_profile_offers_it(workspace: Path) -> None:
    async with connected(workspace) as client:
        assert "topics" not in {tool.name for tool in (await client.list_tools()).tools}
    async with connected(workspace, profile="full") as client:
        (tool,) = [tool for tool in (await client.list_tools()).tools if tool.name == "topics"]
        assert (tool.description or "").startswith("Use when")


async def test_it_lists_switches_and_explains(workspace: Path) -> None:
    async with connected(workspace, profile="full") as client:
        await call(client, "status")  # the memory is there now
        write(workspace, "tea.md", TEA)
        session = await say(client, "hello")
        listed = await call(client, "topics")
        assert "- tea: waiting · auto, medium · pattern — Warm the pot." in listed

        assert "tea is active now" in await call(client, "topics", action="activate", name="tea")
        assert "- tea: **active** (you)" in await resource(client, "context://topics")
        assert "Warm the pot." in await resource(client, f"context://compiled/{session}")
        assert "tea is out now" in await call(client, "topics", action="deactivate", name="tea", session=session)
        assert "- tea: off" in await call(client, "topics", action="list")

        explained = await call(client, "topics", action="explain", message="a cup of tea, please")
        assert "**tea** comes in: pattern 'tea'" in explained
        assert "auto: a match is enough" in explained


async def test_what_is_missing_or_wrong_is_said(workspace: Path) -> None:
    async with connected(workspace, profile="full") as client:
        assert "no conversation yet" in await refused(client, "topics", action="activate", name="email-triage")
        await say(client, "hello")
        assert "needs `name`" in await refused(client, "topics", action="activate")
        assert "needs `message`" in await refused(client, "topics", action="explain")
        wrong = await refused(client, "topics", action="activate", name="emial")
        assert wrong == "no topic 'emial'; did you mean 'email-triage'? (topics list)"
        write(workspace, "bad.md", "---\npriority: urgent\n---\n")
        assert "- topics/bad.md: line 2: `priority`" in await call(client, "topics")
