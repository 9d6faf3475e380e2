"""A team's memory over HTTP: two replicas behind one address, members with roles, and what each of them can reach."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import anyio
import psycopg
import pytest
from mcp.shared.exceptions import MCPError
from mcp.types import ElicitResult

from tests.end_to_end.replicas import Replica, connected, http_client, operator, posted, replicas
from tests.end_to_end.servers import eventually
from tests.issuing import AUDIENCE, Issuer, issuer
from tests.postgres import server
from tests.serving import ERAS, Mode, User, call, refused, resource, say, text

pytestmark = pytest.mark.anyio


@dataclass(frozen=True, slots=True)
class Team:
    """Two replicas, the database and the issuer that they use."""

    address: str
    issuer: Issuer
    replicas: list[Replica]

    def operator(self, workspace: str, *arguments: str) -> str:
        """Returns what a command of the operator prints."""
        return operator(self.address, workspace, self.issuer.url, *arguments)

    def connected(self, who: str, workspace: str = "", mode: Mode = "auto", **options: Any) -> Any:
        """Returns a client of `who`."""
        return connected(self.replicas, self.issuer.token(who), workspace, mode, **options)


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    address = server().new_database()
    with issuer() as running, replicas(address, tmp_path_factory.mktemp("replicas"), running.environment()) as two:
        yield Team(address, running, two)


async def found(client: Any, query: str, words: str, **arguments: Any) -> None:
    """Searches until the words are found: another replica may index what was written."""

    async def finds() -> bool:
        return words in await call(client, "search", query=query, **arguments)

    await eventually(finds)


@pytest.mark.parametrize("mode", ERAS)
async def test_the_first_sign_in_makes_a_workspace_that_only_its_owner_can_open(team: Team, mode: Mode) -> None:
    async with team.connected(f"anna-{mode}", mode=mode) as anna, team.connected(f"bob-{mode}", mode=mode) as bob:
        assert "user's own" in (anna.instructions or "")
        await call(anna, "remember", content="The red harbour crane lifts forty tons.")
        await found(anna, "how much does the crane lift?", "forty tons")
        assert "forty tons" not in await call(bob, "search", query="how much does the crane lift?")


@pytest.mark.parametrize("mode", ERAS)
async def test_a_conversation_goes_on_at_whichever_replica_answers(team: Team, mode: Mode) -> None:
    async with team.connected(f"carla-{mode}", mode=mode) as carla:
        session = await say(carla, "We chose PostgreSQL.")
        for number in range(2, 7):
            assert f"turn {number} recorded" in await call(
                carla, "observe", role="user", content=f"Reason {number}.", session=session
            )
        await found(carla, "why PostgreSQL?", "We chose PostgreSQL.", session=session)
        assert "reason" in await resource(carla, f"context://compiled/{session}")


async def test_the_answer_to_a_question_counts_at_the_other_replica_and_only_for_its_user(team: Team) -> None:
    user = User(ElicitResult(action="accept", content={"write": True}))
    async with team.connected("dora", elicitation_callback=user) as dora:
        done = await call(dora, "remember", content="Answers are in French.", kind="identity")
    assert "appended" in done
    assert len(user.asked) == 1

    arguments = {"content": "Answers are in Latin.", "kind": "identity"}
    async with http_client(team.replicas, team.issuer.token("dora")) as http:
        question = await posted(http, AUDIENCE, "tools/call", name="remember", arguments=arguments)
    result = question["result"]
    assert result["resultType"] == "input_required"
    (key,) = result["inputRequests"]
    answers = {key: {"action": "accept", "content": {"write": True}}}
    again = {
        "name": "remember",
        "arguments": arguments,
        "requestState": result["requestState"],
        "inputResponses": answers,
    }
    async with http_client(team.replicas, team.issuer.token("erik")) as http:
        stolen = await posted(http, AUDIENCE, "tools/call", **again)
    assert stolen["error"]["data"] == {"reason": "invalid_request_state"}
    async with http_client(team.replicas, team.issuer.token("dora")) as http:
        accepted = await posted(http, AUDIENCE, "tools/call", **again)
    assert "appended" in str(accepted["result"])


async def test_a_change_that_an_older_client_cannot_ask_about_waits_for_the_operator(team: Team) -> None:
    team.operator("eta", "members", "add", "olga")
    user = User()
    async with team.connected("olga", "eta", "legacy", elicitation_callback=user) as olga:
        said = await call(olga, "remember", content="Answers are in Greek.", kind="identity")
        proposal = said.partition("context-manager approve ")[2].partition("`")[0]
        assert "Greek" not in await call(olga, "read", path="knowledge/identity/USER.md")
        team.operator("eta", "approve", proposal, "--apply")
        assert "Greek" in await call(olga, "read", path="knowledge/identity/USER.md")
    assert user.asked == []


async def test_roles_decide_what_a_member_of_a_shared_workspace_may_do(team: Team) -> None:
    team.operator("atlas", "members", "add", "frida", "--role", "writer")
    team.operator("atlas", "members", "add", "gerd", "--role", "reader")
    async with team.connected("frida", "atlas") as frida, team.connected("gerd", "atlas") as gerd:
        session = await say(frida, "The atlas launch is on the ninth of May.")
        await call(frida, "remember", content="Atlas ships its maps in May.")
        await found(gerd, "when does Atlas ship its maps?", "in May")
        assert "in May" in await call(gerd, "compile_context", message="When does Atlas ship?", session=session)
        assert "may read here, but not write" in (gerd.instructions or "")
        for tool, arguments in (
            ("observe", {"role": "user", "content": "x", "session": session}),
            ("remember", {"content": "Atlas is late."}),
            ("checkpoint", {"session": session}),
            ("anchor", {"item": "maps"}),
            ("prune", {}),
            ("recover", {}),
        ):
            assert "your role in the workspace atlas is reader" in await refused(gerd, tool, **arguments)
        with pytest.raises(MCPError, match="is reader"):
            await gerd.get_prompt("clarity", {"action": "prune"})
        assert "Atlas is late" not in await call(frida, "search", query="is Atlas late?")
        team.operator("atlas", "members", "add", "gerd", "--role", "writer")
        await call(gerd, "remember", content="Atlas prints on paper.")


async def test_an_owner_forgets_after_a_yes_and_a_writer_may_not(team: Team) -> None:
    yes = ElicitResult(action="accept", content={"delete": True})
    team.operator("harbor", "members", "add", "olga", "--role", "owner")
    team.operator("harbor", "members", "add", "paul", "--role", "writer")
    async with (
        team.connected("olga", "harbor", elicitation_callback=User(yes)) as olga,
        team.connected("paul", "harbor", elicitation_callback=User()) as paul,
    ):
        words = "The gate code of the harbor is heron forty."
        await call(paul, "remember", content=words)
        await found(paul, "what is the gate code of the harbor?", "heron forty")
        assert "your role in the workspace harbor is writer" in await refused(paul, "forget", text=words, dry_run=False)
        await call(olga, "forget", text=words, dry_run=False)
        assert "heron forty" not in await call(olga, "search", query="what is the gate code of the harbor?")


async def test_a_removed_member_is_refused_at_the_next_call_and_told_how_to_come_back(team: Team) -> None:
    team.operator("beta", "members", "add", "hugo")
    async with team.connected("hugo", "beta") as hugo:
        await call(hugo, "remember", content="Beta has a blue door.")
        shown = team.operator("beta", "members", "remove", "hugo")
        assert "--apply" in shown
        await call(hugo, "status")
        team.operator("beta", "members", "remove", "hugo", "--apply")
        with pytest.raises(MCPError, match=r"not a member of the workspace 'beta'.*members add 'hugo'"):
            await hugo.call_tool("search", {"query": "door"})
        with pytest.raises(MCPError, match="not a member"):
            await hugo.read_resource("context://status")
        team.operator("beta", "members", "add", "hugo", "--role", "reader")
        await found(hugo, "what color is the door?", "blue door")


async def test_a_search_in_a_shared_workspace_finds_the_users_own_notes_too(team: Team) -> None:
    team.operator("gamma", "members", "add", "ida")
    team.operator("gamma", "members", "add", "jan")
    async with (
        team.connected("ida") as own,
        team.connected("ida", "gamma") as ida,
        team.connected("jan", "gamma") as jan,
    ):
        await call(own, "remember", content="The pilot of the ferry is my cousin Ole.")
        await call(ida, "remember", content="The ferry leaves at noon.")
        await found(ida, "the ferry and its pilot", "cousin Ole")
        await found(ida, "the ferry and its pilot", "leaves at noon")
        answer = await ida.call_tool("search", {"query": "the ferry and its pilot"})
        paths = [hit["path"] for hit in answer.structured_content["hits"]]
        assert "knowledge/memory/MEMORY.md" in paths
        assert "~/knowledge/memory/MEMORY.md" in paths
        read = await call(ida, "read", path="~/knowledge/memory/MEMORY.md")
        assert "cousin Ole" in read
        assert read.startswith("~/knowledge")
        assert "leaves at noon" not in await call(own, "search", query="when does the ferry leave?")
        assert "Ole" not in text(await jan.call_tool("search", {"query": "the ferry and its pilot"}))
        assert "Ole" not in text(await jan.call_tool("read", {"path": "~/knowledge/memory/MEMORY.md"}))


async def test_a_context_of_a_shared_workspace_has_who_the_user_is_and_their_rules_for_this_user_only(
    team: Team,
) -> None:
    user = User(ElicitResult(action="accept", content={"write": True}))
    team.operator("theta", "members", "add", "kim")
    team.operator("theta", "members", "add", "lars")
    async with (
        team.connected("kim", elicitation_callback=user) as own,
        team.connected("kim", "theta") as kim,
        team.connected("lars", "theta") as lars,
    ):
        await call(own, "remember", content="Kim steers the pilot boat Heron.", kind="identity")
        await call(own, "remember", content="Always give depths in fathoms.", kind="rule")
        await call(own, "remember", content="The chart room has a stove.", kind="decision")
        session = await say(kim, "How deep is the channel?")
        told = await call(kim, "compile_context", message="How deep is the channel?", session=session)
        assert "<!-- identity: ~/knowledge/identity/USER.md -->" in told
        assert "pilot boat Heron" in told
        assert "depths in fathoms" in told
        assert "stove" not in told
        receipt = await resource(kim, f"context://receipt/{session}")
        assert "~/knowledge/identity/USER.md" in receipt
        assert "not a rule in force" in receipt
        for told in (
            await call(lars, "compile_context", message="How deep is the channel?", session=session),
            await resource(lars, f"context://compiled/{session}"),
        ):
            assert "~/" not in told
            assert "Heron" not in told
            assert "fathoms" not in told
    with psycopg.connect(team.address) as connection:
        rows = connection.execute(
            "SELECT w.name, count(*) FROM context_manager.file_part f JOIN context_manager.workspace w USING (ws) "
            "WHERE position('pilot boat'::bytea IN f.data) > 0 OR position('fathoms'::bytea IN f.data) > 0 GROUP BY 1"
        ).fetchall()
        logged = connection.execute(
            "SELECT count(*) FROM context_manager.file_part f JOIN context_manager.workspace w USING (ws) "
            "WHERE w.name = 'theta' AND position('compile_context'::bytea IN f.data) > 0"
        ).fetchone()
    assert "theta" not in dict(rows)
    assert logged != (0,)


async def test_changes_are_told_to_those_who_listen_in_the_same_workspace_only(team: Team) -> None:
    team.operator("delta", "members", "add", "karl")
    uri = "memory://knowledge/memory/MEMORY.md"
    heard: dict[str, list[str]] = {"": [], "delta": []}
    async with (
        team.connected("karl") as own,
        team.connected("karl", "delta") as shared,
        anyio.create_task_group() as tasks,
    ):

        async def listen(name: str, client: Any, ready: anyio.Event) -> None:
            async with client.listen(resource_subscriptions=[uri]) as events:
                ready.set()
                async for event in events:
                    heard[name].append(str(event.uri))

        for name, client in (("", own), ("delta", shared)):
            ready = anyio.Event()
            tasks.start_soon(listen, name, client, ready)
            await ready.wait()
        await anyio.sleep(1.5)  # what opening a workspace told
        heard["delta"].clear()
        heard[""].clear()
        await call(shared, "remember", content="Delta has a river.")
        await eventually(lambda: heard["delta"])
        await anyio.sleep(1.0)
        assert heard[""] == []
        tasks.cancel_scope.cancel()


async def test_the_audit_log_says_who_read_and_wrote_what_without_content(team: Team) -> None:
    team.operator("epsilon", "members", "add", "lena")
    async with team.connected("lena", "epsilon") as lena:
        session = await say(lena, "Xanadu is the word that nobody must log.")
        await call(lena, "remember", content="Xanadu opens the gate.")
        await call(lena, "search", query="what is Xanadu?")
        await call(lena, "read", path="knowledge/memory/MEMORY.md")
    lines = json.loads(team.operator("epsilon", "members", "log", "--json"))
    assert [(line["principal"], line["action"], line["outcome"]) for line in lines] == [
        ("lena", f"tools/call {tool}", "ok") for tool in ("read", "search", "remember", "observe")
    ]
    assert [line["client"] for line in lines] == ["test-agent"] * 4
    assert lines[0]["targets"] == ["knowledge/memory/MEMORY.md"]
    assert lines[3]["targets"] == [session]
    logged = json.dumps(lines) + "".join(one.logged() for one in team.replicas)
    assert "xanadu" not in logged.lower()
    calls = [json.loads(line) for one in team.replicas for line in one.logged().splitlines() if line.startswith("{")]
    assert {"observe", "remember", "search"} <= {line.get("tool") for line in calls}


async def test_each_replica_tells_its_health_and_its_metrics(team: Team) -> None:
    async with team.connected("mona") as mona:
        await call(mona, "status")
    metrics = ""
    for replica in team.replicas:
        async with http_client([replica]) as http:
            for path in ("/healthz", "/readyz"):
                assert (await http.get(replica.base + path)).status_code == 200
            metrics += (await http.get(f"{replica.base}/metrics")).text
    assert 'context_manager_calls_total{method="tools/call",outcome="ok",tool="status"}' in metrics
    assert "context_manager_open_workspaces" in metrics
