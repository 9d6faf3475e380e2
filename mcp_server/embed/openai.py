"""Embeddings of OpenAI and of every endpoint that speaks like it, through its package (extra `openai`)."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from mcp_server.embed import DIMENSIONS, Wanted
from mcp_server.endpoints import PLAIN, careful_and_quick
from mcp_server.errors import Unavailable
from mcp_server.search.gate import WITH_EMBEDDER

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from openai import OpenAI

BATCH = 128
"""Texts a request."""
LONGEST = 8_000
"""Characters of one text: passages have 800, and what embeds texts takes about 8,000 tokens."""
TIMEOUT_SECONDS = 20
MOST_BYTES = 64_000_000
"""Of one answer: a batch of the longest vectors has 10 MB."""
RETRIES = 1
KEPT = 256
"""Messages whose vector is kept: one message is looked up several times in a turn."""


class OpenAIEmbedder:
    """One model. The threshold of its gate is wordllama's and was not measured for it: `benchmarks injection` measures
    whether it fits a memory, and `search.gate_threshold` changes it."""

    gate_threshold = WITH_EMBEDDER.threshold

    def __init__(self, wanted: Wanted) -> None:
        self.name = wanted.name
        self.dimensions = wanted.length
        self._wanted = wanted
        self._client: OpenAI | None = None
        self._lock = threading.Lock()
        self._spent = (0, 0)
        self._one = lru_cache(KEPT)(lambda text: self._asked((text,)))

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One unit vector a text; an empty one gives zeros. Raises Unavailable if the endpoint gives none."""
        import numpy as np

        vectors = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        asked = [(row, text[:LONGEST]) for row, text in enumerate(texts) if text.strip()]
        for first in range(0, len(asked), BATCH):
            batch = asked[first : first + BATCH]
            given = tuple(text.encode("utf-8", "replace").decode() for _, text in batch)
            vectors[[row for row, _ in batch]] = self._one(given[0]) if len(given) == 1 else self._asked(given)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors /= np.where(lengths > 0, lengths, 1)
        return vectors

    def take_spent(self) -> tuple[int, int]:
        """Calls and tokens since this was last asked."""
        with self._lock:
            spent, self._spent = self._spent, (0, 0)
        return spent

    def _asked(self, texts: tuple[str, ...]) -> NDArray[np.float32]:
        import numpy as np
        from openai import OpenAIError, omit

        # A model's own length is not asked for: older models and other endpoints do not know the argument.
        shorter = self.dimensions != DIMENSIONS.get(self._wanted.chosen_model, self.dimensions)
        try:
            answer = self._connected().embeddings.create(
                model=self._wanted.chosen_model,
                input=list(texts),
                encoding_format="float",
                dimensions=self.dimensions if shorter else omit,
            )
            found = np.asarray([one.embedding for one in sorted(answer.data, key=lambda one: one.index)], np.float32)
        except (OpenAIError, Unavailable, AttributeError, TypeError, ValueError) as error:
            raise Unavailable(f"{self.name} gave no vectors ({error}); search uses keywords only for now") from error
        with self._lock:
            calls, tokens = self._spent
            self._spent = calls + 1, tokens + (answer.usage.prompt_tokens if answer.usage else 0)
        if found.shape != (len(texts), self.dimensions):
            raise Unavailable(
                f"{self.name} gave vectors of shape {found.shape}, not {(len(texts), self.dimensions)};"
                " set search.embedding_dimensions to what it gives"
            )
        return found

    def _connected(self) -> OpenAI:
        with self._lock:
            if self._client is None:
                from openai import DefaultHttpxClient, OpenAI  # takes half a second

                self._client = OpenAI(
                    api_key=self._wanted.key or "none",  # an endpoint of one's own wants none, the package wants one
                    base_url=self._wanted.base_url,
                    timeout=TIMEOUT_SECONDS,
                    max_retries=RETRIES,
                    default_headers=PLAIN,
                    http_client=DefaultHttpxClient(**careful_and_quick(MOST_BYTES, TIMEOUT_SECONDS)),
                )
            return self._client
