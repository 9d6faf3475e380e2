"""wordllama: a table of token vectors on the CPU. A text's vector is the mean over its tokens, scaled to length 1.

The weights come in the package's own wheel; nothing is ever downloaded. Only its two files are used, not its code:
that pads every text of a batch to the longest, and holds the table as float32 in each process. Here the file is mapped
as it is (float16), so that all servers of a machine share it, and tokens are looked up and summed per text. The result
is the same.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcp_server.errors import Unavailable
from mcp_server.search.gate import WITH_EMBEDDER

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

DIMENSIONS = 256
WEIGHTS = f"weights/l2_supercat_{DIMENSIONS}.safetensors"
TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"

GATE_THRESHOLD = WITH_EMBEDDER.threshold
"""From where the gate is open: fitted to the cosines of this embedder (`core.scoring.gate`, `benchmarks injection`)."""

LONGEST = 20_000
"""Characters of one text that are embedded. Passages have 800; only a message given as a query can be longer, and its
mean has settled by then."""

BATCH = 256


class WordLlamaEmbedder:
    """The default embedder. Holds about 25 MB of its own once the first text came, and maps 16 MB that all share."""

    name = "wordllama"
    dimensions = DIMENSIONS
    gate_threshold = GATE_THRESHOLD

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tokenizer: Any = None
        self._table: NDArray[np.float16] | None = None

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One unit vector a text (zeros for a text without tokens). Raises Unavailable if the package's files cannot
        be read."""
        import numpy as np

        table = self._loaded()
        vectors = np.zeros((len(texts), DIMENSIONS), dtype=np.float32)
        for first in range(0, len(texts), BATCH):
            batch = [_clean(text) for text in texts[first : first + BATCH]]
            # `fast` leaves out where in the text each token stands: the same tokens in half the time.
            tokens = [encoding.ids for encoding in self._tokenizer.encode_batch_fast(batch, add_special_tokens=False)]
            for row, ids in enumerate(tokens, first):
                if ids:
                    vectors[row] = table.take(ids, axis=0, mode="clip").astype(np.float32).sum(axis=0)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors /= np.where(lengths > 0, lengths, 1)
        return vectors

    def _loaded(self) -> NDArray[np.float16]:
        with self._lock:
            if self._table is None:
                self._tokenizer, self._table = _load()
            return self._table


def _clean(text: str) -> str:
    """What the tokenizer accepts: no lone surrogates, bounded."""
    return text[:LONGEST].encode("utf-8", "replace").decode("utf-8")


def _load() -> tuple[Any, NDArray[np.float16]]:
    spec = importlib.util.find_spec("wordllama")
    if spec is None or spec.origin is None:
        raise Unavailable("the package wordllama is not installed; pip install wordllama, or set search.embedder: none")
    package = Path(spec.origin).parent
    try:
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(package / TOKENIZER))
        tokenizer.no_padding()
        # It would keep 10,000 texts shorter than 256 bytes, whole, each with its tokens: 120 MB that hardly ever serve.
        with contextlib.suppress(AttributeError):  # it has no public name, and may lose this one
            tokenizer.model._resize_cache(0)
        return tokenizer, _mapped(package / WEIGHTS)
    except Exception as error:  # third-party: whatever it raises, search must go on by keywords
        raise Unavailable(
            f"wordllama cannot be loaded ({error}); search uses keywords only (pip install --force-reinstall wordllama)"
        ) from error


def _mapped(weights: Path) -> NDArray[np.float16]:
    """The one table of a safetensors file: eight bytes with the length of a JSON head, the head, the numbers."""
    import numpy as np

    with weights.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        head = json.loads(file.read(length))
    (table,) = (value for name, value in head.items() if name != "__metadata__")
    if table["dtype"] != "F16" or table["shape"][1] != DIMENSIONS:
        raise ValueError(f"{weights.name} holds {table['dtype']} {table['shape']}, not F16 of {DIMENSIONS} columns")
    first = 8 + length + table["data_offsets"][0]
    return np.memmap(weights, dtype="<f2", mode="r", offset=first, shape=tuple(table["shape"]))
