"""Filters: operators, projects, sessions, speakers."""

from __future__ import annotations

import pytest

from mcp_server.search.query import plain_query
from mcp_server.storage.values import Filters
from tests.storage.index.conftest import START, HashEmbedder, Make, Workspace, paths, texts

pytestmark = pytest.mark.anyio


async def test_operators_do_what_they_say(ws: Workspace, indexed: Make) -> None:
    ws.write("knowledge/reference/a.md", "a big blue car stands here")
    ws.write("knowledge/reference/b.md", "a blue and fast car stands there")
    ws.write("knowledge/people/c.md", "Cora likes her car")
    ws.write("knowledge/journal/2026-04-03.md", "bought a car today")
    index = indexed()
    await index.rebuild()
    assert await texts(index, '"blue car"') == {"a big blue car stands here"}
    assert await texts(index, "car -fast -bought -Cora") == {"a big blue car stands here"}
    assert await texts(index, "car category:person") == {"Cora likes her car"}
    assert await texts(index, "car since:2026-04-03 until:2026-04") == {"bought a car today"}
    assert await texts(index, "car until:2026-04-02") == set()
    assert len(await texts(index, "car")) == 4


async def test_a_search_stays_in_its_project_and_sees_what_is_global(ws: Workspace, indexed: Make) -> None:
    ws.say("s1", "the password rotation of apollo", project="git:x/apollo")
    ws.say("s2", "the password rotation of zeus", project="git:x/zeus")
    ws.say("s3", "the password rotation at home")
    ws.write("knowledge/projects/apollo/notes.md", "password rotation notes")
    index = indexed(HashEmbedder())
    await index.rebuild()
    mine = Filters(projects=frozenset({"git:x/apollo", "slug:apollo"}))
    for mode in ("hybrid", "keyword", "vector"):
        found = set(await paths(index, "password rotation", mine, mode=mode))
        assert len(found) == 3
        assert not any("zeus" in path or "s2" in path for path in found)
    assert len(await paths(index, "password rotation")) == 4
    assert len(await paths(index, "password rotation", Filters(projects=frozenset()))) == 1


async def test_filters_for_session_speaker_and_leaving_out_a_session(ws: Workspace, indexed: Make) -> None:
    ws.say("s1", "we met at the harbour", name="Ana")
    ws.say("s1", "yes, the harbour", name="Boris")
    ws.say("s2", "another harbour", name="Ana")
    index = indexed(HashEmbedder())
    await index.rebuild()

    async def turns(filters: Filters) -> set[tuple[str, int | None]]:
        found = await index.candidates(plain_query("harbour"), filters)
        return {(one.passage.session, one.passage.turn) for one in found.found}

    assert await turns(Filters(session="s1")) == {("s1", 1), ("s1", 2)}
    assert await turns(Filters(exclude_session="s1")) == {("s2", 1)}
    assert await turns(Filters(exclude_session="s1", exclude_from=2)) == {("s1", 1), ("s2", 1)}
    assert await turns(Filters(speaker="Ana")) == {("s1", 1), ("s2", 1)}
    assert await turns(Filters(session="nobody")) == set()
    assert await turns(Filters(since=START, until=START)) == set()


async def test_frequencies_are_those_of_the_scope(ws: Workspace, indexed: Make) -> None:
    ws.say("s1", "alpha beta", project="p:1")
    ws.say("s2", "alpha gamma", project="p:2")
    index = indexed()
    await index.rebuild()
    found = await index.candidates(plain_query("alpha gamma"), Filters(projects=frozenset({"p:1"})))
    assert found.passages == 1
    assert dict(zip(found.asked.lookup, found.frequencies, strict=True)) == {"alpha": 1, "gamma": 0}
