"""The plain figure beside ours: textbook BM25 over the turns, no index, no embedder, no knowledge of conversations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from mcp_server.text.words import content_words, words

if TYPE_CHECKING:
    from rank_bm25 import BM25Okapi


class Bm25:
    """Ranks texts by `rank-bm25`, as the scan does that serves while there is no index."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        from rank_bm25 import BM25Okapi

        self._ids = list(texts)
        self._ranking: BM25Okapi | None = BM25Okapi([words(text) for text in texts.values()]) if texts else None

    def ranked(self, query: str, limit: int) -> list[str]:
        """The ids of the best `limit` texts, best first; those that share no word with the query are left out."""
        if self._ranking is None:
            return []
        scores = self._ranking.get_scores(content_words(query) or words(query))
        order = sorted(range(len(self._ids)), key=lambda place: -scores[place])
        return [self._ids[place] for place in order[:limit] if scores[place] > 0]
