"""The state of the index, in figures and sentences, for `status` and `doctor`."""

from __future__ import annotations

from mcp_server.storage.local.database import driver
from mcp_server.storage.local.index.answers import IndexStatus
from mcp_server.storage.local.index.inside import Counts
from mcp_server.storage.local.index.opening import Health, Reading


def standing(
    counts: Counts | None, opened: Reading | None, health: Health, embedder: str, known: tuple[str, ...]
) -> IndexStatus:
    """Returns the contents and problems of the index.

    Args:
        counts: None if the index cannot be read.
        opened: the open generation, if any.
        embedder: its name, or "none".
        known: problems with the embedder.
    """
    messages = list(known)
    if counts is None:
        state = "broken" if health.broken else "building" if health.building else "missing"
        messages.insert(0, f"the search index is {health.absence}: searches read the files until it is rebuilt")
        counts = Counts(0, 0, 0, ())
    else:
        state = "building" if health.building or counts.unfinished else "ready"
        if counts.not_embedded and embedder != "none":
            messages.append(f"{counts.not_embedded} passages are not embedded yet: they are found by keywords only")
    uses_vec = opened is not None and opened.near.loads_vectors
    if embedder != "none" and opened is not None and not uses_vec:
        messages.append(
            "sqlite-vec cannot be loaded by this Python; similarity is computed with NumPy (pip install pysqlite3)"
        )
    return IndexStatus(
        state=state,
        generation=str(opened.generation.number) if opened else "none",
        embedder=embedder,
        vectors="none" if embedder == "none" else "sqlite-vec" if uses_vec or opened is None else "numpy",
        sqlite=f"{driver().name} {driver().version}",
        files=counts.files,
        passages=counts.passages,
        not_embedded=counts.not_embedded,
        size_bytes=opened.generation.path.stat().st_size if opened and opened.generation.path.exists() else 0,
        problems=counts.problems,
        messages=tuple(messages),
    )
