"""The files, sessions and passages that an index contains."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mcp_server.model import Exchange
from mcp_server.storage.index.file_reader import Row, Signals
from mcp_server.storage.index.scoring import EXCHANGE_PARTS, exchanges_of, passage_of
from mcp_server.storage.local.index.searching import COLUMNS, FILES, STORED, learn
from mcp_server.storage.local.index.vectors import state
from mcp_server.storage.local.index.writer import UNFINISHED
from mcp_server.storage.state import storable
from mcp_server.text.entries import Source
from mcp_server.text.passages import indexed_text

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Counts:
    """The numbers for `status`.

    `problems`: a sentence for each file that could not be read correctly. `unfinished`: the number of files that are
    indexed only in part.
    """

    files: int
    passages: int
    not_embedded: int
    problems: tuple[str, ...]
    unfinished: int = 0


def counts(connection: sqlite3.Connection) -> Counts:
    """Returns the numbers for `status`."""
    (files,) = connection.execute("SELECT count(*) FROM files").fetchone()
    (passages,) = connection.execute("SELECT passages + lines FROM totals").fetchone()
    (waiting,) = connection.execute("SELECT count(*) FROM passages WHERE vector IS NULL").fetchone()
    problems = connection.execute("SELECT problem FROM files WHERE problem IS NOT NULL ORDER BY path").fetchall()
    (unfinished,) = connection.execute("SELECT count(*) FROM files WHERE size = ?", (UNFINISHED,)).fetchone()
    not_embedded = waiting if int(state(connection)["dimensions"]) else 0
    return Counts(files, passages, not_embedded, tuple(row[0] for row in problems), unfinished)


def as_indexed(connection: sqlite3.Connection, paths: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Returns for each of these files that is indexed its size (bytes) and mtime (ns) when it was indexed."""
    rows = connection.execute(
        "SELECT path, size, mtime_ns FROM files WHERE path IN (SELECT value FROM json_each(?))", (json.dumps(paths),)
    )
    return {path: (size, mtime_ns) for path, size, mtime_ns in rows}


def exchanges(
    connection: sqlite3.Connection, vector: NDArray[np.float32], turns: Sequence[Source]
) -> dict[Source, Exchange]:
    """Returns how near these turns and their neighbors are to a message's vector; nothing for turns without one."""
    rows = connection.execute(
        "SELECT DISTINCT f.path, n.mark, n.part, p.vector FROM json_each(?) j "
        "CROSS JOIN files f ON f.path = json_extract(j.value, '$[0]') "
        "CROSS JOIN knowledge_meta n ON n.file = f.id "
        "AND n.mark BETWEEN json_extract(j.value, '$[1]') - 1 AND json_extract(j.value, '$[1]') + 1 "
        "CROSS JOIN passages p ON p.id = n.id WHERE n.part < ? AND length(p.vector) = ?",
        (json.dumps([(one.path, one.turn) for one in turns]), EXCHANGE_PARTS, 2 * len(vector)),
    )
    return exchanges_of(rows, vector, turns)


def last_turn(connection: sqlite3.Connection, session: str) -> int:
    """Returns the number of a session's newest indexed turn; 0 for none."""
    sql = "SELECT max(m.mark) FROM knowledge_meta m JOIN names n ON n.id = m.session WHERE n.name = ?"
    return int(connection.execute(sql, (session,)).fetchone()[0] or 0)


def sample(connection: sqlite3.Connection, most: int) -> list[str]:
    """Returns the paths of at most `most` random indexed files. For half of them, the chance grows with the number of
    passages."""
    of_passages = "SELECT file FROM knowledge_meta ORDER BY random() LIMIT ?"
    rows = connection.execute(f"SELECT DISTINCT path FROM files WHERE id IN ({of_passages})", (most // 2,)).fetchall()
    rows += connection.execute("SELECT path FROM files ORDER BY random() LIMIT ?", (most - len(rows),)).fetchall()
    return list(dict.fromkeys(row[0] for row in rows))


def holds(connection: sqlite3.Connection, path: str, rows: Sequence[Row], cuts: Sequence[Signals]) -> bool:
    """Returns whether the index has exactly these passages of a file, with their words for the keyword search."""
    expected = {
        (row.mark, row.passage.part, row.digest, storable(row.passage.text), storable(" ".join(found.words)))
        for row, found in zip(rows, cuts, strict=True)
    }
    stored = connection.execute(
        "SELECT m.mark, m.part, m.digest, p.text, CASE m.derived WHEN 1 THEN l.words ELSE k.words END "
        "FROM files f JOIN knowledge_meta m ON m.file = f.id LEFT JOIN passages p ON p.id = m.id "
        "LEFT JOIN knowledge_fts k ON k.rowid = m.id LEFT JOIN lines_fts l ON l.rowid = m.id WHERE f.path = ?",
        (path,),
    ).fetchall()
    return len(stored) == len(expected) and set(stored) == expected


def without_vector(connection: sqlite3.Connection, most: int) -> list[tuple[int, str]]:
    """Returns passages that were written without an embedder: id and the text to embed."""
    waiting = "SELECT id FROM passages WHERE vector IS NULL LIMIT ?"
    rows = connection.execute(f"SELECT {COLUMNS} FROM {STORED}{FILES} WHERE m.id IN ({waiting})", (most,)).fetchall()
    names: dict[int, str] = {}
    learn(connection, rows, names)
    return [(row[0], indexed_text(passage_of(row, names))) for row in rows]
