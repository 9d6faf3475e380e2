"""OAuth: whose token opens a team's memory, and what everybody else is told."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import httpx2
import jwt
import pytest
from starlette.responses import PlainTextResponse

from mcp_server.errors import Invalid
from mcp_server.serve import Serving, run
from mcp_server.serve.oauth import Verifier, guarded, settings_of, signed_in
from mcp_server.serve.team import Limits
from tests.issuing import AUDIENCE, Issuer, issuer

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

pytestmark = pytest.mark.anyio
METADATA = "http://127.0.0.1:8765/.well-known/oauth-protected-resource/mcp"


@pytest.fixture
def login() -> Iterator[Issuer]:
    with issuer() as running:
        yield running


@asynccontextmanager
async def door(login: Issuer, **environ: str) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of an application that tells who has come in."""
    oauth = settings_of({**login.environment(), **environ})

    async def tell(scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse(f"{signed_in().subject} {signed_in().name}".strip())(scope, receive, send)

    transport = httpx2.ASGITransport(app=guarded(tell, oauth, Verifier(oauth)))
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8765") as client:
        yield client


async def tried(client: httpx2.AsyncClient, token: str) -> httpx2.Response:
    return await client.post("/mcp", headers={"authorization": f"Bearer {token}"})


async def test_a_token_of_the_issuer_for_this_memory_opens_it(login: Issuer) -> None:
    async with door(login) as client:
        assert (await tried(client, login.token("anna", name="Anna Berg"))).text == "anna Anna Berg"
        assert (await tried(client, login.token("anna", aud=["other", AUDIENCE]))).text == "anna"
        assert (await tried(client, login.token("bot", scope=None, scp=["memory", "mail"]))).text == "bot"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"aud": "https://other.example.org/mcp"}, "is not for http://127.0.0.1:8765/mcp"),
        ({"aud": None}, "malformed"),
        ({"iss": "https://other.example.org"}, "is not from"),
        ({"exp": int(time.time()) - 60}, "has expired"),
        ({"exp": None}, "malformed"),
        ({"nbf": int(time.time()) + 86_400}, "malformed"),
        ({"sub": None}, "malformed"),
        ({"kid": "unknown"}, "malformed"),
    ],
)
async def test_any_other_token_is_refused_with_its_reason_and_where_to_sign_in(
    login: Issuer, changed: dict[str, object], said: str
) -> None:
    async with door(login) as client:
        answer = await tried(client, login.token("anna", **changed))  # type: ignore[arg-type]
    assert answer.status_code == 401
    assert said in answer.json()["error_description"]
    challenge = answer.headers["www-authenticate"]
    assert challenge.startswith("Bearer ")
    assert f'resource_metadata="{METADATA}"' in challenge
    assert 'error="invalid_token"' in challenge


async def test_a_token_that_is_signed_with_what_everybody_knows_is_refused(login: Issuer) -> None:
    claims = jwt.decode(login.token("anna"), options={"verify_signature": False})
    async with door(login) as client:
        for algorithm, key in (("HS256", "x" * 32), ("none", "")):
            forged = jwt.encode(claims, key, algorithm, {"kid": "first"})
            assert (await tried(client, forged)).status_code == 401
        for other in ("", "x", "a.b.c", f"{login.token('anna')}x"):
            assert (await tried(client, other)).status_code == 401


async def test_without_a_token_the_answer_says_where_to_sign_in_and_names_no_error(login: Issuer) -> None:
    async with door(login) as client:
        for given in ({}, {"authorization": "Basic YTpi"}):
            answer = await client.post("/mcp", headers=given)
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == f'Bearer resource_metadata="{METADATA}", scope="memory"'


async def test_a_token_without_the_scope_is_told_which_one_it_lacks(login: Issuer) -> None:
    async with door(login, CONTEXT_MANAGER_OAUTH_SCOPES="memory team") as client:
        answer = await tried(client, login.token("anna"))
        assert answer.status_code == 403
        assert 'error="insufficient_scope"' in answer.headers["www-authenticate"]
        assert 'scope="memory team"' in answer.headers["www-authenticate"]
        assert answer.json()["error_description"] == "the token lacks the scope team"
        assert (await tried(client, login.token("anna", scope="team memory"))).status_code == 200


async def test_keys_are_fetched_once_and_again_for_a_new_key(login: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    moment = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: moment)
    async with door(login) as client:
        for _ in range(3):
            assert (await tried(client, login.token("anna"))).status_code == 200
        assert login.asked == 1
        for _ in range(3):  # whoever invents keys cannot make this server ask again and again
            assert (await tried(client, login.token("anna", "second"))).status_code == 401
        assert login.asked == 1
        login.kids = ["second"]
        moment += 31
        assert (await tried(client, login.token("anna", "second"))).status_code == 200
        assert (await tried(client, login.token("anna", "first"))).status_code == 401


async def test_while_the_issuer_does_not_answer_nobody_is_blamed(login: Issuer) -> None:
    async with door(login, CONTEXT_MANAGER_OAUTH_ISSUER="http://127.0.0.1:9") as client:
        answer = await tried(client, login.token("anna"))
    assert answer.status_code == 503
    assert "http://127.0.0.1:9" in answer.json()["error_description"]


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({}, "CONTEXT_MANAGER_OAUTH_ISSUER"),
        ({"CONTEXT_MANAGER_OAUTH_ISSUER": "https://login.example.org"}, "CONTEXT_MANAGER_PUBLIC_URL"),
        ({"CONTEXT_MANAGER_OAUTH_ISSUER": "http://login.example.org"}, "https://"),
        (
            {
                "CONTEXT_MANAGER_OAUTH_ISSUER": "https://login.example.org",
                "CONTEXT_MANAGER_PUBLIC_URL": "https://memory.example.org",
            },
            "needs a path",
        ),
    ],
)
def test_the_server_does_not_start_without_sign_in(environ: dict[str, str], said: str) -> None:
    with pytest.raises(Invalid, match=said):
        run(Serving("postgresql://nobody@127.0.0.1:1/none", http=True), environ)


def test_a_shared_token_does_not_replace_sign_in() -> None:
    for serving in (
        Serving("postgresql://nobody@127.0.0.1:1/none", http=True, token="x"),
        Serving("postgresql://nobody@127.0.0.1:1/none", http=True, ask_token=False),
    ):
        with pytest.raises(Invalid, match="sign in with OAuth"):
            run(serving, {})


def test_a_principal_may_make_so_many_calls_a_minute() -> None:
    limits = Limits(60)
    anna, bob = ("issuer", "anna"), ("issuer", "bob")
    assert [limits.wait(anna, 0.0) for _ in range(10)] == [0.0] * 10
    assert limits.wait(anna, 0.0) == 1.0
    assert limits.wait(bob, 0.0) == 0.0
    assert limits.wait(anna, 0.5) == 0.5
    assert limits.wait(anna, 1.0) == 0.0
    assert limits.wait(anna, 1.0) == 1.0
    assert [limits.wait(anna, 1000.0) for _ in range(11)] == [0.0] * 10 + [1.0]
