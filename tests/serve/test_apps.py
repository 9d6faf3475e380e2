"""The MCP App: what clients with and without views get, and that only the user decides about proposed changes."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path

import pytest
from mcp.server.apps import APP_MIME_TYPE
from mcp.shared.exceptions import MCPError
from mcp.types import CallToolResult, TextResourceContents

from tests.serving import ERAS, Mode, connected, say, text

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("fast_notes")]

VIEW = "ui://context-manager/view.html"
IDENTITY = {"content": "Call me Vesna.", "kind": "identity", "project": "global"}


def html(result: CallToolResult) -> str:
    """The HTML for the view in a result."""
    return str((result.meta or {})["context-manager/html"])


def key(result: CallToolResult) -> dict[str, object]:
    """The arguments with which the view approves the first change that it shows."""
    found = re.search(r'data-change="([^"]+)" data-key="([^"]+)" data-approve="yes"', html(result))
    assert found is not None
    return {"change": found[1], "key": found[2], "approve": True}


@pytest.mark.parametrize("mode", ERAS)
async def test_a_client_with_views_gets_the_receipt_and_the_model_the_same_text(tmp_path: Path, mode: Mode) -> None:
    async with connected(tmp_path, mode=mode, views=True) as client:
        session = await say(client, "The blue boat is kept in the harbor of Senj.", delivery="replace")
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert tools["compile_context"].meta == {"ui": {"resourceUri": VIEW}, "ui/resourceUri": VIEW}
        assert (tools["decide_change"].meta or {})["ui"]["visibility"] == ["app"]
        (document,) = (await client.read_resource(VIEW)).contents
        assert isinstance(document, TextResourceContents)
        assert document.mime_type == APP_MIME_TYPE
        compiled = await client.call_tool("compile_context", {"message": "Where is the boat?", "session": session})
        whole = await client.call_tool("compile_context", {})
    assert "harbor of Senj" in unescape(html(compiled))
    assert '<svg class="bar' in html(compiled)
    assert "tokens</h1>" in html(whole)
    async with connected(tmp_path, mode=mode) as client:
        plain = await client.call_tool("compile_context", {"message": "Where is the boat?", "session": session})
    assert text(plain) == text(compiled)
    assert "context-manager/html" not in (plain.meta or {})


@pytest.mark.parametrize("mode", ERAS)
async def test_a_client_without_views_neither_sees_the_tool_that_decides_nor_can_call_it(
    tmp_path: Path, mode: Mode
) -> None:
    async with connected(tmp_path, mode=mode, profile="full") as client:
        done = await client.call_tool("remember", IDENTITY)
        assert "decide_change" not in {tool.name for tool in (await client.list_tools()).tools}
        assert VIEW not in {str(one.uri) for one in (await client.list_resources()).resources}
        with pytest.raises(MCPError, match="Unknown tool: decide_change"):
            await client.call_tool("decide_change", {"change": "x", "key": "y", "approve": True})
    assert done.structured_content is not None
    assert done.structured_content["action"] == "waiting"


async def test_the_user_approves_a_change_in_the_view(tmp_path: Path) -> None:
    async with connected(tmp_path, views=True) as client:
        asked = await client.call_tool("remember", IDENTITY)
        assert "Call me Vesna." in html(asked)
        done = await client.call_tool("decide_change", key(asked))
        assert not done.is_error
        assert "The user approved" in text(done)
        again = await client.call_tool("decide_change", key(asked))
        assert again.is_error
    assert "Call me Vesna." in (tmp_path / "knowledge/identity/USER.md").read_text()


async def test_the_user_rejects_a_change_in_the_view(tmp_path: Path) -> None:
    async with connected(tmp_path, views=True) as client:
        asked = await client.call_tool("remember", IDENTITY)
        done = await client.call_tool("decide_change", {**key(asked), "approve": False})
        assert "stays as it is" in text(done)
    assert not list((tmp_path / ".local/pending").glob("*.json"))
    assert "Call me Vesna." not in (tmp_path / "knowledge/identity/USER.md").read_text()


async def test_after_a_decision_the_view_shows_the_other_changes_as_they_are_now(tmp_path: Path) -> None:
    async with connected(tmp_path, views=True) as client:
        await client.call_tool("remember", IDENTITY)
        asked = await client.call_tool("remember", {**IDENTITY, "content": "I live in Graz."})
        first = await client.call_tool("decide_change", key(asked))
        second = await client.call_tool("decide_change", key(first))
        assert not second.is_error
        assert "data-change" not in html(second)
    text_now = (tmp_path / "knowledge/identity/USER.md").read_text()
    assert "Call me Vesna." in text_now
    assert "I live in Graz." in text_now


async def test_nothing_that_a_model_sees_approves_a_change(tmp_path: Path) -> None:
    async with connected(tmp_path, views=True) as client:
        asked = await client.call_tool("remember", IDENTITY)
        right = key(asked)
        seen = text(asked) + json.dumps(asked.structured_content)
        assert str(right["key"]) not in seen
        for wrong in ("", "0" * 64, str(right["change"]), *re.findall(r"\b[0-9a-f]{8,64}\b", seen)):
            refused = await client.call_tool("decide_change", {**right, "key": wrong})
            assert refused.is_error
            assert "only the user decides" in text(refused)
    assert "Call me Vesna." not in (tmp_path / "knowledge/identity/USER.md").read_text()


async def test_a_change_is_approved_only_as_it_was_shown(tmp_path: Path) -> None:
    async with connected(tmp_path, views=True) as client:
        asked = await client.call_tool("remember", IDENTITY)
        page = tmp_path / "knowledge/identity/USER.md"
        page.write_text(page.read_text() + "\n- I live in Graz.\n")
        refused = await client.call_tool("decide_change", key(asked))
        assert refused.is_error
        assert "not the one that was shown" in text(refused)
        shown = await client.call_tool("remember", {"content": "The boat is blue.", "project": "global"})
        assert "The file has changed since" in html(shown)
        assert not (await client.call_tool("decide_change", key(shown))).is_error
    assert "Call me Vesna." in page.read_text()


async def test_stored_text_is_never_markup_in_a_view(tmp_path: Path) -> None:
    hostile = "<img src=x onerror=alert(1)> </style><script>alert(2)</script> {{ 7*7 }} boat"
    async with connected(tmp_path, views=True) as client:
        session = await say(client, hostile, delivery="replace")
        compiled = await client.call_tool("compile_context", {"message": "boat", "session": session})
        written = await client.call_tool("remember", {"content": hostile, "kind": "identity", "project": "global"})
    for result in (compiled, written):
        assert "boat" in html(result)
        assert re.findall(r"<(?:img|script|/style)|<[^>]* on\w+=", html(result)) == []
        assert " 49 " not in html(result)
