"""Embedders: text in, unit vectors out. Here are the protocols and what the settings name, in `providers` the rest.

    embedder, problem = providers.load(Wanted("wordllama"))

The name and the dimensions are known before an embedder is loaded: the index is made for them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Embedder(Protocol):
    """The interface of an embedder for the index. Calls block and may come from any thread."""

    @property
    def name(self) -> str:
        """The name in index files and receipts."""
        ...

    @property
    def dimensions(self) -> int:
        """The length of every vector."""
        ...

    @property
    def gate_threshold(self) -> float:
        """The cosine from which the gate is open."""
        ...

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Returns a row of length 1 per text, zeros for a text without a known token. Does not depend on the
        other texts. Raises Unavailable if the provider cannot be reached or loaded."""
        ...


@runtime_checkable
class Metered(Protocol):
    """An embedder whose calls cost money."""

    def take_spent(self) -> tuple[int, int]:
        """Returns the calls and tokens since the last call of this method."""
        ...


Name = Literal["wordllama", "none", "openai", "sentence-transformers"]

MODELS: Mapping[Name, str] = {"openai": "text-embedding-3-small", "sentence-transformers": "all-MiniLM-L6-v2"}
"""The default model of each provider that has several."""

DIMENSIONS: Mapping[str, int] = {
    "wordllama": 256,
    "text-embedding-3-small": 1536,
    "text-embedding-3-large": 3072,
    "all-MiniLM-L6-v2": 384,
    "all-mpnet-base-v2": 768,
}
"""The length of the vectors of known models; for others the settings give it."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The embedder that the settings name. `model` and `dimensions` are for providers with several models, `key` and
    `base_url` for those behind HTTP."""

    provider: Name
    model: str | None = None
    dimensions: int | None = None
    base_url: str | None = None
    key: str | None = None

    @property
    def chosen_model(self) -> str:
        """The model's name, or the provider's if it has only one model."""
        return self.model or MODELS.get(self.provider, self.provider)

    @property
    def name(self) -> str:
        """A name that no other model's vectors share: `openai-text-embedding-3-small-1536`."""
        if self.provider not in MODELS:
            return self.provider
        model = re.sub(r"[^a-z0-9.]+", "-", self.chosen_model.lower()).strip("-")
        return f"{self.provider}-{model}-{self.length}"

    @property
    def length(self) -> int:
        """The length of a vector; 0 if it is not known."""
        return self.dimensions or DIMENSIONS.get(self.chosen_model, 0)
