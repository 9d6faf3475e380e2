"""The interfaces of embedders, which turn texts into unit vectors, and the embedder that the settings name. `providers`
has the implementations.

    embedder, problem = providers.load(Wanted("wordllama"))

Name and dimensions are known before an embedder is loaded, because the index is built for them.
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
        """Returns the name in index files and receipts."""
        ...

    @property
    def dimensions(self) -> int:
        """Returns the length of every vector."""
        ...

    @property
    def gate_threshold(self) -> float:
        """Returns the lowest cosine at which the gate opens."""
        ...

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Returns a unit vector per text as a row, zeros for a text without a known token. A row does not depend on the
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
"""The vector length of known models. For other models the settings have it."""


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
        """Returns the model's name, or the provider's if it has only one model."""
        return self.model or MODELS.get(self.provider, self.provider)

    @property
    def name(self) -> str:
        """Returns a name that is unique for model and vector length: `openai-text-embedding-3-small-1536`."""
        if self.provider not in MODELS:
            return self.provider
        model = re.sub(r"[^a-z0-9.]+", "-", self.chosen_model.lower()).strip("-")
        return f"{self.provider}-{model}-{self.length}"

    @property
    def length(self) -> int:
        """Returns the length of a vector; 0 if it is not known."""
        return self.dimensions or DIMENSIONS.get(self.chosen_model, 0)
