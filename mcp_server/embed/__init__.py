"""Embedders: text in, unit vectors out. One file a provider, one Protocol for all.

    embedder, message = load("wordllama")

`load` only looks whether a provider is installed; its weights come into memory with the first text.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Embedder(Protocol):
    """What the index needs of a provider. Calls block for about 0.3 ms a text and may come from any thread."""

    @property
    def name(self) -> str:
        """As settings and index file names write it."""
        ...

    @property
    def dimensions(self) -> int:
        """Length of every vector."""
        ...

    @property
    def gate_threshold(self) -> float:
        """The value from which the gate is open for this embedder's cosines (SPEC §7)."""
        ...

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One row a text, each of length 1; a text without a known token gives zeros. Independent of what else is in
        the batch."""
        ...


NAMES = ("wordllama", "none")


def load(name: str) -> tuple[Embedder | None, str | None]:
    """The embedder of that name, and a sentence for `status` if there is none although one was asked for."""
    if name == "none":
        return None, None
    if name != "wordllama":
        known = ", ".join(NAMES)
        return None, f"no embedder is called {name!r}; search uses keywords only. search.embedder may be {known}"
    if importlib.util.find_spec("wordllama") is None:
        return None, "the package wordllama is not installed; search uses keywords only (pip install wordllama)"
    from mcp_server.embed.wordllama import WordLlamaEmbedder

    return WordLlamaEmbedder(), None
