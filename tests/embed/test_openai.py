"""Embeddings over HTTP, from a real endpoint: used, refused, garbled, and not there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mcp_server.app import catch_up, open_memory
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.embed import Wanted
from mcp_server.embed.providers import OpenAIEmbedder, load
from mcp_server.errors import Unavailable
from mcp_server.llm.metered import costs
from mcp_server.model import Caller
from mcp_server.search.search import SearchRequest, search
from tests.llm.endpoint import Endpoint, Reply, endpoint

pytestmark = pytest.mark.anyio

MODEL = "letters"


def embedder(served: Endpoint, dimensions: int = 26) -> OpenAIEmbedder:
    return OpenAIEmbedder(Wanted("openai", MODEL, dimensions, served.url))


def test_vectors_come_back_in_the_order_of_the_texts() -> None:
    """The endpoint gives them backwards, each with its index."""
    with endpoint(Reply()) as served:
        texts = ["aaa", "", "bbb", *(f"c{'d' * number}" for number in range(300))]
        vectors = embedder(served).embed(texts)
    assert vectors[0][0] == vectors[2][1] == 1
    assert not vectors[1].any()
    assert np.allclose(np.linalg.norm(np.delete(vectors, 1, axis=0), axis=1), 1)
    assert len(served.asked) == 3, "at most 128 texts a request"


def test_a_message_is_asked_for_once() -> None:
    with endpoint(Reply()) as served:
        one = embedder(served)
        assert (one.embed(["which car?"]) == one.embed(["which car?"])).all()
    assert len(served.asked) == 1


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (Reply("overloaded", status=503), "no vectors"),
        (Reply(raw=b"garbage"), "no vectors"),
        (Reply(raw=b'{"data": [], "model": "m", "object": "list"}'), "embedding_dimensions|no vectors"),
    ],
)
def test_an_endpoint_that_gives_none_is_explained(reply: Reply, said: str) -> None:
    with endpoint(reply) as served, pytest.raises(Unavailable, match=said):
        embedder(served).embed(["x"])


async def test_a_memory_is_searched_with_it_and_by_keywords_when_it_is_gone(workspace: Path) -> None:
    with endpoint(Reply()) as served:
        environ = {
            "CONTEXT_MANAGER_SEARCH__EMBEDDER": "openai",
            "CONTEXT_MANAGER_SEARCH__EMBEDDING_MODEL": MODEL,
            "CONTEXT_MANAGER_SEARCH__EMBEDDING_DIMENSIONS": "26",
            "CONTEXT_MANAGER_SEARCH__EMBEDDING_URL": served.url,
        }
        async with open_memory(workspace, environ) as memory:
            await observe(memory, NewTurn("user", "Our oven is a Vesuvio", session="s"), Caller())
            await catch_up(memory)
            near = await search(memory, SearchRequest("Vesuvio sooner or never", mode="vector"))
            assert near.hits[0].passage.turn == 1
            served.replies[:] = [Reply("gone", status=500)]
            await observe(memory, NewTurn("user", "The cellar is dry", session="s"), Caller())
            await catch_up(memory)
            found = await search(memory, SearchRequest("cellar"))
            assert found.hits[0].passage.turn == 2
            assert any("keywords only" in message for message in found.notes)
            served.replies[:] = [Reply()]
            await catch_up(memory)
            assert (await memory.index.status()).not_embedded == 0


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (Wanted("openai"), "OPENAI_API_KEY"),
        (Wanted("openai", "mine", base_url="http://localhost:1"), "embedding_dimensions"),
    ],
)
def test_what_is_missing_is_said(wanted: Wanted, said: str) -> None:
    assert said in (load(wanted)[1] or "")


def test_vectors_of_another_model_or_length_are_another_index() -> None:
    assert Wanted("openai", key="k").name == "openai-text-embedding-3-small-1536"
    assert Wanted("openai", dimensions=256).name == "openai-text-embedding-3-small-256"
    assert Wanted("sentence-transformers").name == "sentence-transformers-all-minilm-l6-v2-384"
    assert Wanted("wordllama").name == "wordllama"
    assert Wanted("none").length == 0


async def test_what_it_cost_is_in_the_book_and_no_cap_is_touched(workspace: Path) -> None:
    with endpoint(Reply()) as served:
        given = {"EMBEDDER": "openai", "EMBEDDING_MODEL": MODEL, "EMBEDDING_DIMENSIONS": "26", "EMBEDDING_PRICE": "20"}
        environ = {f"CONTEXT_MANAGER_SEARCH__{name}": value for name, value in given.items()}
        environ |= {"CONTEXT_MANAGER_SEARCH__EMBEDDING_URL": served.url, "OPENAI_API_KEY": "not-a-secret"}
        async with open_memory(workspace, environ) as memory:
            await observe(memory, NewTurn("user", "The winter berth is in Basel"), Caller())
            await catch_up(memory)
            assert len(served.asked) > 0
        async with open_memory(workspace, environ) as memory:
            spent = await costs(memory)
    assert spent.purposes["embedding"].calls == len(served.asked)
    assert spent.purposes["embedding"].input_tokens == len(served.asked)
    assert spent.total.usd == pytest.approx(len(served.asked) * 20 / 1e6)
    assert spent.priced
    assert spent.today.tokens == 0, "what the cap counts"


def test_texts_are_not_sent_on_to_another_address() -> None:
    with (
        endpoint(Reply()) as other,
        endpoint(Reply(status=307, location=other.url)) as served,
        pytest.raises(Unavailable, match="another address"),
    ):
        embedder(served).embed(["x"])
    assert not other.asked


def test_an_answer_without_end_is_broken_off() -> None:
    with endpoint(Reply(raw=b'{"more": "' + b"a" * 1_000_000, endless=True)) as served:
        with pytest.raises(Unavailable, match="MB"):
            embedder(served).embed(["x"])
        assert served.sent < 200_000_000
