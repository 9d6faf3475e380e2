"""Candidates: passages that might answer a query, with the raw values that ranking needs.

Two connections work at once (`finding`): one fetches by words (`asking`), the other by meaning (`vectors`). Together
they give some hundred passages, and all of these are then scored by every word and by the exact cosine, however they
were found.

BM25 is FTS5's own formula (k1 = 1.2, b = 0.75), counted from the stems that are stored with a passage.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

from mcp_server.model import Category, Passage
from mcp_server.search.ranking import Candidate, matching_best
from mcp_server.storage.local.index.query_plan import K1, Asking, B, idf
from mcp_server.storage.local.index.scope import Scope, inside
from mcp_server.text.derived_lines import Source, sources_of, without_sources

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FILLING_PARTS = 8
"""Of a long neighbour only its beginning comes in: a turn of megabytes has thousands of parts."""


@dataclass(slots=True)  # not frozen for the same reason as a Candidate
class Found:
    """A candidate, with its passage to show."""

    candidate: Candidate
    _row: tuple[Any, ...] | Passage
    _names: Mapping[int, str] = field(default_factory=dict)
    source: int | None = None
    """Of a line that an extractor wrote: the number of the passage that it comes from, if that is a candidate too."""

    @property
    def row_id(self) -> int | None:
        """The passage's number in this index; None where it was read from the files."""
        return None if isinstance(self._row, Passage) else self._row[0]

    @property
    def sources(self) -> tuple[Source, ...]:
        """The turns that a derived line comes from; empty for every other passage."""
        row = self._row
        if isinstance(row, Passage):
            return () if row.turn is not None else sources_of(row.text)
        return () if row[12] is not None else sources_of(row[7])

    @property
    def text(self) -> str:
        return self._row.text if isinstance(self._row, Passage) else self._row[7]

    @property
    def passage(self) -> Passage:
        """Made when asked for: of some hundred candidates few are shown."""
        return self._row if isinstance(self._row, Passage) else passage_of(self._row, self._names)


def around(
    connection: sqlite3.Connection, asking: Asking, found: Sequence[Found], scope: Scope, best_units: int
) -> list[int]:
    """The passages of the turns at one and two steps from the `best_units` that match best, if not found yet.

    An answer often shares no word with the question that its neighbour repeats: without these, 7% of the turns that
    answer a question are no candidates at all (`bench retrieval`).
    """
    ids = {id(one.candidate): one.source or one.row_id for one in found}
    best = [ids[id(one)] for one in matching_best(asking.asked, [one.candidate for one in found], best_units)]
    rows = connection.execute(
        "SELECT DISTINCT n.id FROM json_each(?) j CROSS JOIN knowledge_meta b ON b.id = j.value "
        "CROSS JOIN knowledge_meta n ON n.file = b.file AND n.mark BETWEEN b.mark - 2 AND b.mark + 2 "
        "WHERE n.mark <> b.mark AND n.session = b.session AND n.part < ?",
        (json.dumps(best), FILLING_PARTS),
    )
    known = {one.row_id for one in found}
    return inside(connection, [row[0] for row in rows if row[0] not in known], scope)


def sources(connection: sqlite3.Connection, found: Sequence[Found], scope: Scope) -> dict[Source, int]:
    """The passages of the turns that derived lines among `found` come from, as far as they lie in the scope."""
    wanted = {source for one in found for source in one.sources[:1]}
    if not wanted:
        return {}
    rows = connection.execute(
        "SELECT f.path, m.mark, m.id FROM json_each(?) j "
        "CROSS JOIN files f ON f.path = json_extract(j.value, '$[0]') "
        "CROSS JOIN knowledge_meta m ON m.file = f.id AND m.mark = json_extract(j.value, '$[1]') AND m.part = 0",
        (json.dumps([(source.path, source.turn) for source in sorted(wanted, key=str)]),),
    ).fetchall()
    kept = set(inside(connection, [row[2] for row in rows], scope))
    return {Source(path, turn): number for path, turn, number in rows if number in kept}


def united(found: Sequence[Found], of: Mapping[Source, int]) -> list[Found]:
    """The candidates, derived lines as further passages of the turns that they come from: what a line says was said
    there, so both are one unit, which stands where the turn stands. A line whose turn is in the scope (`of`) and no
    candidate is none either."""
    turns: dict[str, Candidate] = {}
    most = 0.0
    for one in found:
        if not one.sources:
            turns.setdefault(one.candidate.unit, one.candidate)
            most = max(most, one.candidate.bm25)
    together: list[Found] = []
    for one in found:
        number = next((of[source] for source in one.sources[:1] if source in of), None)
        turn = turns.get(str(one.sources[0])) if number is not None else None
        if turn is None:
            together += [one] if number is None else []
            continue
        candidate = replace(
            one.candidate,
            unit=turn.unit,
            group=turn.group,
            ordinal=turn.ordinal,
            first_person=turn.first_person,
            tells_time=turn.tells_time,
            length=len(without_sources(one.text)),
            bm25=min(one.candidate.bm25, most),
            derived=True,
        )
        together.append(replace(one, candidate=candidate, source=number))
    return together


COLUMNS = (
    "m.id, f.path, m.mark, m.part, p.ordinal, p.first_line, p.last_line, p.text, p.title, m.category, m.project, "
    "m.session, p.turn, p.turn_id, p.role, m.speaker, m.at, "
    "p.chars, p.tells_time, p.first_person, p.ends_with_question, p.stems, p.vector"
)
JOINS = (
    "CROSS JOIN knowledge_meta m ON m.id = {id} CROSS JOIN passages p ON p.id = m.id "
    "CROSS JOIN files f ON f.id = m.file"
)
NAMED = (9, 10, 11, 15)
"""Columns that hold numbers of names."""


def fetch_rows(connection: sqlite3.Connection, ids: Sequence[int], names: dict[int, str]) -> list[tuple[Any, ...]]:
    """Everything about these passages, in order of id, without those that are gone. `names` learns what is new."""
    rows = connection.execute(
        f"SELECT {COLUMNS} FROM json_each(?) i {JOINS.format(id='i.value')}",
        (json.dumps(sorted(set(ids))),),
    ).fetchall()
    learn(connection, rows, names)
    return rows


def learn(connection: sqlite3.Connection, rows: Sequence[tuple[Any, ...]], names: dict[int, str]) -> None:
    """Looks up the names in these rows that `names` does not hold yet. A number never gets another name."""
    new = {row[column] for row in rows for column in NAMED} - names.keys()
    if new:
        names.update(
            connection.execute(
                "SELECT id, name FROM names WHERE id IN (SELECT value FROM json_each(?))", (json.dumps(list(new)),)
            )
        )


def passage_of(row: tuple[Any, ...], names: Mapping[int, str]) -> Passage:
    """The passage in a row, just as it was indexed."""
    return Passage(
        path=row[1],
        unit=f"{row[1]}#{row[2]}",
        part=row[3],
        ordinal=row[4],
        start=row[5],
        end=row[6],
        text=row[7],
        title=row[8],
        category=cast(Category, names[row[9]]),
        project=names[row[10]],
        session=names[row[11]],
        turn=row[12],
        turn_id=row[13],
        role=row[14],
        speaker=names[row[15]],
        at=None if row[16] is None else datetime.fromtimestamp(row[16], UTC),
    )


def score(
    asking: Asking, rows: Sequence[tuple[Any, ...]], names: Mapping[int, str], vector: NDArray[np.float32] | None
) -> list[Found]:
    """Candidates with their raw values: BM25 and coverage by all words of the query, pairs of words, exact cosine."""
    import numpy as np

    if not rows:
        return []
    many = len(rows)
    stems = np.frombuffer(b"".join(row[21] for row in rows), dtype="<u4")
    lengths = np.array([len(row[21]) // 4 for row in rows])
    owner = np.repeat(np.arange(many), lengths)
    norm = K1 * (1 - B + B * lengths / asking.mean_words)
    bm25 = np.zeros(many)
    matched = [0] * many
    where: dict[str, NDArray[np.intp]] = {}
    keywords = len(asking.asked.words)
    for bit, (word, number, frequency) in enumerate(
        zip(asking.asked.lookup, asking.numbers, asking.everywhere, strict=True)
    ):
        places = where[word] = np.flatnonzero(stems == number)
        if not len(places):
            continue
        times = np.bincount(owner[places], minlength=many)
        if bit < keywords:  # names of speakers are looked up, and are no keywords
            bm25 += idf(asking.all_passages, frequency) * times * (K1 + 1) / (times + norm)
        for place in np.flatnonzero(times).tolist():  # Python's integers: a query may have more than 64 words
            matched[place] |= 1 << bit
    pairs = np.zeros(many, dtype=int)
    for first, second in asking.asked.pairs:
        if first in where and second in where:
            beside = np.intersect1d(where[first] + 1, where[second], assume_unique=True)
            beside = beside[owner[beside] == owner[beside - 1]] if len(beside) else beside
            pairs[np.unique(owner[beside])] += 1
    cosines = _cosines([row[22] for row in rows], vector)
    found: list[Found] = []
    for row, keywords_value, cosine, words_in, beside_each_other in zip(
        rows, bm25.tolist(), cosines, matched, pairs.tolist(), strict=True
    ):
        path, mark, part, ordinal, line = row[1:6]
        session, turn = row[11:13]
        length, tells_time, first_person, asks = row[17:21]
        candidate = Candidate(  # by position: there are hundreds a search, and keywords double what they take
            path,
            line,
            f"{path}#{mark}",
            path if turn is None else f"session {names[session]}",
            ordinal if turn is None else turn,
            keywords_value,
            cosine,
            words_in,
            beside_each_other,
            row[14],
            names[row[15]],
            length,
            bool(tells_time),
            first_person,
            bool(asks),
            part,
        )
        found.append(Found(candidate, row, names))
    return found


def _cosines(blobs: Sequence[bytes | None], vector: NDArray[np.float32] | None) -> list[float | None]:
    import numpy as np

    if vector is None:
        return [None] * len(blobs)
    size = 2 * len(vector)
    usable = [index for index, blob in enumerate(blobs) if blob is not None and len(blob) == size]
    cosines: list[float | None] = [None] * len(blobs)
    if usable:
        matrix = np.frombuffer(b"".join(blobs[index] or b"" for index in usable), dtype="<f2").reshape(
            len(usable), len(vector)
        )
        for index, cosine in zip(usable, (matrix.astype(np.float32) @ vector).tolist(), strict=True):
            cosines[index] = cosine
    return cosines
