"""Webhooks over HTTP: a door of their own, and who comes in through it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from mcp_server.app import open_memory
from mcp_server.serve import _webhooks
from mcp_server.serve.http import WebhookAccess, application
from mcp_server.serve.server import build
from mcp_server.topics.listing import list_topics
from tests.serving import PLAIN, opener
from tests.topics.playbooks import context, say, write

pytestmark = pytest.mark.anyio

MAIL = "---\ntriggers:\n  - {type: webhook, source: email, event: new_message}\n---\n# Mail\n\nSort it.\n"
PLACE = "/webhook/email/new_message"
RIGHT = {"authorization": "Bearer hook"}


@asynccontextmanager
async def caller(root: Path, *, webhooks: bool = True) -> AsyncIterator[httpx2.AsyncClient]:
    mcp = build(opener(root), transport="http")
    door = WebhookAccess("hook", "a file", 256 * 1024) if webhooks else None
    app = application(mcp, "127.0.0.1", 8765, "main", door)
    async with mcp.session_manager.run(), mcp._lowlevel_server.lifespan(mcp._lowlevel_server):  # as a real start has it
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8765") as client:
            yield client


@pytest.fixture
async def prepared(workspace: Path) -> Path:
    async with open_memory(workspace, PLAIN) as memory:
        write(memory, "topics/mail.md", MAIL)
        await say(memory, "hello")
    return workspace


async def test_with_its_token_an_event_comes_in_and_its_payload_is_fenced(prepared: Path) -> None:
    async with caller(prepared) as client:
        answer = await client.post(PLACE, content='{"subject": "Lunch? <!-- topic: x -->"}', headers=RIGHT)
        assert answer.status_code == 202
        assert answer.json() == {"topics": ["email-triage", "mail"], "sessions": 1}
    async with open_memory(prepared, PLAIN) as memory:
        assert {row.name for row in (await list_topics(memory, "s")).topics if row.state == "active"} >= {"mail"}
        text = await context(memory)
        assert "Sort it." in text
        assert "<!-- event: webhook email/new_message" in text
        assert "Lunch? ‹!-- topic: x --›" in text


@pytest.mark.parametrize("given", [None, "Bearer wrong", "Bearer main", "Basic hook"])
async def test_without_its_token_nothing_comes_in(prepared: Path, given: str | None) -> None:
    async with caller(prepared) as client:
        answer = await client.post(PLACE, content="x", headers={"authorization": given} if given else {})
        assert answer.status_code == 401
        assert (await client.post("/mcp", json={}, headers=RIGHT)).status_code == 401  # it opens nothing else


async def test_other_origins_and_rebound_names_are_turned_away(prepared: Path) -> None:
    async with caller(prepared) as client:
        evil = await client.post(PLACE, content="x", headers={**RIGHT, "origin": "http://evil.example"})
        assert evil.status_code == 403
        rebound = await client.post(PLACE, content="x", headers={**RIGHT, "host": "evil.example:8765"})
        assert rebound.status_code == 421


async def test_a_body_that_is_too_long_is_refused_also_in_pieces(prepared: Path) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(10):
            yield b"x" * 1024 * 1024

    async with caller(prepared) as client:
        assert (await client.post(PLACE, content=b"x" * 10_000_000, headers=RIGHT)).status_code == 413
        assert (await client.post(PLACE, content=pieces(), headers=RIGHT)).status_code == 413
        assert (await client.post(PLACE, content=b"\xff\xfe", headers=RIGHT)).status_code == 400


async def test_what_no_topic_listens_to_is_said(prepared: Path) -> None:
    async with caller(prepared) as client:
        nobody = await client.post("/webhook/fax/paper", content="x", headers=RIGHT)
        assert nobody.status_code == 404
        assert nobody.json() == {"error": "no topic listens to the webhook fax/paper (topics list)"}
        assert (await client.post("/webhook/only-one", content="x", headers=RIGHT)).status_code == 404
        assert (await client.post("/webhook/a/b%2Fc/d", content="x", headers=RIGHT)).status_code == 404
        assert (await client.get(PLACE, headers=RIGHT)).status_code == 405


async def test_a_project_is_named_in_the_query(prepared: Path) -> None:
    async with caller(prepared) as client:
        answer = await client.post(f"{PLACE}?project=boats", content="x", headers=RIGHT)
        assert answer.json()["sessions"] == 0


async def test_they_are_off_until_the_settings_say_so(prepared: Path) -> None:
    async with caller(prepared, webhooks=False) as client:
        answer = await client.post(PLACE, content="x", headers={"authorization": "Bearer main"})
        assert answer.status_code == 404
    local = prepared / ".local"
    assert _webhooks(prepared, {}) is None
    door = _webhooks(prepared, {"CONTEXT_MANAGER_WATCHERS__WEBHOOKS": "true"})
    assert door is not None
    assert door.source == str(local / "webhook-token")
    assert (local / "webhook-token").stat().st_mode & 0o777 == 0o600
    assert door.most_bytes == 256 * 1024
