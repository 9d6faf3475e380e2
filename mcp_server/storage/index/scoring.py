"""The plan of a query (its words with their frequencies, and the words that fetch passages), and the scores of the
candidates: BM25 as in FTS5 of every word, and the exact cosine, however a candidate was found. Also the narrow vectors
of whole numbers, by which the nearest passages are found before the exact comparison."""

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
    """The words of all passages of a small scope: `stems` of one passage after the other; `owner` is the place in `ids`
    of the passage that each stem belongs to."""

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
    """Filters as an index understands them. `condition` is SQL over a row `m` of a passage, in the words of
    `searching`, with `values` for its placeholders.

    `projects` and `without_session` are part of the condition, and separate for counting and for searching by meaning.
    `other`: there are further conditions. `everything`: nothing is left out. `lines`: derived lines are searched and
    counted as passages of their own.
    """

    condition: str
    values: tuple[Any, ...]
    projects: list[Any] | None
    without_session: Any
    other: bool
    everything: bool
    lines: bool


class Fetching(NamedTuple):
    """A word that fetches passages: its stem, and the number of passages of the whole index that contain it."""

    word: str
    stem: int
    frequency: int


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """A query as an index understands it. `numbers` are the stems of `asked.lookup`. `fetching` are the words that
    fetch passages; derived lines are also fetched by words `of_lines`, which no turn contains.

    `frequencies` and `passages` are those of the scope; `everywhere`, `all_passages` and `mean_words` those of the
    whole index, which BM25 uses. Derived lines count only if the scope includes them. `small` are the words of the
    scope if it is small.
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
    """A candidate with its passage, which is made only when it is asked for."""

    candidate: Candidate
    _row: tuple[Any, ...]
    _names: Mapping[int, str]
    sources: tuple[Source, ...] = ()
    """The turns that a derived line comes from; nothing for every other passage."""
    source: int | None = None
    """For a derived line: the number of the candidate passage that it comes from."""

    @property
    def row_id(self) -> int:
        """Returns the passage's number in this index."""
        return int(self._row[0])

    @property
    def text(self) -> str:
        return str(self._row[7])

    @property
    def passage(self) -> Passage:
        """Returns the passage. Of some hundred candidates only a few are shown."""
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
    """Returns the number of a passage of each of the best `units`; of a derived line, the one that it comes from."""
    numbers = {id(one.candidate): one.source or one.row_id for one in found}
    return [numbers[id(one)] for one in matching_best(plan.asked, [one.candidate for one in found], units)]


def as_candidates(
    plan: QueryPlan, found: Sequence[Found], mode: Mode, by_meaning: bool, generation: str, messages: Iterable[str]
) -> Candidates:
    """Returns the result of a search. A search for the meaning alone has no values of words."""
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
    """Returns how near turns and their neighbors are to a message's vector; nothing for turns without one. `rows` are
    path, turn, part and vector of their first EXCHANGE_PARTS parts."""
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
    query's by the embedder, `about` that by the recognizer's network."""
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
        if bit < keywords:  # names of speakers are looked up, and are no keywords
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
            False,
            near,
        )
        found.append(Found(candidate, row, names, of))
    return found


def _cosines(
    blobs: Sequence[bytes | None], vector: NDArray[np.float32] | None, number: Literal["<f2", "i1"]
) -> list[float | None]:
    """Returns the cosine of each stored vector with a unit vector; None for those of another length, or without a
    vector. They are stored as float16 of length 1, or as whole numbers."""
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
    """Returns what each text is about, as it is stored: whole numbers, or nothing for a text that is not in English.
    The texts of derived lines, for which the second value is true, are read without date and sources. Takes 5 to
    35 ms for each."""
    found = [vector(statement(without_sources(text)) if derived else text) for text, derived in passages]
    return [b"" if one is None else in_bytes(one.reshape(1, -1), len(one)).tobytes() for one in found]


_importing = threading.Lock()
numpy_is_there = threading.Event()


def import_numpy() -> None:
    """Imports NumPy, one thread at a time: two first imports at once break it."""
    with _importing:
        importlib.import_module("numpy")
        numpy_is_there.set()


ENOUGH = 0.5
"""If at least this share of the neighbors is in the scope, no more are searched."""


SCALE = 254.0
"""int8 = round(254 · x): components of unit vectors of a hundred dimensions and more lie within ±0.5."""


def in_bytes(half: NDArray[Any], first: int) -> NDArray[np.int8]:
    """Returns the `first` numbers of vectors (one per row) as int8.

    They are normalized again, so that L2 orders as the cosine does.
    """
    import numpy as np

    shown = half[:, :first].astype(np.float32)
    length = np.linalg.norm(shown, axis=1, keepdims=True)
    whole: NDArray[np.float32] = np.rint(shown / np.where(length > 0, length, 1) * SCALE)
    return whole.clip(-127, 127).astype(np.int8)
