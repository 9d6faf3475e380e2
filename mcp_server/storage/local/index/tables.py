"""The SQLite tables of the search index, and the search statements whose SQL is specific to SQLite.

Everything in the tables can be rebuilt from the workspace's files. `SCHEMA` is part of the file name, so that old and
new versions of the program can run at the same time. Increase it if you change a table, or how a text is split and
folded into words.

Neighbors are found by sqlite-vec if it can be loaded, else with NumPy over the stored vectors. A process without
sqlite-vec marks the vector table as stale when it writes; the next writer with sqlite-vec fills it again.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcp_server.embed.providers import LEADING
from mcp_server.storage.index.scoring import ENOUGH, Fetching, Scope, in_bytes
from mcp_server.storage.index.searching import FIRST_FETCH, Searching
from mcp_server.storage.state import Dialect
from mcp_server.text.entries import Source

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SCHEMA = 9

TABLES = """
-- Properties of this file: schema, embedder, dimensions, complete (1 after the file was filled for the first time),
-- vectors_stale (1 if a writer could not load sqlite-vec).
CREATE TABLE index_state (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

-- One row: the number of passages and of their words (for the mean length in BM25), and both numbers for the lines
-- that an extractor derived from turns. Lines are counted separately, because they repeat the text of turns.
CREATE TABLE totals (
    passages INTEGER NOT NULL, words INTEGER NOT NULL, lines INTEGER NOT NULL, line_words INTEGER NOT NULL
);
INSERT INTO totals VALUES (0, 0, 0, 0);

-- Every indexed file, with its size, time and hash when it was read. so_far (JSON) is the position up to which a
-- transcript was parsed; problem is a sentence for status.
CREATE TABLE files (
    id INTEGER PRIMARY KEY,
    path TEXT NOT NULL UNIQUE,
    size INTEGER NOT NULL,
    mtime_ns INTEGER NOT NULL,
    looked_ns INTEGER NOT NULL,
    sha256 BLOB NOT NULL,
    so_far TEXT,
    problem TEXT
);
CREATE INDEX files_with_problems ON files (path) WHERE problem IS NOT NULL;

-- The names of projects, sessions, speakers and categories, by number, so that filters compare integers.
CREATE TABLE names (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);

-- The columns of a passage that filters use. The rows are narrow, so that 100,000 of them stay in the cache. `mark`
-- identifies the unit: its turn number or first line.
-- AUTOINCREMENT: ids are never reused, so that an id that a reader still uses never refers to another passage.
CREATE TABLE knowledge_meta (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    file INTEGER NOT NULL REFERENCES files (id),
    mark INTEGER NOT NULL,
    part INTEGER NOT NULL,
    project INTEGER NOT NULL,
    session INTEGER NOT NULL,
    category INTEGER NOT NULL,
    speaker INTEGER NOT NULL,
    at REAL,                            -- seconds since 1970; NULL: the file has no date, its mtime is used
    words INTEGER NOT NULL,             -- length of the indexed text
    digest BLOB NOT NULL,               -- of the whole unit; empty in part 0 until the last part is written
    derived INTEGER NOT NULL            -- 1: a line that an extractor wrote
);
CREATE UNIQUE INDEX meta_of_file ON knowledge_meta (file, mark, part);
-- Created before the index of sessions, so that SQLite uses that one if a search filters by both.
CREATE INDEX meta_of_category ON knowledge_meta (category);
CREATE INDEX meta_of_session ON knowledge_meta (session);

-- The columns of a passage that results show and scores use.
CREATE TABLE passages (
    id INTEGER PRIMARY KEY REFERENCES knowledge_meta (id),
    ordinal INTEGER NOT NULL,
    first_line INTEGER NOT NULL,
    last_line INTEGER NOT NULL,
    text TEXT NOT NULL,
    title TEXT NOT NULL,
    turn INTEGER,
    turn_id TEXT,
    role TEXT NOT NULL,
    chars INTEGER NOT NULL,             -- of the whole unit
    tells_time INTEGER NOT NULL,
    first_person INTEGER NOT NULL,
    ends_with_question INTEGER NOT NULL, -- the unit
    -- CRC-32 of each word's stem in order, little-endian: so that scoring does not read the text again
    stems BLOB NOT NULL,
    vector BLOB,                        -- float16; NULL: not embedded (yet)
    about BLOB                          -- int8, what the text is about; NULL: not read yet, empty: in another language
);
CREATE INDEX passages_without_vector ON passages (id) WHERE vector IS NULL;
CREATE INDEX passages_not_read ON passages (id) WHERE about IS NULL;

-- Words of the indexed text, folded by text.words; rowid is the passage. Derived lines have their own tables, so that
-- they do not affect the BM25 ranking of turns and documents.
CREATE VIRTUAL TABLE knowledge_fts USING fts5 (words, tokenize = 'porter unicode61 remove_diacritics 2');
CREATE VIRTUAL TABLE knowledge_terms USING fts5vocab (knowledge_fts, row);
CREATE VIRTUAL TABLE lines_fts USING fts5 (words, tokenize = 'porter unicode61 remove_diacritics 2');
CREATE VIRTUAL TABLE lines_terms USING fts5vocab (lines_fts, row);

-- The speakers of each project, with their numbers of passages and lines. Names in a query are looked up here.
CREATE TABLE speakers (
    project INTEGER,
    speaker INTEGER,
    passages INTEGER NOT NULL,
    lines INTEGER NOT NULL,
    PRIMARY KEY (project, speaker)
) WITHOUT ROWID;

CREATE TRIGGER passage_in AFTER INSERT ON knowledge_meta BEGIN
    UPDATE totals SET passages = passages + (1 - NEW.derived), words = words + (1 - NEW.derived) * NEW.words,
        lines = lines + NEW.derived, line_words = line_words + NEW.derived * NEW.words;
    INSERT INTO speakers VALUES (NEW.project, NEW.speaker, 1 - NEW.derived, NEW.derived)
        ON CONFLICT DO UPDATE SET passages = passages + excluded.passages, lines = lines + excluded.lines;
END;
CREATE TRIGGER passage_out AFTER DELETE ON knowledge_meta BEGIN
    UPDATE totals SET passages = passages - (1 - OLD.derived), words = words - (1 - OLD.derived) * OLD.words,
        lines = lines - OLD.derived, line_words = line_words - OLD.derived * OLD.words;
    UPDATE speakers SET passages = passages - (1 - OLD.derived), lines = lines - OLD.derived
        WHERE project = OLD.project AND speaker = OLD.speaker;
    DELETE FROM speakers
        WHERE project = OLD.project AND speaker = OLD.speaker AND passages = 0 AND lines = 0;
END;
"""

VECTORS = """
-- Nearest neighbors: the int8 vectors select candidates, the float16 vectors in `passages` give the exact cosine. For
-- unit vectors, L2 distance and cosine give the same order.
CREATE VIRTUAL TABLE knowledge_vec USING vec0 (
    project INTEGER PARTITION KEY,
    session INTEGER,
    embedding INT8[{dimensions}] distance_metric = L2,
    chunk_size = 512
);
"""

LINES = -1
"""The session number of all derived lines in the vector table: searches exclude the lines by it."""


def load_vectors(connection: sqlite3.Connection) -> bool:
    """Loads sqlite-vec into a connection. Returns False if it cannot be loaded.

    Replaces `sqlite_vec.load`, whose module imports NumPy (12 MB), which an idle server does not need.
    """
    try:
        package = find_spec("sqlite_vec")
        assert package is not None
        assert package.origin is not None
        loader: Any = connection
        loader.enable_load_extension(True)
        try:
            loader.load_extension(str(Path(package.origin).with_name("vec0")))
        finally:
            loader.enable_load_extension(False)
    except Exception:  # no package, no wheel for this machine, or a driver without extensions
        return False
    return True


def create(connection: sqlite3.Connection, embedder: str, dimensions: int, vectors: bool) -> None:
    """Creates the tables in an empty file. `writer.complete` marks it as complete later."""
    connection.executescript(TABLES)
    new = {"schema": SCHEMA, "embedder": embedder, "dimensions": dimensions, "complete": 0}
    new["vectors_stale"] = int(bool(dimensions) and not vectors)
    connection.executemany("INSERT INTO index_state VALUES (?, ?)", [(key, str(value)) for key, value in new.items()])
    if vectors and dimensions:
        create_vectors(connection)


def create_vectors(connection: sqlite3.Connection) -> None:
    connection.execute(VECTORS.format(dimensions=compared(state(connection))))


def refill(connection: sqlite3.Connection) -> None:
    """Fills a stale vector table from the stored vectors."""
    import numpy as np

    kept = state(connection)
    if kept["vectors_stale"] != "1":
        return
    connection.execute("DROP TABLE IF EXISTS knowledge_vec")
    create_vectors(connection)
    rows = connection.execute(
        f"SELECT p.id, m.project, iif(m.derived, {LINES}, m.session), p.vector FROM passages p "
        "JOIN knowledge_meta m ON m.id = p.id WHERE p.vector IS NOT NULL"
    ).fetchall()
    first = compared(kept)
    connection.executemany(
        "INSERT INTO knowledge_vec (rowid, project, session, embedding) VALUES (?, ?, ?, vec_int8(?))",
        ((*row[:3], in_bytes(np.frombuffer(row[3], "<f2").reshape(1, -1), first).tobytes()) for row in rows),
    )
    connection.execute("UPDATE index_state SET value = '0' WHERE key = 'vectors_stale'")


def compared(kept: Mapping[str, str]) -> int:
    """Returns the number of leading dimensions that the vector table stores. `kept` is the result of `state`."""
    dimensions = int(kept["dimensions"])
    return min(dimensions, LEADING.get(kept["embedder"], dimensions))


def state(connection: sqlite3.Connection) -> dict[str, str]:
    return dict(connection.execute("SELECT key, value FROM index_state").fetchall())


def packed_vectors(vectors: NDArray[np.float32], first: int) -> tuple[list[bytes], list[bytes]]:
    """Returns each vector as float16 (for the exact cosine), and its first `first` dimensions as int8 (to find
    neighbors)."""
    half = vectors.astype("<f2")
    # Made from the rounded vectors, so that `refill` makes the same bytes from the stored ones.
    return [row.tobytes() for row in half], [row.tobytes() for row in in_bytes(half, first)]


COLUMNS = (
    "m.id, f.path, m.mark, m.part, p.ordinal, p.first_line, p.last_line, p.text, p.title, m.category, m.project, "
    "m.session, p.turn, p.turn_id, p.role, m.speaker, m.at, "
    "p.chars, p.tells_time, p.first_person, p.ends_with_question, p.stems, p.vector, p.about"
)
NAMED = (9, 10, 11, 15)
"""The positions in COLUMNS of the columns that have numbers from the table `names`."""

STORED, FILES = "knowledge_meta m CROSS JOIN passages p ON p.id = m.id", " CROSS JOIN files f ON f.id = m.file"

SQLITE = Dialect(
    "?",
    json.dumps,
    {
        "meta": "knowledge_meta",
        "speaker": "speakers",
        "here": "",
        "among": "IN (SELECT value FROM json_each(?))",
        "derived": "derived",
        "at": "coalesce(m.at, (SELECT f.mtime_ns / 1e9 FROM files f WHERE f.id = m.file))",
        "file": "file",
        "same_file": "n.file = m.file",
        "stored": STORED,
        "files": FILES,
        "columns": COLUMNS,
        "speakers": "SELECT DISTINCT n.name FROM speakers m JOIN names n ON n.id = m.speaker WHERE n.name <> ''",
        "of_speakers": "SELECT coalesce(sum(passages + ? * lines), 0) FROM speakers m WHERE true",
        "totals": "SELECT passages, words, lines, line_words FROM totals",
    },
)


class LocalSearching(Searching):
    """A search over one connection. New names are added to `names`."""

    dialect = SQLITE

    def numbers(self, names: Sequence[str]) -> dict[str, int]:
        return dict(self.rows(f"SELECT name, id FROM names WHERE name IN ({', '.join('?' * len(names))})", *names))

    def learn(self, rows: Sequence[tuple[Any, ...]]) -> None:
        learn(self.connection, rows, self.names)

    def units_with(self, sequence: Sequence[str]) -> tuple[str, list[Any]]:
        holding = " UNION ALL ".join(
            f"SELECT u.file, u.mark FROM {table} JOIN knowledge_meta u ON u.id = {table}.rowid WHERE {table} MATCH ?"
            for table in ("knowledge_fts", "lines_fts")
        )
        return holding, [f'"{" ".join(sequence)}"'] * 2

    def documents(self, words: Sequence[str]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        terms = self.stems.terms(words)
        of_each = "SELECT {0}, t.term, t.doc FROM json_each(?) j CROSS JOIN {1}_terms t ON t.term = j.value"
        select = f"{of_each.format(0, 'knowledge')} UNION ALL {of_each.format(1, 'lines')}"
        known = {(kind, term): number for kind, term, number in self.rows(select, terms, terms)}
        said, lines = (tuple(known.get((kind, term), 0) for term in terms) for kind in (0, 1))
        return said, lines

    def holding(self, words: Sequence[str], scope: Scope) -> list[int]:
        tables = ("knowledge_fts", "lines_fts") if scope.lines else ("knowledge_fts",)
        select = " UNION ALL ".join(
            f"SELECT m.id FROM {table} CROSS JOIN knowledge_meta m ON m.id = {table}.rowid "
            f"WHERE {table} MATCH ? AND {scope.condition}"
            for table in tables
        )
        values = [(f'"{word}"', *scope.values) * len(tables) for word in words]
        return [self.ids(f"SELECT count(*) FROM ({select})", *bound)[0] for bound in values]

    def matching(self, words: Sequence[Fetching], wanted: int, first: int, scope: Scope, *, lines: bool) -> list[int]:
        """Returns the best matches, as the base class describes. `ORDER BY bm25()` keeps only the best ones;
        `ORDER BY rank`, which is the same value, would sort all matches."""
        if not words:
            return []
        table = "lines_fts" if lines else "knowledge_fts"
        fetch = " OR ".join(f'"{one.word}"' for one in words)
        for most in (first, FIRST_FETCH) if first < FIRST_FETCH else (FIRST_FETCH,):
            found = self.ids(
                f"SELECT rowid FROM {table} WHERE {table} MATCH ? ORDER BY bm25({table}) LIMIT ?", fetch, most
            )
            kept = self.inside(found, scope)
            if len(found) < most or len(kept) >= wanted:
                return kept[:wanted]
        # CROSS JOIN fixes the join order: keyword index first. Otherwise SQLite may search it once for each passage.
        return self.ids(
            f"SELECT m.id FROM {table} CROSS JOIN knowledge_meta m ON m.id = {table}.rowid "
            f"WHERE {table} MATCH ? AND {scope.condition} ORDER BY {table}.rank LIMIT ?",
            *(fetch, *scope.values, wanted),
        )

    def turns(self, sources: Sequence[Source]) -> list[tuple[Any, ...]]:
        return self.rows(
            "SELECT f.path, m.mark, m.id FROM json_each(?) j "
            "CROSS JOIN files f ON f.path = json_extract(j.value, '$[0]') "
            "CROSS JOIN knowledge_meta m ON m.file = f.id AND m.mark = json_extract(j.value, '$[1]') AND m.part = 0",
            [(source.path, source.turn) for source in sources],
        )


def learn(connection: sqlite3.Connection, rows: Sequence[tuple[Any, ...]], names: dict[int, str]) -> None:
    """Adds the names to which these rows refer by number to `names`. The name of a number never changes."""
    new = {row[column] for row in rows for column in NAMED} - names.keys()
    if new:
        names.update(
            connection.execute(
                "SELECT id, name FROM names WHERE id IN (SELECT value FROM json_each(?))", (json.dumps(list(new)),)
            )
        )


def nearest(searching: LocalSearching, vector: NDArray[np.float32], scope: Scope) -> list[int]:
    """Returns the passages of the scope nearest to a unit vector, nearest first. Uses sqlite-vec, or compares all
    vectors if the scope is small."""
    most = searching.depth.meaning
    if searching.is_small(scope):
        return nearest_of(searching, vector, scope)
    (_, (small,)) = packed_vectors(vector.reshape(1, -1), compared(state(searching.connection)))
    where, values = "embedding MATCH vec_int8(?) AND k = ?", [small, most]
    if scope.projects is not None:
        # The partition key allows IN: sqlite-vec then returns k neighbors from each partition.
        known = scope.projects or [-1]
        where += f" AND project IN ({', '.join('?' * len(known))})"
        values += known
    if scope.without_session is not None:
        where += " AND session <> ?"
        values.append(scope.without_session)
    if not scope.lines and searching.rows("{totals}")[0][2]:
        where += " AND session <> ?"
        values.append(LINES)
    select = f"SELECT rowid, distance FROM knowledge_vec WHERE {where}"
    found = _by_distance(searching.rows(select, *values), most)
    if not scope.other:
        return found
    kept = searching.inside(found, scope)
    if len(found) < most or len(kept) >= ENOUGH * most:
        return kept
    select += f" AND rowid IN (SELECT m.id FROM knowledge_meta m WHERE {scope.condition})"
    return _by_distance(searching.rows(select, *values, *scope.values), most)


def _by_distance(rows: Iterable[tuple[Any, ...]], most: int) -> list[int]:
    return [row[0] for row in sorted(rows, key=lambda row: row[1])[:most]]


def nearest_of(searching: LocalSearching, vector: NDArray[np.float32], scope: Scope) -> list[int]:
    """Returns the passages of a scope nearest to a unit vector, nearest first. Compares all of them, with the same
    rounding as the vector table."""
    import numpy as np

    size = 2 * len(vector)
    rows = [row for row in searching.stored(scope, "vector") if row[1] is not None and len(row[1]) == size]
    if not rows:
        return []
    stored = np.frombuffer(b"".join(row[1] for row in rows), dtype="<f2").reshape(len(rows), len(vector))
    first = compared(state(searching.connection))
    apart = in_bytes(stored, first).astype(np.int32) - in_bytes(vector.astype("<f2").reshape(1, -1), first)
    order = np.argsort((apart * apart).sum(axis=1), kind="stable")[: searching.depth.meaning]
    return [rows[place][0] for place in order]
