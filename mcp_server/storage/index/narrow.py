"""Narrow vectors of whole numbers, by which the nearest passages are found before the exact comparison."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


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
