"""The embedder of an index, and narrow vectors of whole numbers, by which the nearest passages are found before the
exact comparison."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

from mcp_server.errors import ContextManagerError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from mcp_server.embed import Embedder

_importing = threading.Lock()
numpy_is_there = threading.Event()


def import_numpy() -> None:
    """Imports NumPy, one thread at a time: two first imports at once break it."""
    with _importing:
        importlib.import_module("numpy")
        numpy_is_there.set()


LEADING: Mapping[str, int] = {"wordllama": 128}
"""Embedders whose first numbers are nearly as good as all (Matryoshka representations, arXiv 2205.13147). Only these
numbers are used to find neighbors, in half the time. NDCG@10 on LoCoMo (`benchmarks retrieval`) stays .659."""


ENOUGH = 0.5
"""If at least this share of the neighbors is in the scope, no more are searched."""


SCALE = 254.0
"""int8 = round(254 · x): components of unit vectors of a hundred dimensions and more lie within ±0.5."""


def in_bytes(half: NDArray[np.float16], first: int) -> NDArray[np.int8]:
    """Returns the `first` numbers of float16 vectors (one per row) as int8, for the vector table.

    They are normalized again, so that L2 orders as the cosine does.
    """
    import numpy as np

    shown = half[:, :first].astype(np.float32)
    length = np.linalg.norm(shown, axis=1, keepdims=True)
    whole: NDArray[np.float32] = np.rint(shown / np.where(length > 0, length, 1) * SCALE)
    return whole.clip(-127, 127).astype(np.int8)


QUERIES_KEPT, LONGEST_KEPT = 16, 10_000
"""Queries whose vectors are cached, and their greatest length in characters."""


class Embedding:
    """The embedder of an index; `name` and `dimensions` describe one that is missing. `problem` is its last one."""

    def __init__(self, embedder: Embedder | None, name: str | None, dimensions: int) -> None:
        self.embedder = embedder
        self.name = name or (embedder.name if embedder else "none")
        # Known for a missing embedder, too, so that vectors can be added later without a rebuild.
        self.dimensions = embedder.dimensions if embedder else dimensions
        self.compared = min(self.dimensions, LEADING.get(self.name, self.dimensions))
        self.problem: str | None = None
        # One message is embedded for topics, for passages and for a context.
        self._queries: dict[str, NDArray[np.float32]] = {}

    def of(self, texts: list[str]) -> NDArray[np.float32] | None:
        """Returns the vectors of texts; None without texts, without an embedder, or if it fails."""
        if self.embedder is None or not texts:
            return None
        try:
            vectors = self.embedder.embed(texts)
        except ContextManagerError as error:
            self.problem = str(error)
            return None
        self.problem = None
        return vectors

    def of_query(self, text: str) -> NDArray[np.float32] | None:
        """Returns the vector of a query; None without an embedder, or if it fails or finds nothing in the text."""
        vector = self._queries.get(text)
        if vector is None:
            found = self.of([text]) if text.strip() else None
            if found is None:
                return None
            vector = found[0]
            if len(text) <= LONGEST_KEPT:
                if len(self._queries) >= QUERIES_KEPT:
                    self._queries.clear()
                self._queries[text] = vector
        return vector if vector.any() else None

    def messages(self) -> list[str]:
        """Returns sentences for people who search."""
        missing = self.embedder is None and self.name != "none"
        said = [f"the embedder {self.name} is not available: keywords only (context-manager doctor)"] if missing else []
        return [*said, *([self.problem] if self.problem else [])]
