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

from mcp_server.embed import Wanted
from mcp_server.embed.providers import WordLlamaEmbedder, load
from mcp_server.errors import Unavailable


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
