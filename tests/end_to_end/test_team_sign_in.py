"""Signing in to a team's memory at a real authorization server, with the SDK's client: oidc-provider, in Node."""

from __future__ import annotations

import os
import re
import socket
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urljoin, urlsplit

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from mcp.shared.exceptions import MCPError
from pydantic import AnyUrl

from mcp_server.serve.oauth import LEEWAY_SECONDS
from tests.end_to_end.claude import usable_claude
from tests.end_to_end.node import usable_node
from tests.end_to_end.replicas import Replica, http_client, operator, replicas
from tests.issuing import AUDIENCE
from tests.postgres import server
from tests.serving import call

pytestmark = pytest.mark.anyio
BACK = "http://127.0.0.1:1/callback"


@pytest.fixture(scope="module")
def login() -> Iterator[str]:
    """Yields the issuer of a running authorization server."""
    node = usable_node()
    script = Path(__file__).with_name("authorization_server.mjs")
    process = subprocess.Popen(
        [str(node.binary), str(script)],
        cwd=node.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    yield process.stdout.readline().strip()
    process.terminate()
    process.communicate()


@pytest.fixture(scope="module")
def address() -> str:
    return server().new_database()


@pytest.fixture(scope="module")
def team(address: str, login: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Replica]]:
    environ = {"CONTEXT_MANAGER_OAUTH_ISSUER": login, "CONTEXT_MANAGER_PUBLIC_URL": AUDIENCE}
    with replicas(address, tmp_path_factory.mktemp("signed"), environ) as running:
        yield running


class Kept:
    """The client's tokens, in memory."""

    tokens: OAuthToken | None = None
    client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


class Browser:
    """A person with a browser: opens the address, fills in the forms, and is sent back with a code."""

    def __init__(self, who: str) -> None:
        self.who = who
        self.opened = ""

    async def open(self, url: str) -> None:
        self.opened = url

    async def come_back(self) -> AuthorizationCodeResult:
        async with httpx2.AsyncClient() as http:
            answer = await http.get(self.opened)
            while True:
                if answer.is_redirect:
                    url = urljoin(str(answer.url), answer.headers["location"])
                    if url.startswith(BACK):
                        break
                    answer = await http.get(url)
                    continue
                form = re.search(r'<form[^>]* action="([^"]+)" method="post"', answer.text)
                assert form, answer.text
                prompt = "login" if 'name="login"' in answer.text else "consent"
                fields = {"prompt": prompt, "login": self.who, "password": "any"}
                answer = await http.post(urljoin(str(answer.url), form[1]), data=fields)
        given = parse_qs(urlsplit(url).query)
        return AuthorizationCodeResult(code=given["code"][0], state=given["state"][0], iss=given["iss"][0])


async def test_a_person_signs_in_with_a_code_and_works_until_the_membership_ends(
    login: str, address: str, team: list[Replica]
) -> None:
    browser, kept = Browser("anna"), Kept()
    asked = OAuthClientMetadata(
        client_name="test-agent", redirect_uris=[AnyUrl(BACK)], token_endpoint_auth_method="none", scope="memory"
    )
    url = f"{AUDIENCE}/atlas"
    provider = OAuthClientProvider(url, asked, kept, browser.open, browser.come_back)

    operator(address, "atlas", login, "members", "add", "anna")
    async with http_client(team, auth=provider) as http, Client(streamable_http_client(url, http_client=http)) as anna:
        given = parse_qs(urlsplit(browser.opened).query)
        assert given["code_challenge_method"] == ["S256"]
        assert given["resource"] == [AUDIENCE]
        assert "memory" in given["scope"][0].split()
        await call(anna, "remember", content="Atlas ships its maps in May.")
        operator(address, "atlas", login, "members", "remove", "anna", "--apply")
        with pytest.raises(MCPError, match="not a member of the workspace 'atlas'"):
            await anna.call_tool("status", {})


async def token_of(login: str, client: str, **asked: str) -> str:
    """Returns a token that a program gets with its secret."""
    async with httpx2.AsyncClient(auth=(client, "secret")) as http:
        answer = await http.post(f"{login}/token", data={"grant_type": "client_credentials", **asked})
    return str(answer.json()["access_token"])


async def test_claude_code_takes_the_addresses_and_asks_to_sign_in(login: str, address: str, tmp_path: Path) -> None:
    claude = usable_claude()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}/mcp"
    environ = {"CONTEXT_MANAGER_OAUTH_ISSUER": login, "CONTEXT_MANAGER_PUBLIC_URL": url}
    quiet = ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_TELEMETRY", "DISABLE_AUTOUPDATER")
    home = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), **dict.fromkeys(quiet, "1")}

    async def ran(*arguments: str) -> str:
        done = await anyio.run_process([str(claude), "mcp", *arguments], env=home, cwd=str(tmp_path))
        return done.stdout.decode()

    with replicas(address, tmp_path, environ, 1, port):
        token = await token_of(login, "bot", scope="memory", resource=url)
        await ran("add", "--transport", "http", "atlas", f"{url}/atlas")
        await ran("add", "--transport", "http", "own", url, "--header", f"Authorization: Bearer {token}")
        listed = (await ran("list")).splitlines()
    (atlas,) = [line for line in listed if line.startswith("atlas:")]
    (own,) = [line for line in listed if line.startswith("own:")]
    assert "Needs authentication" in atlas
    assert "Connected" in own


async def test_tokens_of_programs_are_checked_for_audience_scope_and_age(login: str, team: list[Replica]) -> None:
    token = partial(token_of, login)

    async def tried(token: str) -> tuple[int, str]:
        ping: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        accept = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-11-25"}
        async with http_client(team, token) as http:
            answer = await http.post(AUDIENCE, json=ping, headers=accept)
            return answer.status_code, answer.headers.get("www-authenticate", "")

    brief = await token("brief", scope="memory", resource=AUDIENCE)
    got = anyio.current_time()
    assert (await tried(await token("bot", scope="memory", resource=AUDIENCE)))[0] == 200
    status, challenge = await tried(await token("bot", scope="memory", resource="https://other.example.org/mcp"))
    assert status == 401
    assert f"the token is not for {AUDIENCE}" in challenge
    status, challenge = await tried(await token("bot", resource=AUDIENCE))
    assert status == 403
    assert "insufficient_scope" in challenge
    await anyio.sleep(got + 1 + LEEWAY_SECONDS + 1 - anyio.current_time())
    status, challenge = await tried(brief)
    assert status == 401
    assert "the token has expired" in challenge
    assert "resource_metadata=" in challenge
