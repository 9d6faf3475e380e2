"""A team's server in this process: limits, other sites, health, and workspaces that open and close."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anyio
import httpx2
import psycopg
import pytest
import uvicorn
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import SubscriptionLost

from mcp_server.app import open_members, open_memory
from mcp_server.home import address_of
from mcp_server.memory import Memory
from mcp_server.serve import gate, http, team
from mcp_server.serve.oauth import settings_of
from mcp_server.storage.members import Members
from tests.conftest import KEYWORDS_ONLY
from tests.end_to_end.servers import eventually
from tests.issuing import Issuer, issuer
from tests.postgres import server

pytestmark = pytest.mark.anyio

PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
ACCEPT = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-11-25"}


@pytest.fixture(scope="module")
def login() -> Iterator[Issuer]:
    with issuer() as running:
        yield running


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server gives up on its database soon, but later than its probe of readiness does."""
    monkeypatch.setattr("mcp_server.storage.postgres.members.SECONDS", 2.5)


@pytest.fixture
def members() -> Iterator[Members]:
    with open_members(server().new_database()) as members:
        yield members


@asynccontextmanager
async def served(members: Members, login: Issuer, limits: team.Limits) -> AsyncIterator[str]:
    """Yields the address of a running server."""
    address = members._address.connection  # type: ignore[attr-defined]

    def enter(workspace: str) -> AbstractAsyncContextManager[Memory]:
        return open_memory(address_of(address, workspace), KEYWORDS_ONLY)

    app = team.application(team.build(members, enter, "core"), settings_of(login.environment()), members, limits)
    running = uvicorn.Server(uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=1))
    with http.bound("127.0.0.1", 0) as listening:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(running.serve, [listening])
            try:
                yield f"http://127.0.0.1:{listening.getsockname()[1]}"
            finally:
                running.should_exit = True


@asynccontextmanager
async def client_of(base: str, token: str, workspace: str) -> AsyncIterator[Client]:
    async with (
        httpx2.AsyncClient(headers={"authorization": f"Bearer {token}"}, timeout=60) as http_client,
        Client(streamable_http_client(f"{base}/mcp/{workspace}", http_client=http_client)) as client,
    ):
        yield client


async def test_too_many_calls_and_pages_of_other_sites_are_refused(members: Members, login: Issuer) -> None:
    anna, bob = ({**ACCEPT, "authorization": f"Bearer {login.token(who)}"} for who in ("anna", "bob"))
    async with served(members, login, team.Limits(12)) as base, httpx2.AsyncClient() as client:
        for headers, status in (
            ({**anna, "origin": "https://evil.example.org"}, 403),
            ({**anna, "origin": "http://127.0.0.1:8765"}, 200),
            (anna, 200),
            (anna, 429),
            (bob, 200),
        ):
            answer = await client.post(f"{base}/mcp", json=PING, headers=headers)
            assert answer.status_code == status, answer.text
            if status == 429:
                assert int(answer.headers["retry-after"]) <= 5
                assert "over 12 calls a minute" in answer.text
        for method in ("GET", "DELETE"):
            answer = await client.request(method, f"{base}/mcp", headers=anna)
            assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
            assert (await client.request(method, f"{base}/mcp")).status_code == 401


@pytest.mark.usefixtures("impatient")
async def test_a_server_without_its_database_is_alive_but_not_ready_and_does_not_name_it(
    members: Members, login: Issuer
) -> None:
    database = members._address.connection  # type: ignore[attr-defined]
    name = database.partition("@/")[2].partition("?")[0]
    async with served(members, login, team.Limits(600)) as base, httpx2.AsyncClient(timeout=60) as client:
        assert (await client.get(f"{base}/readyz")).status_code == 200
        headers = {**ACCEPT, "authorization": f"Bearer {login.token('anna')}"}

        async def told(method: str, **params: Any) -> str:
            request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            return (await client.post(f"{base}/mcp", json=request, headers=headers)).text

        path = "knowledge/memory/MEMORY.md"
        assert "Core Memory" in await told("tools/call", name="read", arguments={"path": path})
        with psycopg.connect(database, autocommit=True) as administrator:
            administrator.execute("ALTER TABLE context_manager.file RENAME TO elsewhere")
        said = [await told("tools/call", name="read", arguments={"path": path})]
        said.append(await told("resources/read", uri=f"memory://{path}"))
        with psycopg.connect(server().address("postgres"), autocommit=True) as administrator:
            administrator.execute(f"DROP DATABASE {name} WITH (FORCE)")
        assert (await client.get(f"{base}/readyz")).status_code == 503
        assert (await client.get(f"{base}/healthz")).status_code == 200
        for answer in (*said, await told("ping")):
            assert "the database of this memory failed" in answer
            assert "postgres" not in answer


async def test_whoever_listens_is_sent_away_when_the_membership_ends(
    members: Members, login: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "RECHECK_SECONDS", 0.1)
    members.add("main", login.url, "anna", "reader")
    async with (
        served(members, login, team.Limits(600)) as base,
        client_of(base, login.token("anna"), "main") as anna,
        anna.listen(resource_subscriptions=["context://status"]) as events,
    ):
        members.remove("main", "anna")
        with anyio.fail_after(60), pytest.raises(SubscriptionLost):
            await _last(events)


def test_logs_have_no_content() -> None:
    def line(name: str, message: str, *values: object) -> dict[str, Any]:
        record = logging.LogRecord(name, logging.ERROR, "/lib/other.py", 7, message, values, None)
        found: dict[str, Any] = json.loads(team.JsonLines().format(record))
        return found

    assert line("mcp_server.storage.x", "%d notices", 3)["message"] == "3 notices"
    assert line("mcp_server.knowledge.x", "left out: %s", "Zanzibar")["message"] == "left out: %s"
    assert line("mcp.server", "bad request: Zanzibar %s", "Leopold")["message"] == "other.py:7"
    try:
        raise ValueError("Zanzibar")
    except ValueError as error:
        made = logging.LogRecord("x", 40, "x.py", 1, "m", (), (ValueError, error, error.__traceback__))
        said = team.JsonLines().format(made)
    assert "Zanzibar" not in said
    assert json.loads(said)["exception"] == "ValueError"
    assert "test_team.py" in json.loads(said)["where"]


async def _last(events: AsyncIterator[object]) -> None:
    async for _ in events:
        pass


async def test_a_workspace_closes_when_nobody_uses_it_and_opens_again(
    members: Members, login: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "IDLE_SECONDS", 0.0)
    opened: list[str] = []
    address = members._address.connection  # type: ignore[attr-defined]

    @asynccontextmanager
    async def enter(name: str) -> AsyncIterator[Memory]:
        opened.append(name)
        async with open_memory(address_of(address, name), KEYWORDS_ONLY) as memory:
            yield memory
        opened.append(f"{name} closed")

    several = gate.Workspaces(enter)
    async with several.running():
        used = several.hold("main")
        await used.opening.memory()
        await anyio.sleep(1.5)
        assert opened == ["main"]
        several.release(used)
        await eventually(lambda: opened == ["main", "main closed"])
        used = several.hold("main")
        assert (await used.opening.memory()).files.exists("memory-config.yaml")
        several.release(used)
    assert opened[:3] == ["main", "main closed", "main"]
