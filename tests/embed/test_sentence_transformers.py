"""Embeddings of sentence-transformers, with a small model made here: nothing is downloaded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mcp_server.embed import Wanted
from mcp_server.embed.providers import load
from mcp_server.errors import Unavailable

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


def test_a_wrong_length_is_explained(model: Path) -> None:
    embedder, _ = load(Wanted("sentence-transformers", str(model), 384))
    assert embedder is not None
    with pytest.raises(Unavailable, match="embedding_dimensions: 3"):
        embedder.embed(["car"])


def test_a_model_that_is_not_there_is_explained(tmp_path: Path) -> None:
    embedder, _ = load(Wanted("sentence-transformers", str(tmp_path / "nowhere"), 3))
    assert embedder is not None
    with pytest.raises(Unavailable, match="cannot be loaded"):
        embedder.embed(["car"])
