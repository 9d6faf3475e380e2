"""Random calls of one principal with the identifiers of another one: no answer has anything of the other's memory, or
tells whether something exists in it."""

from __future__ import annotations

import os
import random
import re
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import anyio
import httpx2
import pytest

from tests.end_to_end.replicas import Replica, connected, http_client, operator, replicas
from tests.issuing import AUDIENCE, Issuer, issuer
from tests.postgres import server
from tests.serving import call, say

pytestmark = pytest.mark.anyio

CALLS = int(os.environ.get("CM_TENANCY_CALLS", "200"))
"""The long run has 10,000 calls (docs/team.md)."""

SECRETS = ("zanzibar", "quagmire", "marzipan", "leopold")
"""Words that are only in the memories of anna."""

HEADERS = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-11-25"}


@dataclass
class Other:
    """What a stranger could have heard of anna's memories: names, but no content."""

    workspaces: list[str] = field(default_factory=list)
    sessions: list[str] = field(default_factory=list)
    checkpoints: list[str] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        return [*self.workspaces, *self.sessions, *self.checkpoints, *self.paths]


@pytest.fixture(scope="module")
def login() -> Iterator[Issuer]:
    with issuer() as running:
        yield running


@pytest.fixture(scope="module")
def team(login: Issuer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Replica]]:
    address = server().new_database()
    for who, workspace in (("anna", "atlas"), ("mallory", "beta")):
        operator(address, workspace, login.url, "members", "add", who, "--role", "owner")
    with replicas(address, tmp_path_factory.mktemp("tenancy"), login.environment()) as two:
        yield two


async def filled(team: list[Replica], login: Issuer) -> Other:
    """Writes anna's memories, her own and a shared one."""
    other = Other(["atlas"])
    for workspace in ("", "atlas"):
        async with connected(team, login.token("anna"), workspace) as anna:
            session = await say(anna, "Zanzibar is where Leopold keeps the quagmire map.", turn_id=f"turn{workspace}")
            await call(anna, "remember", content="Leopold likes marzipan from Zanzibar.", kind="person")
            await call(anna, "remember", content="The quagmire map costs nine crowns.")
            made = await call(anna, "checkpoint", session=session)
            other.sessions.append(session)
            answer = await anna.call_tool("search", {"query": "Zanzibar", "scope": "all"})
            assert answer.structured_content is not None
            found = [hit["path"] for hit in answer.structured_content["hits"]]
            other.paths += [path for path in found if path.startswith("raw/") or "/people/" in path]
            other.checkpoints += [word for word in made.replace("`", " ").split() if word.startswith("ckp_")]
            if not workspace:
                (line,) = [one for one in team[0].logged().splitlines() if '"personal-' in one][-1:]
                other.workspaces.append(line.partition('"workspace": "')[2].partition('"')[0])
    other.paths = sorted(set(other.paths))
    assert all((other.sessions, other.paths, other.workspaces[1:])), other
    return other


def twin(name: str) -> str:
    """Returns a name of the same form that nobody has."""
    folder, slash, last = name.rpartition("/")
    stem, dot, kind = last.partition(".")
    made = "".join(secrets.choice("0123456789abcdef") if one.isalnum() else one for one in stem[4:])
    return f"{folder}{slash}{stem[:4]}{made}0{dot}{kind}"


TOOLS: tuple[tuple[str, Callable[[Other, random.Random], dict[str, Any]]], ...] = (
    ("search", lambda other, chance: {"query": chance.choice(other.names), "session": chance.choice(other.sessions)}),
    ("search", lambda other, chance: {"query": "where is the map kept?", "scope": "all"}),
    ("read", lambda other, chance: {"path": chance.choice(["", "~/", "memory://"]) + chance.choice(other.paths)}),
    ("read", lambda other, chance: {"path": chance.choice(other.paths), "at": "v1"}),
    ("compile_context", lambda other, chance: {"message": "the map?", "session": chance.choice(other.sessions)}),
    ("status", lambda other, chance: {"view": "sessions"}),
    ("status", lambda other, chance: {"view": "clarity", "session": chance.choice(other.sessions)}),
    ("recover", lambda other, chance: {"id": chance.choice(other.checkpoints or other.sessions)}),
    ("recover", lambda other, chance: {"query": "the map"}),
    ("prune", lambda other, chance: {"session": chance.choice(other.sessions)}),
    ("checkpoint", lambda other, chance: {"session": chance.choice(other.sessions)}),
    ("anchor", lambda other, chance: {"item": chance.choice(other.names)}),
    (
        "observe",
        lambda other, chance: {"role": "user", "content": "hello", "session": f"{chance.choice(other.sessions)}"},
    ),
    ("remember", lambda other, chance: {"content": "I look around.", "supersedes": chance.choice(other.paths) + ":1"}),
)
URIS = ("context://compiled/{session}", "context://receipt/{session}", "context://clarity/state/{session}")


def request(other: Other, chance: random.Random) -> tuple[str, dict[str, Any], bool]:
    """Returns a method, its parameters, and whether it only reads."""
    kind = chance.randrange(10)
    if kind < 6:
        tool, arguments = chance.choice(TOOLS)
        reads = tool in ("search", "read", "compile_context", "status")
        return "tools/call", {"name": tool, "arguments": arguments(other, chance)}, reads
    if kind < 8:
        uris = [uri.format(session=chance.choice(other.sessions)) for uri in URIS]
        uris += [
            f"memory://{chance.choice(other.paths)}",
            "context://checkpoints",
            "context://status",
            "context://topics",
        ]
        uris += [f"context://checkpoint/{one}" for one in other.checkpoints[:1]]
        return "resources/read", {"uri": chance.choice(uris)}, True
    if kind < 9:
        session = chance.choice(other.sessions)
        return (
            "prompts/get",
            {"name": chance.choice(["resume", "reflect", "flush"]), "arguments": {"session": session}},
            True,
        )
    name, reference = chance.choice(
        [
            ("session", {"type": "ref/resource", "uri": "context://compiled/{session}"}),
            ("path", {"type": "ref/resource", "uri": "memory://{+path}"}),
            ("id", {"type": "ref/resource", "uri": "context://checkpoint/{id}"}),
            ("session", {"type": "ref/prompt", "name": "resume"}),
        ]
    )
    value = chance.choice(["", "ses_", "raw/", "ckp_", chance.choice(other.names)[:8]])
    return "completion/complete", {"ref": reference, "argument": {"name": name, "value": value}}, True


class Stranger:
    """mallory, who sends requests without the SDK's client."""

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self._http = http

    async def ask(self, workspace: str, method: str, params: dict[str, Any]) -> str:
        """Returns the whole answer, as text."""
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        url = f"{AUDIENCE}/{workspace}" if workspace else AUDIENCE
        answer = await self._http.post(url, json=body, headers=HEADERS)
        assert answer.status_code < 500, answer.text
        return answer.text


@pytest.fixture
async def stranger(team: list[Replica], login: Issuer) -> AsyncIterator[Stranger]:
    a_day = int(time.time()) + 86_400
    async with http_client(team, login.token("mallory", exp=a_day)) as http:
        yield Stranger(http)


def renamed(value: Any, names: dict[str, str]) -> Any:
    """Returns parameters with other names in them."""
    if isinstance(value, dict):
        return {key: renamed(one, names) for key, one in value.items()}
    if isinstance(value, str):
        for old, new in names.items():
            value = value.replace(old, new)
    return value


async def test_nothing_of_another_principal_comes_out(team: list[Replica], login: Issuer, stranger: Stranger) -> None:
    other = await filled(team, login)
    names = {name: twin(name) for name in sorted(other.names, key=len, reverse=True)}
    chance = random.Random(20261123)
    own = ("", "beta")
    taken: set[str] = set()  # names that mallory has given to something of her own
    for number in range(CALLS):
        method, params, reads = request(other, chance)
        workspace = chance.choice([*own, *own, *other.workspaces])
        answer = await stranger.ask(workspace, method, params)
        where = f"call {number}: {workspace!r} {method} {params}\n{answer}"
        assert not [word for word in SECRETS if word in answer.lower() and word not in str(params).lower()], where
        sent = f"{params} {workspace}"
        assert not [name for name in other.names if name in answer and name not in sent and name not in taken], where
        if not reads and workspace in own:
            taken |= {name for name in other.names if name in sent}
        assert "postgres" not in answer.replace("'postgresql://…", "").replace("PostgreSQL", ""), where
        if workspace in other.workspaces:
            assert "not a member of the workspace" in answer, where
        # The same is said of what does not exist. Without a name in it, a request only tells what is new.
        unknown = renamed(params, names)
        if workspace in other.workspaces or (reads and unknown != params and not any(name in sent for name in taken)):
            made_up = await stranger.ask(names.get(workspace, workspace), method, unknown)
            assert plain(made_up, names) == plain(answer, names), f"{where}\n{made_up}"


def plain(answer: str, names: dict[str, str]) -> str:
    """Returns an answer without names, and without the similar names of mallory's own that it offers."""
    for old, new in names.items():
        answer = answer.replace(old, "NAME").replace(new, "NAME")
    return re.sub(r"(; (did you mean|search finds|there are|the nearest)| \(the tool)[^\"]*", "", answer)


async def test_a_stranger_who_listens_hears_nothing(team: list[Replica], login: Issuer) -> None:
    heard: list[str] = []
    uris = ["memory://knowledge/memory/MEMORY.md", "context://status"]
    token = login.token("mallory")
    async with connected(team, token, "beta") as mallory, connected(team, login.token("anna"), "atlas") as anna:
        ready = anyio.Event()

        async def listen() -> None:
            async with mallory.listen(resource_subscriptions=uris) as events:
                ready.set()
                async for event in events:
                    heard.append(str(event))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listen)
            await ready.wait()
            await anyio.sleep(1.5)  # what opening the workspace told
            heard.clear()
            await call(anna, "remember", content="Zanzibar has a new quay.")
            await anyio.sleep(2)
            tasks.cancel_scope.cancel()
    assert heard == []
