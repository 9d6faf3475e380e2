"""Scores the candidates of a query: BM25 of every word as in FTS5, and the exact cosine, regardless of how a candidate
was found.

Also defines the plan of a query (its words with their frequencies, and the words that fetch passages), and the narrow
int8 vectors that find the nearest passages before the exact comparison.
"""

from __future__ import annotations

import importlib
import math
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from mcp_server.model import Category, Exchange, Passage
from mcp_server.search.query import Query
from mcp_server.search.ranking import Candidate, matching_best
from mcp_server.storage.values import Candidates, Mode
from mcp_server.text.entries import Source, sources_of, statement, without_sources
from mcp_server.understanding.encoder import vector

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


K1, B = 1.2, 0.75
"""BM25's constants, as in FTS5."""


@dataclass(frozen=True, slots=True)
class SmallScope:
    """The words of all passages of a small scope. `stems` has the stems of one passage after the other, `lengths` their
    number per passage. `owner` has for each stem the index in `ids` of its passage."""

    ids: NDArray[np.int64]
    stems: NDArray[np.uint32]
    owner: NDArray[np.intp]
    lengths: NDArray[np.intp]

    @classmethod
    def of(cls, rows: Sequence[tuple[int, bytes]]) -> SmallScope:
        """Returns the scope of these passages: pairs of id and stems, ordered by id."""
        import numpy as np

        lengths = np.array([len(stems) // 4 for _, stems in rows], dtype=np.intp)
        return cls(
            ids=np.array([number for number, _ in rows], dtype=np.int64),
            stems=np.frombuffer(b"".join(stems for _, stems in rows), dtype="<u4"),
            owner=np.repeat(np.arange(len(rows)), lengths),
            lengths=lengths,
        )

    def holding(self, stems: Sequence[int]) -> list[int]:
        """Returns for each stem how many passages contain it."""
        import numpy as np

        return [len(np.unique(self.owner[self.stems == stem])) for stem in stems]

    def best(self, words: Sequence[Fetching], passages: int, mean_words: float, most: int) -> list[int]:
        """Returns the ids of the `most` passages that match best. `passages` and `mean_words` are those of the whole
        index."""
        import numpy as np

        total = np.zeros(len(self.ids))
        norm = K1 * (1 - B + B * self.lengths / mean_words)
        for _, stem, frequency in words:
            times = np.bincount(self.owner[self.stems == stem], minlength=len(self.ids))
            total += bm25_idf(passages, frequency) * times * (K1 + 1) / (times + norm)
        order = np.argsort(-total, kind="stable")[:most]
        return [int(number) for number in self.ids[order[total[order] > 0]]]


def bm25_idf(passages: int, frequency: int) -> float:
    """Returns a word's inverse document frequency: it is in `frequency` of `passages`."""
    return max(math.log(max((passages - frequency + 0.5) / (frequency + 0.5), 1e-6)), 1e-6)


@dataclass(frozen=True, slots=True)
class Scope:
    """The filters of a query, prepared for an index. `condition` is SQL about a passage's row `m`, with names in braces
    from the dialect of `searching`, and `values` for its placeholders.

    `projects` and `without_session` are also part of the condition; counting and searching by meaning need them
    separately. `other`: the condition has more parts. `everything`: the scope is the whole index. `lines`: derived
    lines are searched and counted as separate passages.
    """

    condition: str
    values: tuple[Any, ...]
    projects: list[Any] | None
    without_session: Any
    other: bool
    everything: bool
    lines: bool


class Fetching(NamedTuple):
    """A word that fetches passages, its stem, and the number of passages of the whole index that contain it."""

    word: str
    stem: int
    frequency: int


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """A query, prepared for an index. `numbers` are the stems of `asked.lookup`. `fetching` are the words that fetch
    passages. `of_lines` are words that no turn contains; they also fetch derived lines.

    `frequencies` and `passages` are counted in the scope; `everywhere`, `all_passages` and `mean_words` in the whole
    index, for BM25. Derived lines are counted only if the scope includes them. `small` has the words of a small scope.
    """

    asked: Query
    numbers: tuple[int, ...]
    frequencies: tuple[int, ...]
    passages: int
    everywhere: tuple[int, ...]
    all_passages: int
    mean_words: float
    fetching: tuple[Fetching, ...]
    of_lines: tuple[Fetching, ...]
    small: SmallScope | None


@dataclass(slots=True)  # not frozen for the same reason as a Candidate
class Found:
    """A candidate, and its passage, which is created on access."""

    candidate: Candidate
    _row: tuple[Any, ...]
    _names: Mapping[int, str]
    sources: tuple[Source, ...] = ()
    """The turns that a derived line comes from; empty for other passages."""
    source: int | None = None
    """For a derived line: the row id of the candidate passage that it comes from."""

    @property
    def row_id(self) -> int:
        """Returns the passage's number in this index."""
        return int(self._row[0])

    @property
    def text(self) -> str:
        return str(self._row[7])

    @property
    def passage(self) -> Passage:
        """Returns the passage. It is created on access, because only a few of some hundred candidates are shown."""
        return passage_of(self._row, self._names)


def attach_lines(found: Sequence[Found], of: Mapping[Source, int]) -> list[Found]:
    """Returns the candidates, with each derived line in the unit of the turn that it comes from.

    A derived line is left out if its turn is in the scope (`of`) but is no candidate.
    """
    turns: dict[str, Candidate] = {}
    most = 0.0
    for one in found:
        if not one.sources:
            turns.setdefault(one.candidate.unit, one.candidate)
            most = max(most, one.candidate.bm25)
    together: list[Found] = []
    for one in found:
        number = next((of[source] for source in one.sources[:1] if source in of), None)
        turn = turns.get(f"{one.sources[0].path}#{one.sources[0].turn}") if number is not None else None
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


def best_rows(plan: QueryPlan, found: Sequence[Found], units: int) -> list[int]:
    """Returns the row id of one passage of each of the best `units`; for a derived line, of the turn that it comes
    from."""
    numbers = {id(one.candidate): one.source or one.row_id for one in found}
    return [numbers[id(one)] for one in matching_best(plan.asked, [one.candidate for one in found], units)]


def as_candidates(
    plan: QueryPlan, found: Sequence[Found], mode: Mode, by_meaning: bool, generation: str, messages: Iterable[str]
) -> Candidates:
    """Returns the result of a search. In a search by meaning alone, candidates have no keyword scores."""
    if mode == "vector" and by_meaning:
        found = [replace(one, candidate=replace(one.candidate, bm25=0.0, matched=0, pairs=0)) for one in found]
    return Candidates(
        plan.asked,
        tuple(found),
        plan.frequencies,
        plan.passages,
        mode if by_meaning else "keyword",
        generation,
        tuple(messages),
    )


EXCHANGE_PARTS = 2
"""Parts of a turn that `exchanges_of` compares: about 1,600 characters."""


def exchanges_of(
    rows: Iterable[tuple[Any, ...]], vector: NDArray[np.float32], turns: Sequence[Source]
) -> dict[Source, Exchange]:
    """Returns the similarity of turns and their neighbors to a message's vector. Turns without a vector are left out.
    `rows` are path, turn, part and vector of the first EXCHANGE_PARTS parts of turns and neighbors."""
    import numpy as np

    places: dict[tuple[str, int], int] = {}
    parts = [(places.setdefault((path, mark), len(places)), blob) for path, mark, _, blob in rows]
    summed = np.zeros((len(places), len(vector)), dtype=np.float32)
    joined = np.frombuffer(b"".join(blob for _, blob in parts), dtype="<f2").reshape(len(parts), len(vector))
    for (place, _), part in zip(parts, joined.astype(np.float32), strict=True):
        summed[place] += part
    lengths = np.sqrt(np.array([one @ one for one in summed], dtype=np.float32))
    units = summed / np.where(lengths, lengths, 1)[:, None]
    near = [float(one @ vector) for one in units]
    found = {}
    for turn in turns:
        steps = [places.get((turn.path, turn.turn + step), -1) for step in (-1, 0, 1)]
        if steps[1] >= 0 and lengths[steps[1]]:
            three = [place for place in steps if place >= 0 and lengths[place]]
            mean = units[three].sum(axis=0)
            nearest = max(near[place] for place in three)
            found[turn] = Exchange(near[steps[1]], float(mean @ vector / (np.sqrt(mean @ mean) or 1.0)), nearest)
    return found


def passage_of(row: tuple[Any, ...], names: Mapping[int, str]) -> Passage:
    """Returns the passage of a row, exactly as it was indexed."""
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
    plan: QueryPlan,
    rows: Sequence[tuple[Any, ...]],
    names: Mapping[int, str],
    vector: NDArray[np.float32] | None,
    about: NDArray[np.float32] | None,
) -> list[Found]:
    """Returns candidates with their raw values: BM25, matched words and pairs of words, exact cosines. `vector` is the
    query's vector by the embedder, `about` its vector by the recognizer's network."""
    import numpy as np

    many = len(rows)
    stems = np.frombuffer(b"".join(row[21] for row in rows), dtype="<u4")
    lengths = np.array([len(row[21]) // 4 for row in rows])
    owner = np.repeat(np.arange(many), lengths)
    norm = K1 * (1 - B + B * lengths / plan.mean_words)
    bm25 = np.zeros(many)
    matched = [0] * many
    where: dict[str, NDArray[np.intp]] = {}
    keywords = len(plan.asked.words)
    for bit, (word, number, frequency) in enumerate(zip(plan.asked.lookup, plan.numbers, plan.everywhere, strict=True)):
        places = where[word] = np.flatnonzero(stems == number)
        if not len(places):
            continue
        times = np.bincount(owner[places], minlength=many)
        if bit < keywords:  # names of speakers are looked up too, but are not keywords
            bm25 += bm25_idf(plan.all_passages, frequency) * times * (K1 + 1) / (times + norm)
        for place in np.flatnonzero(times).tolist():  # Python's integers: a query may have more than 64 words
            matched[place] |= 1 << bit
    pairs = np.zeros(many, dtype=int)
    for first, second in plan.asked.pairs:
        if first in where and second in where:
            beside = np.intersect1d(where[first] + 1, where[second], assume_unique=True)
            beside = beside[owner[beside] == owner[beside - 1]] if len(beside) else beside
            pairs[np.unique(owner[beside])] += 1
    cosines = _cosines([row[22] for row in rows], vector, "<f2")
    nearness = _cosines([row[23] for row in rows], about, "i1")
    named = map(sources_of, [row[7] if row[12] is None else "" for row in rows])
    found: list[Found] = []
    for row, keywords_value, cosine, near, words_in, beside_each_other, of in zip(
        rows, bm25.tolist(), cosines, nearness, matched, pairs.tolist(), named, strict=True
    ):
        path, mark, part, ordinal, line = row[1:6]
        session, turn = row[11:13]
        length, tells_time, first_person, asks = row[17:21]
        candidate = Candidate(  # positional: a search has hundreds, and keyword arguments take twice the time
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
            False,
            near,
        )
        found.append(Found(candidate, row, names, of))
    return found


def _cosines(
    blobs: Sequence[bytes | None], vector: NDArray[np.float32] | None, number: Literal["<f2", "i1"]
) -> list[float | None]:
    """Returns the cosine of each stored vector with a unit vector; None for a missing vector, or one of another
    dimension. The vectors are stored as float16 with length 1, or as int8."""
    import numpy as np

    cosines: list[float | None] = [None] * len(blobs)
    size = np.dtype(number).itemsize * len(vector) if vector is not None else 0
    usable = [index for index, blob in enumerate(blobs) if size and blob is not None and len(blob) == size]
    if vector is None or not usable:
        return cosines
    joined = np.frombuffer(b"".join(blobs[index] or b"" for index in usable), dtype=number)
    matrix = joined.reshape(len(usable), len(vector)).astype(np.float32)
    found = matrix @ vector
    if number == "i1":
        found /= np.maximum(np.linalg.norm(matrix, axis=1), 1.0)
    for index, cosine in zip(usable, found.tolist(), strict=True):
        cosines[index] = cosine
    return cosines


def packed_about(passages: Iterable[tuple[str, bool]]) -> list[bytes]:
    """Returns the vector of each text by the recognizer's network, as it is stored: int8, or empty for a text that is
    not in English. The second value is True for derived lines, which are read without date and sources. Takes 5 to 35
    ms per text."""
    found = [vector(statement(without_sources(text)) if derived else text) for text, derived in passages]
    return [b"" if one is None else in_bytes(one.reshape(1, -1), len(one)).tobytes() for one in found]


_importing = threading.Lock()
numpy_is_there = threading.Event()


def import_numpy() -> None:
    """Imports NumPy in one thread at a time, because two simultaneous first imports break it."""
    with _importing:
        importlib.import_module("numpy")
        numpy_is_there.set()


ENOUGH = 0.5
"""If at least this share of the wanted neighbors is in the scope, no more are searched."""

SCALE = 254.0
"""int8 = round(254 · x): the components of unit vectors with 100 or more dimensions are within ±0.5."""


def in_bytes(half: NDArray[Any], first: int) -> NDArray[np.int8]:
    """Returns the `first` dimensions of vectors (one per row) as int8.

    They are normalized again, so that L2 distance gives the same order as the cosine.
    """
    import numpy as np

    shown = half[:, :first].astype(np.float32)
    length = np.linalg.norm(shown, axis=1, keepdims=True)
    whole: NDArray[np.float32] = np.rint(shown / np.where(length > 0, length, 1) * SCALE)
    return whole.clip(-127, 127).astype(np.int8)
