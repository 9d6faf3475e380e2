"""The tables of `.local/state.db`."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

VERSION = 3

TABLES = """
-- One row for each session: its open (or last) transcript, and how far it was read.
CREATE TABLE IF NOT EXISTS sessions (
    session      TEXT PRIMARY KEY,
    path         TEXT NOT NULL,
    status       TEXT NOT NULL,           -- open | closed
    project      TEXT NOT NULL,           -- raw key, '' for the global one
    kind         TEXT,                    -- NULL until a call names it
    delivery     TEXT,                    -- NULL until a call names it
    title        TEXT NOT NULL,
    opened       TEXT NOT NULL,
    last_arrival TEXT NOT NULL,
    turns        INTEGER NOT NULL,        -- number of the last turn
    last_at      TEXT,                    -- time of the last entry of the transcript
    size         INTEGER NOT NULL         -- bytes of the transcript that these rows know
) STRICT;

-- Both source keys of every turn, to recognize repeats.
CREATE TABLE IF NOT EXISTS turn_keys (
    session TEXT NOT NULL,
    number  INTEGER NOT NULL,
    role    TEXT NOT NULL,
    sha     TEXT NOT NULL,
    nth     INTEGER NOT NULL,
    turn_id TEXT,
    PRIMARY KEY (session, number)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS turn_keys_id ON turn_keys (session, turn_id) WHERE turn_id IS NOT NULL;
CREATE INDEX IF NOT EXISTS turn_keys_sha ON turn_keys (session, sha);
CREATE INDEX IF NOT EXISTS turn_keys_turn ON turn_keys (turn_id) WHERE turn_id IS NOT NULL;

-- Reads and recoveries of files: the reference count of knowledge scores. Compiling never writes here.
CREATE TABLE IF NOT EXISTS access_log (
    path TEXT NOT NULL,
    kind TEXT NOT NULL,
    at   TEXT NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS access_log_path ON access_log (path);

-- Random ids of folders that have no other name (`dir:` project keys).
CREATE TABLE IF NOT EXISTS directories (folder TEXT PRIMARY KEY, id TEXT NOT NULL) STRICT, WITHOUT ROWID;

-- The chunks of open sessions' live contexts. A cold chunk keeps its row, because it may be recovered.
CREATE TABLE IF NOT EXISTS live_chunks (
    session   TEXT NOT NULL,
    id        TEXT NOT NULL,
    turn      INTEGER NOT NULL,
    part      INTEGER NOT NULL,
    kind      TEXT NOT NULL,           -- message | tool | file | skill | agent
    tokens    INTEGER NOT NULL,        -- of the present form
    added     TEXT NOT NULL,
    form      TEXT NOT NULL,           -- whole | one line | summary | excerpt | cold
    shown     TEXT,                    -- the text of a summary or an excerpt
    one_line  INTEGER,                 -- tokens that a tool's call would have without its result
    name      TEXT NOT NULL,
    important INTEGER NOT NULL,
    system    INTEGER NOT NULL,
    immune    INTEGER NOT NULL,        -- the exchange until which a recovery protects it
    accesses  INTEGER NOT NULL,
    accessed  TEXT,
    tags      TEXT NOT NULL,           -- JSON lists
    topics    TEXT NOT NULL,
    mtime     TEXT,
    PRIMARY KEY (session, id)
) STRICT, WITHOUT ROWID;

-- Small values by namespace, as JSON.
CREATE TABLE IF NOT EXISTS entries (
    namespace TEXT NOT NULL,
    key       TEXT NOT NULL,
    value     TEXT NOT NULL,
    PRIMARY KEY (namespace, key)
) STRICT, WITHOUT ROWID;
"""


def create(connection: sqlite3.Connection) -> None:
    """Creates the tables that a new file or a file of an older version lacks."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version < VERSION:
        for statement in TABLES.split(";\n"):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {VERSION}")


def conversations(local: Path) -> tuple[int, str]:
    """Returns the number of sessions in `state.db` and the time of the last arrival (ISO 8601, "" for none).

    Returns (0, "") if the file cannot be read at once.
    """
    try:
        with closing(
            sqlite3.connect(f"{(local / 'state.db').resolve().as_uri()}?mode=ro", uri=True, timeout=0.2)
        ) as read:
            count, last = read.execute("SELECT count(*), max(last_arrival) FROM sessions").fetchone()
    except sqlite3.Error:
        return 0, ""
    return count, last or ""
