"""A small scope is read whole, and gives what the tables for everything give."""

from __future__ import annotations

import random

import pytest

from mcp_server.search.query import plain_query
from mcp_server.storage.local.index import query_plan
from mcp_server.storage.local.index import query_plan as scope
from mcp_server.storage.values import Filters
from tests.storage.index.conftest import HashEmbedder, Make, Workspace

pytestmark = pytest.mark.anyio
WORDS = [
    f"{first}{second}" for first in ("sail", "mast", "rope", "wind") for second in ("", "or", "ing", "ed", "s", "er")
]


async def test_a_conversation_among_many_gives_the_same_candidates_either_way(
    ws: Workspace, indexed: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(4)
    for session in range(6):
        for _ in range(40):
            ws.say(f"s{session}", " ".join(chance.choices(WORDS, k=8)))
    index = indexed(HashEmbedder())
    await index.rebuild()
    asked = [plain_query(" ".join(chance.choices(WORDS, k=4))) for _ in range(8)]
    scopes = [Filters(session="s2"), Filters(session="s3", exclude_session="s3", exclude_from=20)]
    found = [await index.candidates(query, where) for query in asked for where in scopes]
    monkeypatch.setattr(query_plan, "SMALL_SCOPE", -1)
    monkeypatch.setattr(scope, "SMALL_SCOPE", -1)
    otherwise = [await index.candidates(query, where) for query in asked for where in scopes]
    assert any(one.found for one in found)
    for one, other in zip(found, otherwise, strict=True):
        assert one.frequencies == other.frequencies
        assert [each.candidate for each in one.found] == [each.candidate for each in other.found]
