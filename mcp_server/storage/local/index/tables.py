"""The SQLite tables of the search index.

Everything in the tables can be rebuilt from the workspace's files. `SCHEMA` is part of the file name, so that old and
new versions of the program can run at the same time. Increase it if you change a table, or how a text is split and
folded into words.

A process without sqlite-vec marks the vector table as stale when it writes; the next writer with sqlite-vec fills it
again.
"""

from __future__ import annotations

import sqlite3
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from mcp_server.storage.index.scoring import in_bytes
from mcp_server.storage.local.index.searching import LINES, compared, state

SCHEMA = 9


TABLES = """
-- What this file is: schema, embedder, complete (1 once the first filling is done), vectors_stale (a writer could
-- not load sqlite-vec).
CREATE TABLE index_state (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

-- One row: the number of passages and of their words (for the mean length in BM25), and the same of lines that an
-- extractor derived from turns. The lines are counted apart, because they repeat the text of turns.
CREATE TABLE totals (
    passages INTEGER NOT NULL, words INTEGER NOT NULL, lines INTEGER NOT NULL, line_words INTEGER NOT NULL
);
INSERT INTO totals VALUES (0, 0, 0, 0);

-- Every file that was read, as it was then. so_far (JSON) is the position up to which a transcript was parsed; problem
-- is a sentence for status.
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

-- Projects, sessions, speakers, categories by number: filters compare integers.
CREATE TABLE names (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);

-- What filters need of a passage, narrow so that 100,000 rows stay in the cache. `mark` is the unit: turn number
-- or first line.
-- AUTOINCREMENT: an id that a reader still holds never becomes another passage's.
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
-- Before the index of sessions, which SQLite then uses if a search names both.
CREATE INDEX meta_of_category ON knowledge_meta (category);
CREATE INDEX meta_of_session ON knowledge_meta (session);

-- What a result shows and a score needs.
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

-- Words of the indexed text, folded by core.text.words; rowid is the passage. Derived lines have tables of their own:
-- so a search ranks what people said and wrote as if there were no lines.
CREATE VIRTUAL TABLE knowledge_fts USING fts5 (words, tokenize = 'porter unicode61 remove_diacritics 2');
CREATE VIRTUAL TABLE knowledge_terms USING fts5vocab (knowledge_fts, row);
CREATE VIRTUAL TABLE lines_fts USING fts5 (words, tokenize = 'porter unicode61 remove_diacritics 2');
CREATE VIRTUAL TABLE lines_terms USING fts5vocab (lines_fts, row);

-- Who speaks in which project: names in a query are looked up here.
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
-- Nearest neighbours: int8 prefilters, the float16 vectors in `passages` give the exact cosine. On unit vectors L2
-- orders as cosine does.
CREATE VIRTUAL TABLE knowledge_vec USING vec0 (
    project INTEGER PARTITION KEY,
    session INTEGER,
    embedding INT8[{dimensions}] distance_metric = L2,
    chunk_size = 512
);
"""


def load_vectors(connection: sqlite3.Connection) -> bool:
    """Loads sqlite-vec into a connection. Returns False if the driver or the machine cannot.

    Does the same as `sqlite_vec.load`, whose module would import NumPy (12 MB), which an idle server does not need.
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
    """Creates the vector table."""
    connection.execute(VECTORS.format(dimensions=compared(state(connection))))


def refill(connection: sqlite3.Connection) -> bool:
    """Fills a stale vector table from the stored vectors. Returns True if it was stale."""
    import numpy as np

    kept = state(connection)
    if kept["vectors_stale"] != "1":
        return False
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
    return True
