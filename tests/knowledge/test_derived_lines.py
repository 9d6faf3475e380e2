"""To search and compiler, a derived line and the turn that it comes from are one thing."""

from __future__ import annotations

import pytest

from mcp_server.context.compile import CompileRequest, compile_context
from mcp_server.conversations.imports import record_session
from mcp_server.knowledge.extract import extract
from mcp_server.memory import Memory
from mcp_server.model import Caller
from mcp_server.search.search import SearchRequest, find, search
from tests.knowledge.test_extract import talk

pytestmark = pytest.mark.anyio


@pytest.fixture
async def known(memory: Memory) -> Memory:
    """A conversation and what was derived from it."""
    said = (
        "Hello Bo! It is raining again, and the whole street is under water since the morning.",
        "I play the cello in the city orchestra.",
        "I adopted two kittens from the shelter in Zagreb yesterday. The paperwork was endless and dull, though.",
    )
    await record_session(memory, talk(*said))
    await extract(memory)
    await memory.index.refresh()
    return memory


async def test_search_finds_a_turn_or_its_line_and_never_both(known: Memory) -> None:
    hits = (await find(known, SearchRequest("who adopted kittens from the shelter"))).hits
    about = [hit for hit in hits if "kittens" in hit.passage.text]
    assert len(about) == 1
    assert hits[0] == about[0]


async def test_knowledge_lifts_what_it_says_and_moves_nothing_else(memory: Memory) -> None:
    said = (
        "Hello Bo! It rained on the harbour and the kittens of the shelter since the morning.",
        "I adopted two kittens from the shelter in Zagreb yesterday.",
        "Kittens are fun, are they not?",
        "The shelter in Zagreb is a place with many dogs.",
    )
    await record_session(memory, talk(*said))
    await memory.index.refresh()
    asked = SearchRequest("which kittens from the shelter in Zagreb?")
    before = {(hit.passage.turn, hit.score) for hit in (await find(memory, asked)).hits}
    await extract(memory)
    await memory.index.refresh()
    hits = (await find(memory, asked)).hits
    lifted = [hit for hit in hits if hit.terms["kept"]]
    assert ["adopted" in hit.passage.text for hit in lifted] == [True]
    assert {(hit.passage.turn, hit.score) for hit in hits if not hit.terms["kept"]} == {
        (turn, score) for turn, score in before if turn != 2
    }
    assert len(hits) == len(before)
    assert lifted[0].score > next(score for turn, score in before if turn == 2)


async def test_a_search_for_people_finds_the_line_and_says_where_it_comes_from(known: Memory) -> None:
    answer = await search(known, SearchRequest("kittens", category="person"))
    (hit,) = answer.hits
    assert hit.passage.path == "knowledge/people/ana.md"
    assert "from raw/conversations/2023/05/08/1356-talk-1-ana-and-bo.md#3" in answer.markdown
    assert "[src:" not in answer.markdown
    assert answer.as_dict()["hits"][0]["sources"] == ["raw/conversations/2023/05/08/1356-talk-1-ana-and-bo.md#3"]


async def test_a_context_shows_a_line_without_its_source_mark_and_not_its_turn_too(known: Memory) -> None:
    compiled = await compile_context(known, CompileRequest(message="who adopted kittens?", budget=1024), Caller())
    assert compiled.text.count("kittens") == 1
    assert "[src:" not in compiled.text
    taken = [one for one in compiled.receipt.considered if one.included and one.source == "knowledge/people/ana.md"]
    assert [one.terms["decay"] for one in taken if one.terms] == [1.0]


async def test_since_counts_the_day_of_the_line(known: Memory) -> None:
    assert (await find(known, SearchRequest("kittens since:2024-01-01"))).hits == ()
    assert (await find(known, SearchRequest("kittens category:person until:2023-05-07"))).hits
