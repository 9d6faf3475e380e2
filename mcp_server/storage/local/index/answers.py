"""What an index answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mcp_server.model import Passage
from mcp_server.search import query, ranking
from mcp_server.storage.local.index.reader import Found

Mode = Literal["hybrid", "keyword", "vector"]


@dataclass(frozen=True, slots=True)
class Candidates:
    """What might answer a query. `asked` goes to `ranking.rank` together with the candidates of `found`.

    `frequencies` (of the words of `asked.lookup`) and `passages` count the scope: the gate wants them. `used` says
    how they were found: "hybrid", "keyword", "vector", or "scan" when the index could not serve. `generation` names
    the index.
    """

    asked: query.Query
    found: tuple[Found, ...]
    frequencies: tuple[int, ...]
    passages: int
    used: Literal["hybrid", "keyword", "vector", "scan"]
    generation: str
    messages: tuple[str, ...] = ()

    @property
    def candidates(self) -> tuple[ranking.Candidate, ...]:
        """For the ranking."""
        return tuple(one.candidate for one in self.found)

    @property
    def said(self) -> tuple[ranking.Candidate, ...]:
        """For the gate: without lines that were derived from a candidate, which say nothing that it does not say."""
        return tuple(one.candidate for one in self.found if one.source is None)

    def passage(self, candidate: ranking.Candidate) -> Passage:
        """The passage that a candidate stands for."""
        return next(one.passage for one in self.found if one.candidate is candidate)


@dataclass(frozen=True, slots=True)
class IndexStatus:
    """For `status` and `doctor`. `state`: ready, building, missing, broken; `vectors`: sqlite-vec, numpy, none."""

    state: str
    generation: str
    embedder: str
    vectors: str
    sqlite: str
    files: int
    passages: int
    not_embedded: int
    size_bytes: int
    problems: tuple[str, ...]
    messages: tuple[str, ...]
