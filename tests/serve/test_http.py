"""HTTP: who may come in."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import count
from pathlib import Path

import httpx2
import pytest

from mcp_server.app import open_memory
from mcp_server.errors import ContextManagerError, Refused
from mcp_server.serve import Serving, _webhooks, main, run
from mcp_server.serve.http import WebhookAccess, application, bound, refuse_unprotected, token_of
from mcp_server.serve.server import build
from mcp_server.topics.listing import list_topics
from tests.end_to_end.killed import Killed
from tests.preloaded import python
from tests.serving import PLAIN, ROOT, opener
from tests.topics.playbooks import context, say, write

pytestmark = pytest.mark.anyio

PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


@asynccontextmanager
async def browser(
    root: Path, token: str | None, host: str = "127.0.0.1", webhooks: WebhookAccess | None = None
) -> AsyncIterator[httpx2.AsyncClient]:
    mcp = build(opener(root), transport="http")
    app = application(mcp, host, 8765, token, webhooks)
    async with mcp.session_manager.run(), mcp._lowlevel_server.lifespan(mcp._lowlevel_server):  # as a real start has it
        transport = httpx2.ASGITransport(app=app)
        headers = {"accept": "application/json, text/event-stream"}
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8765", headers=headers) as client:
            yield client


async def test_without_the_token_nothing_is_answered(tmp_path: Path) -> None:
    wrong = (None, "Bearer wrong", "Bearer", "Basic right", "Bearer right right", "right", "Bearer rightč".encode())
    async with browser(tmp_path, "right") as client:
        for given in wrong:
            headers = {} if given is None else {"authorization": given}
            for path in ("/mcp", "/.well-known/oauth-protected-resource"):
                answer = await client.post(path, json=PING, headers=headers)  # type: ignore[arg-type]
                assert answer.status_code == 401, given
                assert answer.headers["www-authenticate"].startswith("Bearer")


async def test_the_token_opens_the_page_in_a_browser(tmp_path: Path) -> None:
    own = {"sec-fetch-site": "same-origin", "origin": "http://127.0.0.1:8765"}
    async with browser(tmp_path, "right") as client:
        assert (await client.get("/now")).status_code == 303
        assert (await client.post("/", json=PING, headers={"authorization": "Bearer right"})).status_code == 403
        assert (await client.post("/open", content="wrong", headers=own)).status_code == 403
        answer = await client.post("/open", content="right", headers=own)
        assert answer.headers["set-cookie"].startswith("cm-8765=")
    async with browser(tmp_path, None) as client:  # without a token nobody could be told from anybody
        assert (await client.get("/open")).status_code == 404


async def test_with_the_token_the_server_answers(tmp_path: Path) -> None:
    async with browser(tmp_path, "right") as client:
        for given in ("Bearer right", "bearer right"):
            answer = await client.post("/mcp", json=INITIALIZE, headers={"authorization": given})
            assert answer.status_code == 200, given


INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}


async def test_a_page_of_another_origin_and_a_rebound_name_are_turned_away(tmp_path: Path) -> None:
    async with browser(tmp_path, None) as client:
        assert (await client.post("/mcp", json=INITIALIZE)).status_code == 200
        assert (await client.post("/mcp", json=INITIALIZE, headers={"host": "evil.example:8765"})).status_code == 421
        assert (await client.post("/mcp", json=INITIALIZE, headers={"host": "127.0.0.1:99"})).status_code == 421
        assert (
            await client.post("/mcp", json=INITIALIZE, headers={"origin": "http://evil.example"})
        ).status_code == 403
        near = {"origin": "http://127.0.0.1:3000"}
        assert (await client.post("/mcp", json=INITIALIZE, headers=near)).status_code == 403


async def test_beyond_loopback_the_servers_own_name_is_answered_and_no_other(tmp_path: Path) -> None:
    async with browser(tmp_path, None, host="192.0.2.7") as client:
        assert (await client.post("/mcp", json=INITIALIZE, headers={"host": "192.0.2.7:8765"})).status_code == 200
        assert (await client.post("/mcp", json=INITIALIZE, headers={"host": "evil.example:8765"})).status_code == 421


def test_the_token_is_the_option_else_the_environment_else_a_file_of_the_users_own(tmp_path: Path) -> None:
    kept = tmp_path / ".local" / "http-token"
    assert token_of("given", {"CONTEXT_MANAGER_TOKEN": "set"}, kept) == ("given", "--token")
    assert token_of(None, {"CONTEXT_MANAGER_TOKEN": "set"}, kept) == ("set", "CONTEXT_MANAGER_TOKEN")
    made, source = token_of(None, {}, kept)
    assert len(made) > 30
    assert source == str(kept)
    assert kept.stat().st_mode & 0o777 == 0o600
    assert token_of(None, {}, kept) == (made, source)


def test_a_token_file_that_is_empty_is_named(tmp_path: Path) -> None:
    kept = tmp_path / "http-token"
    kept.touch()
    with pytest.raises(Refused, match="delete it"):
        token_of(None, {}, kept)


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="the superuser may write everywhere")
def test_a_token_that_cannot_be_kept_is_asked_for(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(ContextManagerError, match="CONTEXT_MANAGER_TOKEN"):
        token_of(None, {}, tmp_path / "http-token")


def test_no_token_is_for_loopback_only(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    refuse_unprotected("127.0.0.1", False)
    refuse_unprotected("0.0.0.0", True)
    for host in ("0.0.0.0", "192.0.2.7", "example.org"):
        with pytest.raises(Refused, match="loopback"):
            refuse_unprotected(host, False)
    with pytest.raises(Refused):
        run(Serving(tmp_path, http=True, host="0.0.0.0", ask_token=False), {})
    assert main(["--workspace", str(tmp_path), "--http", "--host", "0.0.0.0", "--no-token"], {}) == 1
    shown = capsys.readouterr()
    assert "loopback" in shown.err
    assert shown.out == ""


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_a_kill_while_the_token_is_made_leaves_none_or_a_whole_one(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from mcp_server.serve.http import token_of;"
        "Path(sys.argv[2]).touch(); token_of(None, {}, Path(sys.argv[1]))"
    )
    for at in count(1):
        kept, killed = tmp_path / str(at) / "http-token", Killed(tmp_path / f"kill-{at}")
        kept.parent.mkdir()
        command = [*python("-c", script), str(kept), str(tmp_path / f"kill-{at}" / "armed")]
        run = subprocess.run(command, env={**os.environ, **killed.env(at)}, cwd=ROOT, check=False)
        token, _ = token_of(None, {}, kept)
        assert len(token) > 20
        assert token_of(None, {}, kept)[0] == token
        if run.returncode != -signal.SIGKILL:  # it has fewer writes
            break
    assert run.returncode == 0
    assert at > 2


HEAD = "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:%s\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n"
HASTY = """
import os, sys
from mcp_server.serve import http, main
http.REQUEST_SECONDS = 0.1
sys.exit(main(sys.argv[1:], os.environ))
"""


def test_a_connection_with_half_a_request_is_closed(tmp_path: Path) -> None:
    arguments = ["--workspace", str(tmp_path / "memory"), "--http", "--port", "0", "--no-token"]
    command = python("-c", HASTY, *arguments)
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            shown = re.search(r"http://127\.0\.0\.1:(\d+)/mcp", process.stderr.readline())
            assert shown
            port = int(shown[1])
            for sent in ("", HEAD[:40], HEAD % port + "{"):
                with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
                    connection.sendall(sent.encode())
                    assert connection.recv(1000) == b"", sent
        finally:
            process.kill()


MAIL = "---\ntriggers:\n  - {type: webhook, source: email, event: new_message}\n---\n# Mail\n\nSort it.\n"
PLACE = "/webhook/email/new_message"
RIGHT = {"authorization": "Bearer hook"}


def caller(root: Path) -> AbstractAsyncContextManager[httpx2.AsyncClient]:
    return browser(root, "main", webhooks=WebhookAccess("hook", "a file", 256 * 1024))


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


async def test_without_its_token_nothing_comes_in(prepared: Path) -> None:
    async with caller(prepared) as client:
        for given in (None, "Bearer wrong", "Bearer main", "Basic hook"):
            answer = await client.post(PLACE, content="x", headers={"authorization": given} if given else {})
            assert answer.status_code == 401, given
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
    async with browser(prepared, "main") as client:
        answer = await client.post(PLACE, content="x", headers={"authorization": "Bearer main"})
        assert answer.status_code == 404
    local = prepared / ".local"
    assert _webhooks(prepared, {}) is None
    door = _webhooks(prepared, {"CONTEXT_MANAGER_WATCHERS__WEBHOOKS": "true"})
    assert door is not None
    assert door.source == str(local / "webhook-token")
    assert (local / "webhook-token").stat().st_mode & 0o777 == 0o600
    assert door.most_bytes == 256 * 1024


async def test_answers_are_sent_at_once_however_short_they_are() -> None:
    without_delay: list[int] = []

    async def look(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = writer.get_extra_info("socket")
        without_delay.append(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    with bound("127.0.0.1", 0) as listening:
        async with await asyncio.start_server(look, sock=listening):
            reader, writer = await asyncio.open_connection(*listening.getsockname())
            await reader.read()
            writer.close()
    assert without_delay == [1]
