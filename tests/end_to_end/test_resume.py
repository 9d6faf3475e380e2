"""Another client goes on with a conversation where the last one stopped: real processes over stdio (issue 5)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mcp.types import PromptReference, ResourceTemplateReference

from tests.end_to_end.servers import Served, done, served
from tests.serving import prompt, resource, say

pytestmark = pytest.mark.anyio

DECISION = "We'll use SQLite for the ledger, because it is one file."
ANSWER = f"I compared both.\n\nDecision: {DECISION}\n\n" + "It is small. " * 40
CALL = {"name": "Bash", "summary": "pytest -q tests/oven", "result": "3 passed", "files": ["tests/test_oven.py"]}


async def work(old: Served) -> str:
    """A conversation with a decision, an open item and a tool call; then the client is gone, without a goodbye."""
    session = await say(old.client, "Which store shall the ledger of the bakery have?")
    for role, content, more in (
        ("agent", ANSWER, {"tool_calls": [CALL]}),
        ("user", "yes, do it", {}),
        ("user", "TODO: call Ana about the winter berth", {}),
        ("agent", "Noted. The blue door stays.", {}),
    ):
        await old.call("observe", role=role, content=content, session=session, **more)
    return session


def assert_tells_where_it_stood(text: str) -> None:
    assert "- We'll use SQLite for the ledger, because it is one file." in text
    assert "- call Ana about the winter berth" in text
    assert "Last tool call: Bash pytest -q tests/oven → 3 passed" in text
    assert "Began with: Which store shall the ledger of the bakery have?" in text


async def test_a_fresh_client_goes_on_where_a_killed_one_stopped(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    with pytest.raises(Exception):  # noqa: B017, PT011, PT012 - whatever a client says whose server was killed
        async with served(root, client="test-agent") as old:
            session = await work(old)
            old.kill()
            await old.call("status")
    async with served(root, client="claude-ai") as new:
        text = await prompt(new.client, "resume", session=session)
        assert_tells_where_it_stood(text)
        assert f'session="{session}"' in text
        assert "Noted. The blue door stays." in text, "what was said last is there too"
        (listed,) = re.findall(r"`(ckp_[0-9a-f]+)`", await resource(new.client, "context://checkpoints"))
        assert "call Ana about the winter berth" in await resource(new.client, f"context://checkpoint/{listed}")

        await new.call("observe", role="user", content="So how large may the ledger get?", session=session)
        compiled = await new.call("compile_context", session=session)
        assert_tells_where_it_stood(compiled)
        assert "turn 6" in await new.call(
            "observe", role="user", content="So how large may the ledger get?", session=session
        )
    assert listed in await done(root, "checkpoint", "list", "--json")


async def test_without_a_handle_the_conversation_last_heard_of_goes_on(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    async with served(root) as before:
        await say(before.client, "The weather is fine in Split today")
    async with served(root) as old:
        session = await work(old)
    async with served(root) as new:
        assert_tells_where_it_stood(await prompt(new.client, "resume"))
        answer = await new.call("observe", role="user", content="And now?")
        assert answer.startswith(f"session: {session}\n"), "on its own connection it needs no handle"


async def test_a_checkpoint_on_demand_can_be_resumed_by_its_id(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    async with served(root) as old:
        session = await work(old)
        answer = await old.call("checkpoint", session=session, note="before the oven")
        number = answer.splitlines()[0].removeprefix("checkpoint: ")
        assert "after turn 5: 1 decision, 1 open item" in answer
        await old.call("observe", role="user", content="Decision: paint the fence green", session=session)
    async with served(root) as new:
        handles = await new.client.complete(
            PromptReference(type="ref/prompt", name="resume"), {"name": "session", "value": "ckp"}
        )
        assert handles.completion.values == [number]
        ids = await new.client.complete(
            ResourceTemplateReference(type="ref/resource", uri="context://checkpoint/{id}"), {"name": "id", "value": ""}
        )
        assert number in ids.completion.values
        text = await prompt(new.client, "resume", session=number)
        assert_tells_where_it_stood(text)
        assert "fence green" not in text
        assert f'recover(id="{number}")' in text
        assert "before the oven" in await done(root, "checkpoint", "list", "--session", session, "--json")
        assert "winter berth" in await done(root, "checkpoint", "show", number)
    assert (await done(root, "checkpoint", "diff", number)).startswith("no longer live: 1 chunk\n")
