"""Search without an index: reads all files and ranks them with rank-bm25. Slow for many files, but always possible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from mcp_server.model import GLOBAL, Passage
from mcp_server.search import query, ranking
from mcp_server.storage.local.files import WorkspaceFiles
from mcp_server.storage.local.index.candidates import Found
from mcp_server.storage.local.index.connection import import_numpy
from mcp_server.storage.local.index.file_reader import read_file
from mcp_server.storage.values import FOLDERS, USUAL, Filters, is_indexed
from mcp_server.text.passages import indexed_text, own_text
from mcp_server.text.words import words

MOST_BYTES = 64_000_000
"""Bytes that a scan reads at most, newest files first."""


@dataclass(frozen=True, slots=True)
class Scanned:
    """The result of a scan. `complete` is False if the workspace was too large to read all of it."""

    asked: query.Query
    found: tuple[Found, ...]
    frequencies: tuple[int, ...]
    passages: int
    complete: bool


@dataclass(slots=True)
class Scan:
    """Searches the files. The passages are cached while no file changes."""

    files: WorkspaceFiles
    _seen: tuple[tuple[str, int, int], ...] | None = None
    _passages: tuple[Passage, ...] = ()
    _words: tuple[tuple[str, ...], ...] = ()
    _mtimes: dict[str, float] | None = None
    _complete: bool = True

    def search(self, text: str, filters: Filters) -> Scanned:
        """Returns the candidates for a query, without cosines. Blocks: call it in a worker thread."""
        self._read()
        mtimes = self._mtimes or {}
        kept = [index for index, p in enumerate(self._passages) if _inside(p, filters, mtimes.get(p.path, 0.0))]
        kept = _with_phrases(self._passages, self._words, kept, filters)
        corpus = [self._words[index] for index in kept]
        passages = [self._passages[index] for index in kept]
        asked = query.read_query(text, sorted({p.speaker for p in passages if p.speaker}))
        holding = [set(found).intersection(asked.lookup) for found in corpus]
        frequencies = tuple(sum(word in held for held in holding) for word in asked.lookup)
        asked = query.weigh(asked, frequencies, len(corpus))
        keywords = set(asked.words)
        matching = [i for i, held in enumerate(holding) if held & keywords]
        found: tuple[Found, ...] = ()
        if matching:
            import_numpy()
            from rank_bm25 import BM25Plus

            scores = BM25Plus([list(each) or [""] for each in corpus]).get_scores(list(asked.words))
            best = sorted(matching, key=lambda i: -scores[i])[: USUAL.words]
            found = tuple(
                self._candidate(asked, passages, corpus, i, float(scores[i]), holding[i]) for i in sorted(best)
            )
        return Scanned(asked, found, frequencies, len(corpus), self._complete)

    def _read(self) -> None:
        stats = [stat for folder in FOLDERS for stat in self.files.walk(folder) if is_indexed(stat.path)]
        seen = tuple((stat.path, stat.size, stat.mtime_ns) for stat in stats)
        if seen == self._seen:
            return
        passages: list[Passage] = []
        size, self._complete = 0, True
        for stat in sorted(stats, key=lambda stat: -stat.mtime_ns):
            size += stat.size
            if size > MOST_BYTES:
                self._complete = False
                break
            passages += read_file(self.files, stat.path, None).passages
        self._passages = tuple(passages)
        self._words = tuple(tuple(words(indexed_text(passage))) for passage in passages)
        self._mtimes = {stat.path: stat.mtime_ns / 1e9 for stat in stats}
        self._seen = seen

    def _candidate(
        self,
        asked: query.Query,
        passages: Sequence[Passage],
        corpus: Sequence[tuple[str, ...]],
        index: int,
        score: float,
        held: set[str],
    ) -> Found:
        p = passages[index]
        own = own_text(p)
        beside = set(zip(corpus[index], corpus[index][1:], strict=False))
        transcript = p.turn is not None
        candidate = ranking.Candidate(
            path=p.path,
            line=p.start,
            unit=p.unit,
            group=f"session {p.session}" if transcript else p.path,
            ordinal=p.turn if p.turn is not None else p.ordinal,
            bm25=score,
            matched=sum(1 << bit for bit, word in enumerate(asked.lookup) if word in held),
            pairs=sum(pair in beside for pair in asked.pairs),
            role=p.role,
            speaker=p.speaker,
            length=len(own),
            tells_time=ranking.tells_time(own),
            first_person=ranking.first_person(own),
            ends_with_question=ranking.ends_with_question(own),
            part=p.part,
        )
        return Found(candidate, p)


def _inside(p: Passage, filters: Filters, mtime: float) -> bool:
    at = p.at.timestamp() if p.at else mtime
    return (
        (filters.projects is None or p.project == GLOBAL or p.project in filters.projects)
        and (filters.category is None or p.category == filters.category)
        and (filters.session is None or p.session == filters.session)
        and not _excluded(p, filters)
        and (filters.speaker is None or p.speaker == filters.speaker)
        and (filters.since is None or at >= filters.since.timestamp())
        and (filters.until is None or at < filters.until.timestamp())
    )


def _excluded(p: Passage, filters: Filters) -> bool:
    if not filters.exclude_session or p.session != filters.exclude_session:
        return False
    return filters.exclude_from is None or (p.turn or 0) >= filters.exclude_from


def _with_phrases(
    passages: Sequence[Passage], corpus: Sequence[tuple[str, ...]], kept: list[int], filters: Filters
) -> list[int]:
    """Returns those of `kept` whose unit contains all phrases and no excluded one."""
    if not filters.phrases and not filters.excluded:
        return kept
    inside: list[int] = []
    for _, group in groupby(kept, key=lambda index: passages[index].unit):
        unit = list(group)
        texts = [f" {' '.join(corpus[index])} " for index in unit]

        def holds(sequence: tuple[str, ...], texts: list[str] = texts) -> bool:
            return any(f" {' '.join(sequence)} " in text for text in texts)

        if all(holds(s) for s in filters.phrases) and not any(holds(s) for s in filters.excluded):
            inside += unit
    return inside
