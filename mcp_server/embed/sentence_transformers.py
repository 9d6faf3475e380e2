"""Any model of sentence-transformers, on this machine (extra `sentence-transformers`).

The package downloads a model that it does not have; a folder with a model can be named instead.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mcp_server.embed import Wanted
from mcp_server.errors import Unavailable
from mcp_server.search.gate import WITH_EMBEDDER

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LONGEST = 20_000
"""Characters of one text; models read less."""
BATCH = 64


class SentenceTransformersEmbedder:
    """One model. The threshold of its gate is wordllama's and was not measured for it: `benchmarks injection` measures
    whether it fits a memory, and `search.gate_threshold` changes it."""

    gate_threshold = WITH_EMBEDDER.threshold

    def __init__(self, wanted: Wanted) -> None:
        self.name = wanted.name
        self.dimensions = wanted.length
        self._model_name = wanted.chosen_model
        self._model: Any = None
        self._lock = threading.Lock()

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One unit vector a text; an empty one gives zeros. Raises Unavailable if the model cannot be loaded."""
        import numpy as np

        vectors = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        rows = [row for row, text in enumerate(texts) if text.strip()]
        if not rows:
            return vectors
        given = [texts[row][:LONGEST].encode("utf-8", "replace").decode() for row in rows]
        with self._lock:  # the package's models are not made for several threads
            found = self._loaded().encode(
                given, batch_size=BATCH, normalize_embeddings=True, convert_to_numpy=True, show_progress_bar=False
            )
        if found.shape != (len(rows), self.dimensions):
            raise Unavailable(
                f"{self._model_name} gives vectors of {found.shape[1]} numbers, not {self.dimensions};"
                f" set search.embedding_dimensions: {found.shape[1]}"
            )
        vectors[rows] = found
        return vectors

    def _loaded(self) -> Any:
        if self._model is None:
            try:
                from sentence_transformers import SentenceTransformer  # takes seconds

                self._model = SentenceTransformer(self._model_name)
            except Exception as error:  # third-party: whatever it raises, search must go on by keywords
                raise Unavailable(
                    f"the model {self._model_name} cannot be loaded ({error}); search uses keywords only"
                ) from error
        return self._model
