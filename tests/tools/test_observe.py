from __future__ import annotations

from pathlib import Path

import pytest
from mcp.types import ElicitResult

from tests.conftest import project_folder
from tests.serving import ERAS, Mode, User, call, connected, refused, say, text

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("mode", ERAS)
async def test_a_message_is_on_disk_when_the_answer_comes_and_its_first_line_is_the_handle(
    tmp_path: Path, mode: Mode
) -> None:
    async with connected(tmp_path, mode=mode) as client:
        answer = await call(client, "observe", role="user", content="The launch is on Tuesday.")
        (transcript,) = (tmp_path / "raw").rglob("*.md")
        assert "The launch is on Tuesday." in transcript.read_text()
        assert answer.startswith("session: ses_")


async def test_one_call_can_bring_the_compiled_context_along(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        answer = await call(client, "observe", role="user", content="Hello", session="s", return_context=True)
        assert answer.startswith("session: s\n")
        assert await call(client, "compile_context", session="s") in answer


async def test_everything_a_turn_can_carry_is_accepted(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        answer = await call(
            client,
            "observe",
            role="assistant",
            content="Done.",
            session="s",
            name="Claude",
            at="2026-05-04T10:00:00+02:00",
            project="Atlas",
            kind="main",
            delivery="add",
            model="claude",
            channel="chat",
            important=True,
            tool_calls=[{"name": "Edit", "summary": "fix", "result": "ok", "params": {"a": 1}, "files": ["a.py"]}],
            chunks=[{"type": "file", "id": "a.py", "tokens": 10, "tags": ["x"], "mtime": "2026-05-04T10:00:00Z"}],
            context_tokens=12_000,
        )
    assert answer.startswith("session: s")
    assert "2026/05/04/0800-s-" in str(next((tmp_path / "raw").rglob("*.md")))


async def test_a_fact_is_written_where_a_person_looks_and_the_diff_comes_back(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        result = await client.call_tool("remember", {"content": "The landlord is Petrović.", "project": "global"})
    assert result.structured_content is not None
    written = tmp_path / result.structured_content["path"]
    assert "The landlord is Petrović." in written.read_text()
    assert "+" in result.structured_content["diff"]
    assert result.structured_content["diff"] in text(result)


async def test_a_decision_that_supersedes_another_one_replaces_it_and_says_so(tmp_path: Path) -> None:
    folder = project_folder(tmp_path / "atlas", "atlas")
    async with connected(tmp_path / "memory", folder=str(folder)) as client:
        await client.call_tool("remember", {"content": "Vault holds the secrets.", "kind": "decision"})
        arguments = {"content": "The cloud holds the secrets.", "kind": "decision", "supersedes": "Vault holds"}
        done = await client.call_tool("remember", arguments)
        rule = await client.call_tool("remember", {"content": "Commit in English.", "kind": "rule"})
        missed = await refused(client, "remember", content="x", kind="rule", supersedes=" ")
    assert "replaced: Vault holds the secrets." in text(done)
    assert not rule.is_error
    assert "supersedes" in missed
    page = (tmp_path / "memory/knowledge/projects/atlas/context.md").read_text()
    assert page.index("## Replaced decisions") < page.index("Vault holds the secrets. (replaced ")
    assert "## Rules\n" in page


async def test_a_secret_is_refused(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
        assert "secret" in (await refused(client, "remember", content=f"The token is {secret}")).lower()


async def test_a_change_of_identity_waits_where_the_client_cannot_ask(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        result = await client.call_tool("remember", {"content": "I am kind.", "kind": "identity"})
    assert result.structured_content is not None
    assert result.structured_content["action"] == "waiting"
    assert "context-manager approve" in text(result)
    assert "I am kind." not in (tmp_path / "knowledge/identity/USER.md").read_text()
    assert len(list((tmp_path / ".local/pending").glob("*.json"))) == 1


@pytest.mark.parametrize(
    ("mode", "reply", "written", "pending"),
    [
        ("auto", ElicitResult(action="accept", content={"write": True}), True, 0),
        ("legacy", ElicitResult(action="accept", content={"write": True}), True, 0),
        ("auto", ElicitResult(action="accept", content={"write": False}), False, 0),
        ("legacy", ElicitResult(action="decline"), False, 0),
        ("auto", ElicitResult(action="cancel"), False, 1),
    ],
)
async def test_the_user_is_asked_where_the_client_can(
    tmp_path: Path, mode: Mode, reply: ElicitResult, written: bool, pending: int
) -> None:
    user = User(reply)
    async with connected(tmp_path, mode=mode, user=user) as client:
        result = await client.call_tool("remember", {"content": "I am \x1b[31mkind\u202e.", "kind": "identity"})
        await client.call_tool("remember", {"content": "The boat is blue.", "project": "global"})
    (question,) = user.asked
    assert "knowledge/identity/USER.md" in question
    assert "\x1b" not in question
    assert "\u202e" not in question
    assert ("kind" in (tmp_path / "knowledge/identity/USER.md").read_text()) is written
    folder = tmp_path / ".local/pending"
    assert len(list(folder.glob("*.json")) if folder.exists() else []) == pending
    assert result.is_error is (not written and pending == 0)


async def test_a_session_that_is_named_counts_as_this_connections(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        await say(client, "Hello", session="mine")
    async with connected(tmp_path) as client:
        await client.call_tool("remember", {"content": "The boat is blue.", "session": "mine"})
        assert await say(client, "Go on") == "mine"


async def test_notes_of_a_project_without_one_are_refused_with_what_the_caller_can_do(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        said = await refused(client, "remember", content="The API is frozen.", kind="project")
        assert "use kind 'open'" in said
        assert "NAME" not in said
        await call(client, "remember", content="The API is frozen.", kind="open")


@pytest.mark.parametrize("tool", ["observe", "remember"])
async def test_a_handle_that_no_conversation_has_is_refused(tmp_path: Path, tool: str) -> None:
    async with connected(tmp_path) as client:
        given: dict[str, object] = {"role": "user"} if tool == "observe" else {}
        said = await refused(client, tool, content="The launch is on Tuesday.", session="ses_0123456789ab", **given)
        assert "no session 'ses_0123456789ab'" in said
        assert "Leave `session` out" in said
        session = await say(client, "The launch is on Tuesday.")
        await call(client, tool, content="The launch is on Friday.", session=session, **given)
        said = await refused(client, tool, content="The launch is on Friday.", session=session[:8], **given)
        assert f"no session {session[:8]!r}; did you mean {session!r}?" in said
        other = "ses_" + ("0" if session[4] != "0" else "1")
        await call(client, tool, content="Tea at four.", session=other, **given)  # a client's own id


async def test_a_name_that_the_client_chooses_opens_a_conversation_and_the_answer_says_so(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        opened = "opened a new conversation"
        assert opened in await call(client, "observe", role="user", content="Hello", session="mine")
        assert opened not in await call(client, "observe", role="user", content="Go on", session="mine")


async def test_a_long_result_of_a_tool_is_shortened_without_its_secrets(tmp_path: Path) -> None:
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    log = "line of a log\n"
    result = f"{log * 142}{secret} {log * 1000}"
    async with connected(tmp_path) as client:
        await say(client, "Done.", role="agent", tool_calls=[{"name": "logs", "result": result}])
    (transcript,) = (tmp_path / "raw").rglob("*.md")
    (line,) = [line for line in transcript.read_text().splitlines() if "[tool:logs]" in line]
    assert line.endswith("…")
    assert len(line) < 2_050
    assert secret[:20] not in line


async def test_an_empty_message_is_refused_unless_tools_were_called(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        assert "`content` is empty" in await refused(client, "observe", role="user", content=" \n")
        assert not list((tmp_path / "raw").rglob("*.md"))
        await say(client, "", role="agent", tool_calls=[{"name": "ls"}])


async def test_anchors_are_listed_and_a_name_that_nobody_has_said_yet_is_told(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        assert await call(client, "anchor") == "Nothing is anchored."
        assert "works once one does" in await call(client, "anchor", item="ckp_zzz")
        await say(client, "Galeb is the boat.")
        assert await call(client, "anchor", item="Galeb", note="the boat") == "item galeb: anchored"
        assert "works once one does" in await call(client, "anchor", item="web_search")
        listed = (await call(client, "anchor")).splitlines()
        assert listed == ["- item tool:ckp_zzz", "- item galeb (the boat)", "- item tool:web_search"]
