"""wordllama: a table of token vectors on the CPU. A text's vector is the mean over its tokens, scaled to length 1.

The weights come in the package's own wheel; nothing is ever downloaded. The package's `embed` pads every text of a
batch to the longest, so a batch with one long text costs many times its tokens; here tokens are looked up once and
summed per text. The result is the same.
"""

from __future__ import annotations

import importlib.util
import logging
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcp_server.core.scoring.gate import WITH_EMBEDDER
from mcp_server.errors import Unavailable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

DIMENSIONS = 256

GATE_THRESHOLD = WITH_EMBEDDER.threshold
"""From where the gate is open: fitted to the cosines of this embedder (`core.scoring.gate`, `bench injection`)."""

LONGEST = 20_000
"""Characters of one text that are embedded. Passages have 800; only a message given as a query can be longer, and its
mean has settled by then."""

BATCH = 256


class WordLlamaEmbedder:
    """The default embedder. Holds about 80 MB once the first text came; loading takes half a second."""

    name = "wordllama"
    dimensions = DIMENSIONS
    gate_threshold = GATE_THRESHOLD

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tokenizer: Any = None
        self._table: NDArray[np.float32] | None = None

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One unit vector a text (zeros for a text without tokens). Raises Unavailable if the package's files cannot
        be read."""
        import numpy as np

        table = self._loaded()
        vectors = np.zeros((len(texts), DIMENSIONS), dtype=np.float32)
        for first in range(0, len(texts), BATCH):
            batch = [_clean(text) for text in texts[first : first + BATCH]]
            tokens = [encoding.ids for encoding in self._tokenizer.encode_batch(batch, add_special_tokens=False)]
            for row, ids in enumerate(tokens, first):
                if ids:
                    vectors[row] = table.take(ids, axis=0, mode="clip").sum(axis=0)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors /= np.where(lengths > 0, lengths, 1)
        return vectors

    def _loaded(self) -> NDArray[np.float32]:
        with self._lock:
            if self._table is None:
                self._tokenizer, self._table = _load()
            return self._table


def _clean(text: str) -> str:
    """What the tokenizer accepts: no lone surrogates, bounded."""
    return text[:LONGEST].encode("utf-8", "replace").decode("utf-8")


def _load() -> tuple[Any, NDArray[np.float32]]:
    spec = importlib.util.find_spec("wordllama")
    if spec is None or spec.origin is None:
        raise Unavailable("the package wordllama is not installed; pip install wordllama, or set search.embedder: none")
    handlers, level = list(logging.root.handlers), logging.root.level
    try:
        from wordllama import WordLlama

        model = WordLlama.load(cache_dir=Path(spec.origin).parent, disable_download=True)
    except Exception as error:  # third-party: whatever it raises, search must go on by keywords
        raise Unavailable(
            f"wordllama cannot be loaded ({error}); search uses keywords only (pip install --force-reinstall wordllama)"
        ) from error
    finally:  # the package configures the root logger when imported; ours stays as it was
        logging.root.handlers[:] = handlers
        logging.root.setLevel(level)
    model.tokenizer.no_padding()
    return model.tokenizer, model.embedding
