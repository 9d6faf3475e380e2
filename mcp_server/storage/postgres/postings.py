"""Postings in PostgreSQL, scored with NumPy by FTS5's BM25 (k1 = 1.2, b = 0.75).

New postings are rows of `posting_delta`. From time to time they are merged into `posting_block`, at most 256 per block.
A deleted passage that is still in blocks has a row in `posting_gone` until its blocks are rewritten. All functions run
in the caller's transaction. Functions that write need the row lock of the index.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mcp_server.storage.index.scoring import K1, B, bm25_idf
from mcp_server.storage.postgres.connections import Connection

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BLOCK = 256
"""Most postings of a block."""

MERGE_AT = 256
"""Number of passages in `posting_delta` at which they are merged, because a search reads a row for each of their
words."""

CLEAR_AT = 500
"""Number of deleted passages in `posting_gone` at which their blocks are rewritten."""

SAID, LINES = 0, 1
"""The kinds of passages: turns and files, and lines that an extractor derived from turns."""

_BY_STEM = "stem, " + ", ".join(f"array_agg({column} ORDER BY passage)" for column in ("passage", "tf", "len"))
"""A stem, and the columns of its postings, ordered by passage."""


@dataclass(frozen=True, slots=True)
class Postings:
    """The passages of one stem, ordered by id, with term frequencies and lengths in words."""

    ids: NDArray[np.int64]
    tfs: NDArray[np.int32]
    lens: NDArray[np.int32]


def load(connection: Connection, kind: int, stems: Iterable[int]) -> dict[int, Postings]:
    """Returns the postings of these stems; a stem without any is left out."""
    import numpy as np

    wanted = sorted(set(stems))
    if not wanted:
        return {}
    blocks = connection.rows(
        "SELECT stem, ids, tfs, lens FROM posting_block WHERE ws = %s AND kind = %s AND stem = ANY(%s) "
        "ORDER BY stem, first",
        *(kind, wanted),
    )
    fresh = connection.rows(
        f"SELECT {_BY_STEM} FROM posting_delta WHERE ws = %s AND kind = %s AND stem = ANY(%s) GROUP BY stem",
        *(kind, wanted),
    )
    gone = np.array(_gone(connection, kind), dtype=np.int64)
    parts: dict[int, list[tuple[Any, Any, Any]]] = {}
    for stem, *packed in blocks:
        parts.setdefault(stem, []).append(_unpacked(*packed))
    for stem, *columns in fresh:
        parts.setdefault(stem, []).append(_arrays(*columns))
    found: dict[int, Postings] = {}
    for stem, listed_parts in parts.items():
        ids, tfs, lens = (np.concatenate(arrays) for arrays in zip(*listed_parts, strict=True))
        if len(gone):
            kept = ~np.isin(ids, gone)
            ids, tfs, lens = ids[kept], tfs[kept], lens[kept]
        if len(ids):
            found[stem] = Postings(ids, tfs, lens)
    return found


def best(words: Sequence[Postings], passages: int, mean_words: float) -> NDArray[np.int64]:
    """Returns the ids of all passages with one of these words, best first. `passages` and `mean_words` are those of the
    whole index."""
    import numpy as np

    ids, places = np.unique(np.concatenate([one.ids for one in words]), return_inverse=True)
    total = np.zeros(len(ids))
    begin = 0
    for one in words:
        # The same order of operations as in FTS5, so that rounding gives the same ties.
        weight = (one.tfs * (K1 + 1)) / (one.tfs + K1 * (1 - B + B * one.lens / mean_words))
        total[places[begin : begin + len(one.ids)]] += bm25_idf(passages, len(one.ids)) * weight
        begin += len(one.ids)
    order: NDArray[np.int64] = ids[np.argsort(-total, kind="stable")]
    return order


def add(connection: Connection, rows: Sequence[tuple[int, int, Sequence[int]]]) -> None:
    """Adds new passages: triples of kind, id and the stems of all words, in order."""
    import numpy as np

    kinds: list[int] = []
    of_stems: list[int] = []
    passages: list[int] = []
    tfs: list[int] = []
    lens: list[int] = []
    for kind, number, stems in rows:
        each, times = np.unique(np.array(stems, dtype=np.int64), return_counts=True)
        kinds += [kind] * len(each)
        of_stems += each.tolist()
        passages += [number] * len(each)
        tfs += times.tolist()
        lens += [len(stems)] * len(each)
    connection.run(
        "INSERT INTO posting_delta (ws, kind, stem, passage, tf, len) SELECT %s, * FROM "
        "unnest(%s::smallint[], %s::bigint[], %s::bigint[], %s::integer[], %s::integer[])",
        *(kinds, of_stems, passages, tfs, lens),
    )
    connection.run(
        "INSERT INTO term (ws, kind, stem, df) SELECT %s, kind, stem, count(*) "
        "FROM unnest(%s::smallint[], %s::bigint[]) AS n (kind, stem) GROUP BY kind, stem "
        "ON CONFLICT (ws, kind, stem) DO UPDATE SET df = term.df + excluded.df",
        *(kinds, of_stems),
    )


def remove(connection: Connection, rows: Sequence[tuple[int, int, bytes]]) -> None:
    """Removes passages: triples of kind, id and the stems of all words, as they are stored."""
    import numpy as np

    for kind in (SAID, LINES):
        each = {
            number: np.unique(np.frombuffer(stems, dtype="<u4")).astype(np.int64)
            for of, number, stems in rows
            if of == kind
        }
        if not each:
            continue
        merged = _merged(connection, kind)
        flat = [stem for stems in each.values() for stem in stems.tolist()]
        connection.execute(
            "UPDATE term SET df = term.df - o.n FROM (SELECT stem, count(*) AS n FROM unnest(%s::bigint[]) AS s (stem) "
            "GROUP BY stem) o WHERE term.ws = %s AND term.kind = %s AND term.stem = o.stem",
            (flat, connection.ws, kind),
        )
        connection.run(
            "DELETE FROM term WHERE ws = %s AND kind = %s AND stem = ANY(%s) AND df <= 0", kind, sorted(set(flat))
        )
        connection.execute(
            "DELETE FROM posting_delta d USING unnest(%s::bigint[], %s::bigint[]) AS o (passage, stem) "
            "WHERE d.ws = %s AND d.kind = %s AND d.stem = o.stem AND d.passage = o.passage",
            ([number for number, stems in each.items() for _ in stems], flat, connection.ws, kind),
        )
        for number, stems in each.items():
            if number <= merged:
                connection.run(
                    "INSERT INTO posting_gone (ws, kind, passage, stems) VALUES (%s, %s, %s, %s)",
                    *(kind, number, stems.astype("<i8").tobytes()),
                )


def merge_if_due(connection: Connection) -> None:
    """Merges new postings into blocks, and rewrites blocks with deleted passages, if there are enough of them."""
    for kind in (SAID, LINES):
        last, waiting = connection.row(
            "SELECT coalesce(max(id), 0), count(*) FROM passage WHERE ws = %s AND kind = %s AND id > %s",
            *(kind, _merged(connection, kind)),
        )
        if waiting >= MERGE_AT:
            _merge(connection, kind, int(last))
        if len(_gone(connection, kind)) >= CLEAR_AT:
            _clear(connection, kind)


def _merge(connection: Connection, kind: int, last: int) -> None:
    """Moves the postings of all passages up to `last` into blocks."""
    import numpy as np

    fresh = connection.rows(
        "WITH moved AS (DELETE FROM posting_delta WHERE ws = %s AND kind = %s AND passage <= %s "
        f"RETURNING stem, passage, tf, len) SELECT {_BY_STEM} FROM moved GROUP BY stem ORDER BY stem",
        *(kind, last),
    )
    open_blocks = connection.rows(
        "DELETE FROM posting_block b USING (SELECT stem, max(first) AS first FROM posting_block WHERE ws = %s "
        "AND kind = %s AND stem = ANY(%s) GROUP BY stem) l WHERE b.ws = %s AND b.kind = %s AND b.stem = l.stem "
        "AND b.first = l.first AND b.n < %s RETURNING b.stem, b.ids, b.tfs, b.lens",
        *(kind, [stem for stem, *_ in fresh], connection.ws, kind, BLOCK),
    )
    before = {stem: _unpacked(*packed) for stem, *packed in open_blocks}
    blocks: list[tuple[int, Any, Any, Any]] = []
    for stem, *columns in fresh:
        ids, tfs, lens = _arrays(*columns)
        if stem in before:
            ids, tfs, lens = (np.concatenate(pair) for pair in zip(before[stem], (ids, tfs, lens), strict=True))
        for at in range(0, len(ids), BLOCK):
            blocks.append((stem, *(column[at : at + BLOCK] for column in (ids, tfs, lens))))
    _write_blocks(connection, kind, blocks)
    connection.run(
        "INSERT INTO counter (ws, name, value) VALUES (%s, %s, %s) "
        "ON CONFLICT (ws, name) DO UPDATE SET value = excluded.value",
        *(f"merged {kind}", last),
    )


def _clear(connection: Connection, kind: int) -> None:
    """Rewrites all blocks that contain deleted passages."""
    import numpy as np

    rows = connection.rows("DELETE FROM posting_gone WHERE ws = %s AND kind = %s RETURNING passage, stems", kind)
    gone = np.array([number for number, _ in rows], dtype=np.int64)
    stems = sorted({int(stem) for _, stored in rows for stem in np.frombuffer(stored, dtype="<i8")})
    stale = connection.rows(
        "SELECT stem, first, ids, tfs, lens FROM posting_block WHERE ws = %s AND kind = %s AND stem = ANY(%s)",
        *(kind, stems),
    )
    blocks: list[tuple[int, Any, Any, Any]] = []
    keys: list[tuple[int, int]] = []
    for stem, first, *packed in stale:
        ids, tfs, lens = _unpacked(*packed)
        kept = ~np.isin(ids, gone)
        if kept.all():
            continue
        keys.append((stem, first))
        if kept.any():
            blocks.append((stem, ids[kept], tfs[kept], lens[kept]))
    connection.execute(
        "DELETE FROM posting_block b USING unnest(%s::bigint[], %s::bigint[]) AS o (stem, first) "
        "WHERE b.ws = %s AND b.kind = %s AND b.stem = o.stem AND b.first = o.first",
        ([stem for stem, _ in keys], [first for _, first in keys], connection.ws, kind),
    )
    _write_blocks(connection, kind, blocks)


def _write_blocks(connection: Connection, kind: int, blocks: Sequence[tuple[int, Any, Any, Any]]) -> None:
    stems, ids, tfs, lens = zip(*blocks, strict=True) if blocks else ((), (), (), ())
    connection.run(
        "INSERT INTO posting_block (ws, kind, stem, first, n, ids, tfs, lens) SELECT %s, %s, * FROM "
        "unnest(%s::bigint[], %s::bigint[], %s::integer[], %s::bytea[], %s::bytea[], %s::bytea[])",
        *(kind, list(stems), [int(one[0]) for one in ids], [len(one) for one in ids]),
        [one.astype("<i8").tobytes() for one in ids],
        [one.astype("<i4").tobytes() for one in tfs],
        [one.astype("<i4").tobytes() for one in lens],
    )


def _unpacked(ids: bytes, tfs: bytes, lens: bytes) -> tuple[Any, Any, Any]:
    import numpy as np

    return np.frombuffer(ids, dtype="<i8"), np.frombuffer(tfs, dtype="<i4"), np.frombuffer(lens, dtype="<i4")


def _arrays(ids: list[int], tfs: list[int], lens: list[int]) -> tuple[Any, Any, Any]:
    import numpy as np

    return np.array(ids, dtype=np.int64), np.array(tfs, dtype=np.int32), np.array(lens, dtype=np.int32)


def _gone(connection: Connection, kind: int) -> list[int]:
    return [
        number for (number,) in connection.rows("SELECT passage FROM posting_gone WHERE ws = %s AND kind = %s", kind)
    ]


def _merged(connection: Connection, kind: int) -> int:
    """Returns the number of the last passage whose postings are in blocks."""
    (last,) = connection.row("SELECT value FROM counter WHERE ws = %s AND name = %s", f"merged {kind}") or (0,)
    return int(last)
