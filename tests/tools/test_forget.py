"""The tool `forget`, offered with `--tools full`: shown first, and done only after the user's own yes."""

from __future__ import annotations

from pathlib import Path

import pytest
from mcp.types import ElicitResult

from tests.gitting import git, subjects, write
from tests.holding import holding
from tests.serving import ERAS, Mode, User, call, connected, refused, resource, say

pytestmark = pytest.mark.anyio

SECRET = "The vault's code is quagga4711."
YES = ElicitResult(action="accept", content={"delete": True})


async def test_forget_history_and_topics_are_offered_on_request_only(workspace: Path) -> None:
    async with connected(workspace) as client:
        offered = {tool.name for tool in (await client.list_tools()).tools}
    async with connected(workspace, profile="full") as client:
        full = {tool.name: tool for tool in (await client.list_tools()).tools}
    for name, destroys in (("forget", True), ("history", True), ("topics", False)):
        assert name not in offered
        assert (full[name].description or "").startswith("Use when")
        annotations = full[name].annotations
        assert annotations is not None
        assert bool(annotations.destructive_hint) is destroys
    assert "approval" not in full["forget"].input_schema["properties"]
    assert "additionalProperties" in full["history"].input_schema


async def test_a_dry_run_names_every_place_and_deletes_nothing(workspace: Path) -> None:
    async with connected(workspace, profile="full") as client:
        await say(client, SECRET)
        await call(client, "remember", content=SECRET, project="global")
        before = holding(workspace, "quagga4711")
        told = await call(client, "forget", text=SECRET)
        assert holding(workspace, "quagga4711") == before
    assert "raw/conversations/" in told
    assert "knowledge/" in told
    assert "nothing is deleted yet" in told


async def test_nothing_is_deleted_where_nobody_can_be_asked(workspace: Path) -> None:
    async with connected(workspace, profile="full") as client:
        await say(client, SECRET)
        assert "context-manager forget" in await refused(client, "forget", text=SECRET, dry_run=False)
        assert holding(workspace, "quagga4711")
        assert "No copy was found" in await call(client, "forget", text="the boiler runs at two bar", dry_run=False)


NO = {
    "auto": [ElicitResult(action="accept", content={"delete": False}), ElicitResult(action="cancel")],
    "legacy": [ElicitResult(action="decline")],
}


@pytest.mark.parametrize("mode", ERAS)
async def test_only_the_users_yes_deletes(workspace: Path, mode: Mode) -> None:
    replies = [*NO[mode], YES]
    user = User(*replies)
    async with connected(workspace, mode=mode, profile="full", user=user) as client:
        session = await say(client, SECRET)
        await call(client, "remember", content=SECRET, project="global")
        for reply in replies:
            result = await client.call_tool("forget", {"text": f"\u202e{SECRET}", "dry_run": False})
            assert result.is_error is (reply is not YES)
            assert bool(holding(workspace, "quagga4711")) is (reply is not YES)
        # The conversation goes on under its handle.
        assert await say(client, "And now the weather.", session=session) == session
    assert len(user.asked) == len(replies)
    for question in user.asked:
        assert "quagga4711" in question
        assert "raw/conversations/" in question
        assert "\u202e" not in question


async def test_the_question_says_in_words_what_goes(workspace: Path) -> None:
    user = User(YES, YES, YES)
    async with connected(workspace, profile="full", user=user) as client:
        session = await say(client, "Where shall we keep the key of the boat this winter?")
        await say(client, SECRET, session=session)
        fact = {"content": "The berth of the boat is number nine.", "project": "global"}
        written = await client.call_tool("remember", fact)
        assert written.structured_content is not None
        path = written.structured_content["path"]
        for target, told, gone in (
            ({"path": path}, f"the file '{path}'", "boat is number nine"),
            ({"turn": f"{session}#2"}, SECRET, "quagga4711"),
            ({"session": session}, "Where shall we keep the key", "key of the boat"),
        ):
            assert holding(workspace, gone)
            await call(client, "forget", dry_run=False, **target)
            assert told.replace("'", "") in user.asked[-1].replace("'", "")
            assert not holding(workspace, gone)
    assert len(user.asked) == 3


async def test_what_is_meant_must_be_one_thing(workspace: Path) -> None:
    async with connected(workspace, profile="full") as client:
        said = await refused(client, "forget")
        assert "give one of text, turn" in said
        assert "--" not in said
        assert "give one of text" in await refused(client, "forget", text=SECRET, session="s")
        assert "give one of text" in await refused(client, "forget", text=SECRET, first_line=3)


@pytest.mark.parametrize("mode", ERAS)
async def test_what_is_wrong_is_said_before_anybody_is_asked(workspace: Path, mode: Mode) -> None:
    user = User()
    async with connected(workspace, mode=mode, profile="full", user=user) as client:
        session = await say(client, SECRET)
        assert "nope" in await refused(client, "forget", session="nope", dry_run=False)
        assert "has no turn 9" in await refused(client, "forget", turn=f"{session}#9", dry_run=False)
        assert "is a transcript" in await refused(client, "forget", path="raw/x.md", dry_run=False)
        assert "No copy was found" in await call(client, "forget", text="nothing of this kind", dry_run=False)
    assert user.asked == []


async def test_each_question_has_its_answer(workspace: Path) -> None:
    async with connected(workspace, profile="full") as client:
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

        assert f"added to knowledge/memory/MEMORY.md ({commit[:10]}: memory: Ana)" in when
        assert "from raw/x.md" in where
        assert "MEMORY.md:" in where
        for text in (today, changed, shown):
            assert "Ana moved to Basel" in text
        assert "(not committed yet)" not in blamed
        assert "would revert" in planned
        assert done.startswith("reverted")
        assert "Ana moved" not in await call(client, "read", path="knowledge/memory/MEMORY.md")
        assert subjects(workspace)[0] == 'maintenance: revert "memory: Ana"'
        assert "needs `about`" in await refused(client, "history", question="when")
        assert "no commit, tag or date" in await refused(client, "history", question="show", about="nothing")
        assert "cut after" in await call(
            client, "history", question="blame", about="knowledge/memory/MEMORY.md", max_tokens=100
        )


TEA = "---\ntriggers:\n  - {type: pattern, match: '\\btea\\b'}\nactivation: auto\n---\n# Tea\n\nWarm the pot.\n"


async def test_it_lists_switches_and_explains(workspace: Path) -> None:
    async with connected(workspace, profile="full") as client:
        await call(client, "status")  # the memory is there now
        write(workspace, "topics/tea.md", TEA)
        session = await say(client, "hello")
        listed = await call(client, "topics")
        assert "- tea: waiting · auto, medium · pattern — Warm the pot." in listed

        assert "tea is active now" in await call(client, "topics", action="activate", name="tea")
        assert "- tea: **active** (you)" in await resource(client, "context://topics")
        assert "Warm the pot." in await resource(client, f"context://compiled/{session}")
        assert "tea is off now" in await call(client, "topics", action="deactivate", name="tea", session=session)
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
        write(workspace, "topics/bad.md", "---\npriority: urgent\n---\n")
        assert "- topics/bad.md: line 2: `priority`" in await call(client, "topics")
