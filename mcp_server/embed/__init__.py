"""Embedders: text in, unit vectors out. One file a provider, one Protocol for all.

    wanted = Wanted("wordllama")
    embedder, message = load(wanted)

`load` only looks whether a provider is installed; its weights come into memory, or its endpoint is asked, with the
first text. The name and the dimensions of what is wanted are known without it: the index is made for them.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Embedder(Protocol):
    """What the index needs of a provider. Calls block and may come from any thread."""

    @property
    def name(self) -> str:
        """As index file names and receipts write it."""
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
        the batch. Raises Unavailable if the provider cannot be reached or loaded."""
        ...


@runtime_checkable
class Metered(Protocol):
    """An embedder that somebody has to pay for."""

    def take_spent(self) -> tuple[int, int]:
        """Calls and tokens since this was last asked."""
        ...


Name = Literal["wordllama", "none", "openai", "sentence-transformers"]

MODELS: Mapping[Name, str] = {"openai": "text-embedding-3-small", "sentence-transformers": "all-MiniLM-L6-v2"}
"""The model of a provider that has several, where the settings name none."""

DIMENSIONS: Mapping[str, int] = {
    "wordllama": 256,
    "text-embedding-3-small": 1536,
    "text-embedding-3-large": 3072,
    "all-MiniLM-L6-v2": 384,
    "all-mpnet-base-v2": 768,
}
"""Of models that we know; for others the settings say it."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The embedder that the settings name: `model` and `dimensions` of a provider that has several, `key` and
    `base_url` of one that is asked over HTTP."""

    provider: Name
    model: str | None = None
    dimensions: int | None = None
    base_url: str | None = None
    key: str | None = None

    @property
    def chosen_model(self) -> str:
        """The model's name, or the provider's where it has only one."""
        return self.model or MODELS.get(self.provider, self.provider)

    @property
    def name(self) -> str:
        """Tells its vectors from all others': `openai-text-embedding-3-small-1536`."""
        if self.provider not in MODELS:
            return self.provider
        model = re.sub(r"[^a-z0-9.]+", "-", self.chosen_model.lower()).strip("-")
        return f"{self.provider}-{model}-{self.length}"

    @property
    def length(self) -> int:
        """Numbers of a vector; 0 if nobody knows."""
        return self.dimensions or DIMENSIONS.get(self.chosen_model, 0)


def load(wanted: Wanted) -> tuple[Embedder | None, str | None]:
    """The embedder, and a sentence for `status` if there is none although one was asked for."""
    if wanted.provider == "none":
        return None, None
    package = wanted.provider.replace("-", "_")
    if importlib.util.find_spec(package) is None:
        return None, f"the package {wanted.provider} is not installed; {_KEYWORDS} (pip install {wanted.provider})"
    if not wanted.length:
        return (
            None,
            f"search.embedding_dimensions does not say how long vectors of {wanted.chosen_model} are; {_KEYWORDS}",
        )
    if wanted.provider == "wordllama":
        from mcp_server.embed.wordllama import WordLlamaEmbedder

        return WordLlamaEmbedder(), None
    if wanted.provider == "sentence-transformers":
        from mcp_server.embed.sentence_transformers import SentenceTransformersEmbedder

        return SentenceTransformersEmbedder(wanted), None
    if not wanted.key and not wanted.base_url:
        return None, f"search.embedder is openai, and no key is in $OPENAI_API_KEY; {_KEYWORDS}"
    from mcp_server.embed.openai import OpenAIEmbedder

    return OpenAIEmbedder(wanted), None


_KEYWORDS = "search uses keywords only"
