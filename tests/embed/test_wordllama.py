"""The default embedder: offline, independent of its batch, quiet."""

from __future__ import annotations

import builtins
import importlib.util
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mcp_server.app import catch_up, open_memory
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.embed import Wanted
from mcp_server.embed.providers import OpenAIEmbedder, WordLlamaEmbedder, load
from mcp_server.errors import Unavailable
from mcp_server.llm.metered import costs
from mcp_server.model import Caller
from mcp_server.search.search import SearchRequest, search
from tests.llm.endpoint import Endpoint, Reply, endpoint

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def embedder() -> WordLlamaEmbedder:
    return WordLlamaEmbedder()


def test_texts_become_unit_vectors_and_nothing_becomes_zeros(embedder: WordLlamaEmbedder) -> None:
    vectors = embedder.embed(["a blue car", "", "\ud800", "x" * 100_000])
    assert vectors.shape == (4, embedder.dimensions)
    assert np.linalg.norm(vectors, axis=1).round(5).tolist()[0] == 1.0
    assert not vectors[1].any()


def test_near_texts_are_near(embedder: WordLlamaEmbedder) -> None:
    car, auto, poem = embedder.embed(["I bought a car", "she drives her automobile", "a poem about autumn leaves"])
    assert car @ auto > car @ poem


def test_a_vector_does_not_depend_on_its_batch(embedder: WordLlamaEmbedder) -> None:
    texts = [f"text number {number} " * (number % 7 + 1) for number in range(300)]
    together = embedder.embed(texts)
    assert all((embedder.embed([text])[0] == row).all() for text, row in zip(texts[::50], together[::50], strict=True))


FED = """
from pathlib import Path
from mcp_server.embed.providers import WordLlamaEmbedder

def most():
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM"))

embedder = WordLlamaEmbedder()
embedder.embed([f"warm {number}" for number in range(500)])
before = most()
for first in range(0, 10_000, 500):
    embedder.embed([f"short passage number {number}, " * 6 for number in range(first, first + 500)])
print(most() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_ten_thousand_short_texts_leave_nothing_behind() -> None:
    grown = subprocess.run([sys.executable, "-c", FED], capture_output=True, text=True, check=True).stdout
    assert float(grown) < 20  # megabytes; the tokenizer's own cache took 100


def test_weights_of_another_kind_are_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head = b'{"embedding":{"dtype":"F32","shape":[1,256],"data_offsets":[0,1024]}}'
    (tmp_path / "other.safetensors").write_bytes(len(head).to_bytes(8, "little") + head + bytes(1024))
    monkeypatch.setattr("mcp_server.embed.providers.WEIGHTS", str(tmp_path / "other.safetensors"))
    with pytest.raises(Unavailable, match="not F16"):
        WordLlamaEmbedder().embed(["x"])


def test_loading_leaves_the_logging_of_the_program_alone(embedder: WordLlamaEmbedder) -> None:
    embedder.embed(["load"])
    assert logging.root.level == logging.WARNING


def test_names_are_known_or_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load(Wanted("none")) == (None, None)
    found, message = load(Wanted("wordllama"))
    assert found is not None
    assert message is None
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "not installed" in (load(Wanted("wordllama"))[1] or "")
    with pytest.raises(Unavailable, match="not installed"):
        WordLlamaEmbedder().embed(["x"])


def test_a_package_that_cannot_be_loaded_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def broken(name: str, *rest: Any, **options: Any) -> Any:
        if name == "tokenizers":
            raise ImportError("a library is missing")
        return real(name, *rest, **options)

    monkeypatch.setattr(builtins, "__import__", broken)
    with pytest.raises(Unavailable, match="a library is missing"):
        WordLlamaEmbedder().embed(["x"])


MODEL = "letters"


def embedder_at(served: Endpoint, dimensions: int = 26) -> OpenAIEmbedder:
    return OpenAIEmbedder(Wanted("openai", MODEL, dimensions, served.url))


def embedding_at(served: Endpoint, **more: str) -> dict[str, str]:
    """An environment whose embedder is at the endpoint."""
    given = {"EMBEDDER": "openai", "EMBEDDING_MODEL": MODEL, "EMBEDDING_DIMENSIONS": "26", "EMBEDDING_URL": served.url}
    return {f"CONTEXT_MANAGER_SEARCH__{name}": value for name, value in (given | more).items()}


def test_vectors_come_back_in_the_order_of_the_texts() -> None:
    """The endpoint gives them backwards, each with its index."""
    with endpoint(Reply()) as served:
        texts = ["aaa", "", "bbb", *(f"c{'d' * number}" for number in range(300))]
        vectors = embedder_at(served).embed(texts)
    assert vectors[0][0] == vectors[2][1] == 1
    assert not vectors[1].any()
    assert np.allclose(np.linalg.norm(np.delete(vectors, 1, axis=0), axis=1), 1)
    assert len(served.asked) == 3, "at most 128 texts a request"


def test_a_message_is_asked_for_once() -> None:
    with endpoint(Reply()) as served:
        one = embedder_at(served)
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
        embedder_at(served).embed(["x"])


async def test_a_memory_is_searched_with_it_and_by_keywords_when_it_is_gone(workspace: Path) -> None:
    with endpoint(Reply()) as served:
        async with open_memory(workspace, embedding_at(served)) as memory:
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
        environ = embedding_at(served, EMBEDDING_PRICE="20") | {"OPENAI_API_KEY": "not-a-secret"}
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
        embedder_at(served).embed(["x"])
    assert not other.asked


def test_an_answer_without_end_is_broken_off() -> None:
    with endpoint(Reply(raw=b'{"more": "' + b"a" * 1_000_000, endless=True)) as served:
        with pytest.raises(Unavailable, match="MB"):
            embedder_at(served).embed(["x"])
        assert served.sent < 200_000_000


pytest.importorskip("sentence_transformers", reason="needs sentence-transformers (an extra)")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = ("[UNK]", "car", "automobile", "poem", "leaves")
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    weights = np.array([[0, 0, 0.1], [1, 0.1, 0], [0.9, 0.2, 0], [0, 1, 0.3], [0, 0.8, 0.6]], dtype=np.float32)
    folder = tmp_path_factory.mktemp("model")
    SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_weights=weights)]).save(str(folder))
    return folder


def test_near_texts_are_near_and_nothing_becomes_zeros(model: Path) -> None:
    embedder, problem = load(Wanted("sentence-transformers", str(model), 3))
    assert embedder is not None, problem
    car, auto, poem, nothing = embedder.embed(["car", "automobile", "poem leaves", " "])
    assert car @ auto > car @ poem
    assert np.isclose(np.linalg.norm(poem), 1)
    assert not nothing.any()


@pytest.mark.parametrize(
    ("folder", "dimensions", "said"), [("", 384, "embedding_dimensions: 3"), ("nowhere", 3, "cannot be loaded")]
)
def test_a_wrong_vector_length_and_a_missing_model_are_explained(
    model: Path, folder: str, dimensions: int, said: str
) -> None:
    embedder, _ = load(Wanted("sentence-transformers", str(model / folder), dimensions))
    assert embedder is not None
    with pytest.raises(Unavailable, match=said):
        embedder.embed(["car"])
